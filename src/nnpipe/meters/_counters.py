"""Readings of counters of energy that the machine keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nnpipe.core.energy_meter import MeterReading, consumed
from nnpipe.core.errors import NotSupported


@dataclass(frozen=True)
class EnergyCounter:
    """A counter of energy.

    Parameters
    ----------
    name
        Its name in results.
    read
        Returns its value.
    unit_j
        The joules of one step.
    modulus
        The number of values after which it begins again at 0; ``None`` if it never does.
    """

    name: str
    read: Callable[[], int]
    unit_j: float
    modulus: int | None = None


class CounterReading(MeterReading):
    """The sum of counters, read at each mark.

    A counter may begin again once between two marks, which are seconds apart: the smallest ones do it each minute.
    """

    def __init__(
        self,
        kind: str,
        counters: Sequence[EnergyCounter],
        resolution_s: float,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self.source = f"{kind}: {', '.join(each.name for each in counters)}"
        self.resolution_s = resolution_s
        self._counters = tuple(counters)
        self._close = close
        self._read: list[tuple[int, ...]] = []

    def mark(self) -> None:
        """Read all counters."""
        self._read.append(tuple(counter.read() for counter in self._counters))

    def joules(self) -> list[float]:
        """Return the sum over the counters for each span."""
        if len(self._read) < 2:
            return []
        spans = [
            [step * counter.unit_j for step in consumed(list(values), counter.modulus)]
            for counter, values in zip(self._counters, zip(*self._read, strict=True), strict=True)
        ]
        still = [counter.name for counter, each in zip(self._counters, spans, strict=True) if each and not any(each)]
        if still:  # as in virtual machines that show a counter and do not run it
            raise NotSupported(f"{self.source}: {', '.join(still)} stood still during the measurement")
        return [sum(parts) for parts in zip(*spans, strict=True)]

    def close(self) -> None:
        """Release what the counters are read from."""
        self._close()
