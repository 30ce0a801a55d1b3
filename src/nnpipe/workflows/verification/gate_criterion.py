"""A criterion of a gate: it holds, it fails, or the data cannot decide."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from nnpipe.measuring.comparison import Comparison
from nnpipe.measuring.run import Run
from nnpipe.measuring.signed_rank import Centre

Status = Literal["pass", "fail", "undecided"]
Unit = Literal["%", "points", ""]
_MOST = 1e9  # of additional calls or samples that a message asks for


@dataclass(frozen=True)
class GatedCandidate:
    """A candidate in a result file; ``whole`` is its comparison, if it took part in one."""

    name: str
    run: Run
    whole: Comparison | None = None

    def is_same_result(self, other: GatedCandidate) -> bool:
        """Return whether both are one measurement, so that nothing differs between them."""
        if self.run is other.run:
            return True
        named = ("title", "created")
        alike = all(getattr(self.run, name) == getattr(other.run, name) for name in named)
        return alike and self.run.to_json() == other.run.to_json()


@dataclass(frozen=True)
class Criterion:
    """A metric that must not get worse by more than a limit.

    Attributes
    ----------
    name, limit
        The metric, and the greatest allowed change, as a share of the time or of the samples, or in the metric's unit.
    status
        ``"pass"``, ``"fail"`` or ``"undecided"``.
    value, interval
        The change and its interval; ``None`` if unknown.
    basis
        The data that decided it, or the reason why it is undecided.
    more
        What would decide it, as text; empty if it is decided, or nothing would.
    unit
        The unit in text: ``"%"`` of a time, ``"points"`` of a percentage, or none for metrics that are no shares.
    found
        What was found and what is wanted, as text; empty if it follows from the numbers.
    blocks
        Whether it never counts as passed, since an answer is missing that no more data would give.
    """

    name: str
    limit: float
    status: Status
    value: float | None
    interval: tuple[float, float] | None
    basis: str
    more: str = ""
    unit: Unit = "%"
    found: str = ""
    blocks: bool = False

    def __str__(self) -> str:
        """Return the change and the limit in one line."""
        if self.found:
            return f"{self.status}: {self.found} ({self.basis})"
        unit = f" {self.unit}" if self.unit else ""
        allowed = f"at most {100 * self.limit if self.unit else self.limit:g}{unit} allowed"
        if self.value is None:
            found = "cannot be told"
        else:
            found = f"{self._number(self.value)}{unit}"
            if self.interval is not None:
                found += f" [{self._number(self.interval[0])}, {self._number(self.interval[1])}]"
        return f"{self.status}: {self.name} {found}, {allowed} ({self.basis})"

    def _number(self, value: float) -> str:
        return f"{100 * value:.2f}".replace("-0.00", "0.00") if self.unit else f"{value:.4g}"

    def to_json(self) -> dict[str, Any]:
        """Return the criterion as JSON can hold it."""
        return {
            "name": self.name, "limit": self.limit, "status": self.status, "value": self.value,
            "interval": self.interval and list(self.interval), "basis": self.basis, "more": self.more,
        }  # fmt: skip


def same_result(name: str, limit: float, unit: Unit = "%") -> Criterion:
    """Return the criterion of a result that is compared with itself."""
    return decided(name, limit, Centre(0.0, (0.0, 0.0), 1, 1), "the same result", "results", unit)


def decided(name: str, limit: float, found: Centre, basis: str, counted: str, unit: Unit = "%") -> Criterion:
    """Return the criterion decided by an interval of logarithms of ratios, or of differences."""
    outer = math.log1p if unit == "%" else float
    inner = math.expm1 if unit == "%" else float
    allowed, value = outer(limit), inner(found.value)
    if found.interval is None:
        return Criterion(
            name, limit, "undecided", value, None, basis, f"{found.needed - found.number:,} more {counted}", unit
        )
    low, high = found.interval
    interval = inner(low), inner(high)
    if high <= allowed:
        return Criterion(name, limit, "pass", value, interval, basis, unit=unit)
    if low > allowed:
        return Criterion(name, limit, "fail", value, interval, basis, unit=unit)
    # Intervals shrink with the square root of the number.
    distance = abs(allowed - found.value)
    needed = found.number * (found.reach / distance) ** 2 if distance else math.inf
    more = f"about {max(1, math.ceil(needed) - found.number):,} more {counted}" if needed < _MOST else ""
    return Criterion(name, limit, "undecided", value, interval, basis, more, unit)
