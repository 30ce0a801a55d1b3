"""All energy counters of this machine together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from nnpipe.core.arguments import argument
from nnpipe.core.energy_meter import EnergyMeter, MeterReading, counter_differences
from nnpipe.core.errors import ConfigError, NNPipeError, NotSupported


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

    A counter may begin again once between two marks, which are seconds apart: the smallest ones do
    it each minute.
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
            [step * counter.unit_j for step in counter_differences(list(values), counter.modulus)]
            for counter, values in zip(self._counters, zip(*self._read, strict=True), strict=True)
        ]
        still = [
            counter.name
            for counter, each in zip(self._counters, spans, strict=True)
            if each and not any(each)
        ]
        if still:  # as in virtual machines that show a counter and do not run it
            raise NotSupported(
                f"{self.source}: {', '.join(still)} stood still during the measurement"
            )
        return [sum(parts) for parts in zip(*spans, strict=True)]

    def close(self) -> None:
        """Release what the counters are read from."""
        self._close()


_RESOLUTION_S = 0.1  # the counters are updated every 20 to 100 ms


class NVMLMeter(EnergyMeter):
    """The counters of NVIDIA GPUs, from the driver (NVML); GPUs have them since Volta.

    They hold the whole board with its memory, whatever process uses it.
    """

    requires = ("pynvml",)
    install = "nnpipe[gpu]"
    measures_host: ClassVar[bool] = True

    gpu: int | None = argument(
        None, help="the number of the GPU; by default all are added up", minimum=0
    )

    def _open(self) -> CounterReading:
        counters, close = self.open_counters()
        return CounterReading("NVML", counters, _RESOLUTION_S, close)

    def open_counters(self) -> tuple[list[EnergyCounter], Callable[[], object]]:
        """Return the counters, and what to call to release the driver.

        Raises
        ------
        NotSupported
            If there is no driver, no such GPU, or a GPU has no counter.
        """
        import pynvml

        with contextlib.ExitStack() as stack:
            try:
                pynvml.nvmlInit()
                stack.callback(pynvml.nvmlShutdown)
                count = pynvml.nvmlDeviceGetCount()
            except pynvml.NVMLError as error:
                raise NotSupported(f"NVML: no GPU can be read: {error}") from None
            chosen = range(count) if self.gpu is None else [self.gpu]
            if not count or max(chosen) >= count:
                raise NotSupported(f"NVML: there is no GPU {self.gpu or 0}, but {count} of them")
            found = []
            for number in chosen:
                try:
                    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
                    pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
                    name = pynvml.nvmlDeviceGetName(handle)
                except pynvml.NVMLError as error:
                    raise NotSupported(
                        f"NVML: GPU {number} has no energy counter: {error}"
                    ) from None
                name = name.decode(errors="replace") if isinstance(name, bytes) else name
                found.append(_create_counter(f"GPU {number} ({name})", handle))
            return found, stack.pop_all().close


def _create_counter(name: str, handle: object) -> EnergyCounter:
    import pynvml

    def read() -> int:
        try:
            return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        except pynvml.NVMLError as error:
            raise NotSupported(f"NVML: {name} can no longer be read: {error}") from None

    return EnergyCounter(name, read, 1e-3)


_RAPL_RESOLUTION_S = 0.001  # the counters are updated about every millisecond
_MOST_ZONES = 256


class RAPLMeter(EnergyMeter):
    """The counters of the processor's packages (RAPL), from Linux's powercap tree.

    They hold all cores, caches and the built-in graphics of each package, whatever process uses
    them, and no board, disk or fan.  Linux lets root alone read them, since they reveal what others
    compute.
    """

    measures_host: ClassVar[bool] = True

    domains: tuple[str, ...] = argument(
        ("package",),
        help="which zones to add up, by the beginning of their names: package, dram, psys",
    )
    powercap_root: Path = argument(
        Path("/sys/class/powercap"), help="the powercap tree", metavar="FOLDER"
    )

    def validate(self) -> None:
        """Raise :class:`ConfigError` if a zone would be counted twice."""
        if not self.domains:
            raise ConfigError("RAPLMeter: name at least one domain, such as package")
        inner = {"package": ("core", "uncore"), "psys": ("package", "core", "uncore", "dram")}
        for outer, parts in inner.items():
            if twice := set(self.domains) & set(parts) if outer in self.domains else set():
                raise ConfigError(
                    f"RAPLMeter: {outer} contains {', '.join(sorted(twice))}; name one of them"
                )

    def _open(self) -> CounterReading:
        return CounterReading("RAPL", self.find_counters(), _RAPL_RESOLUTION_S)

    def find_counters(self) -> list[EnergyCounter]:
        """Return the counters of the chosen zones.

        Raises
        ------
        NotSupported
            If there are none, or they may not be read.
        """
        root = self.powercap_root
        zones = [
            (name, folder) for name, folder in _iterate_zones(root) if name.startswith(self.domains)
        ]
        if not zones:
            there = ", ".join(sorted({name for name, _ in _iterate_zones(root)}))
            why = f"{root} has the zones {there}" if there else f"{root} has no energy counters"
            hint = (
                ""
                if there
                else "; virtual machines, and processors other than of Intel and AMD, show none"
            )
            raise NotSupported(f"RAPL: no zone {' or '.join(self.domains)}: {why}{hint}")
        twice = {name for name, _ in zones if [other for other, _ in zones].count(name) > 1}
        return [
            _create_rapl_counter(f"{name} of {folder.name}" if name in twice else name, folder)
            for name, folder in zones
        ]


def _iterate_zones(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and folder of each zone of energy."""
    try:
        folders = sorted(root.iterdir())[:_MOST_ZONES]
    except OSError:
        return
    for folder in folders:
        # intel-rapl-mmio shows the same package a second time.
        if (
            "-rapl:" in folder.name
            and "mmio" not in folder.name
            and (folder / "energy_uj").exists()
        ):
            try:
                yield (folder / "name").read_text("ascii", "replace").strip()[:40], folder
            except OSError:
                continue


def _create_rapl_counter(name: str, folder: Path) -> EnergyCounter:
    file = folder / "energy_uj"

    def read() -> int:
        try:
            return int(file.read_text("ascii"))
        except PermissionError:
            raise NotSupported(
                f"RAPL: only root may read {file}: run as root, or let your group read it "
                f"(sudo chgrp GROUP {file} && sudo chmod g+r {file})"
            ) from None
        except (OSError, ValueError) as error:
            raise NotSupported(f"RAPL: {file} cannot be read: {error}") from None

    read()
    try:
        # The counter begins again at this value; its own steps are 15 to 61 microjoules.
        modulus = int((folder / "max_energy_range_uj").read_text("ascii"))
    except (OSError, ValueError) as error:
        raise NotSupported(
            f"RAPL: {folder / 'max_energy_range_uj'} cannot be read: {error}"
        ) from None
    if modulus < 1:
        raise NotSupported(f"RAPL: {folder / 'max_energy_range_uj'} is {modulus}")
    return EnergyCounter(name, read, 1e-6, modulus)


class MachineMeter(EnergyMeter):
    """All energy counters of this machine: those of the processor's packages (RAPL) and of NVIDIA
    GPUs (NVML).

    A sensor that cannot be read is left out; the name of the source says which are in the sum.
    """

    measures_host: ClassVar[bool] = True

    def _open(self) -> MeterReading:
        found: list[MeterReading] = []
        reasons: list[str] = []
        with contextlib.ExitStack() as stack:
            for meter in (RAPLMeter(), NVMLMeter()):
                try:
                    found.append(stack.enter_context(meter.open()))
                except NNPipeError as error:
                    reasons.append(str(error))
            if not found:
                raise NotSupported(
                    f"this machine has no energy counter that can be read: {'; '.join(reasons)}"
                )
            return _SummedReading(found, stack.pop_all())


class _SummedReading(MeterReading):
    """The sum of several readings."""

    def __init__(self, parts: list[MeterReading], stack: contextlib.ExitStack) -> None:
        self.source = " + ".join(part.source for part in parts)
        self.resolution_s = max(part.resolution_s for part in parts)
        self._parts = parts
        self._stack = stack

    def mark(self) -> None:
        for part in self._parts:
            part.mark()

    def joules(self) -> list[float]:
        return [sum(spans) for spans in zip(*(part.joules() for part in self._parts), strict=True)]

    def close(self) -> None:
        self._stack.close()
