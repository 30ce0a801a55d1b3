"""The energy counters of processors (RAPL), as Linux shows them in its powercap tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from nnpipe.core.arguments import argument
from nnpipe.core.energy_meter import EnergyMeter
from nnpipe.core.errors import ConfigError, NotSupported
from nnpipe.meters._counters import CounterReading, EnergyCounter

_RESOLUTION_S = 0.001  # the counters are updated about every millisecond
_MOST_ZONES = 256


class RAPLMeter(EnergyMeter):
    """The counters of the processor's packages (RAPL), from Linux's powercap tree.

    They hold all cores, caches and the built-in graphics of each package, whatever process uses them, and no board,
    disk or fan.  Linux lets root alone read them, since they reveal what others compute.
    """

    measures_host: ClassVar[bool] = True

    domains: tuple[str, ...] = argument(
        ("package",), help="which zones to add up, by the beginning of their names: package, dram, psys"
    )
    powercap_root: Path = argument(Path("/sys/class/powercap"), help="the powercap tree", metavar="FOLDER")

    def validate(self) -> None:
        """Raise :class:`ConfigError` if a zone would be counted twice."""
        if not self.domains:
            raise ConfigError("RAPLMeter: name at least one domain, such as package")
        inner = {"package": ("core", "uncore"), "psys": ("package", "core", "uncore", "dram")}
        for outer, parts in inner.items():
            if twice := set(self.domains) & set(parts) if outer in self.domains else set():
                raise ConfigError(f"RAPLMeter: {outer} contains {', '.join(sorted(twice))}; name one of them")

    def _open(self) -> CounterReading:
        return CounterReading("RAPL", self.counters(), _RESOLUTION_S)

    def counters(self) -> list[EnergyCounter]:
        """Return the counters of the chosen zones.

        Raises
        ------
        NotSupported
            If there are none, or they may not be read.
        """
        root = self.powercap_root
        zones = [(name, folder) for name, folder in _zones(root) if name.startswith(self.domains)]
        if not zones:
            there = ", ".join(sorted({name for name, _ in _zones(root)}))
            why = f"{root} has the zones {there}" if there else f"{root} has no energy counters"
            hint = "" if there else "; virtual machines, and processors other than of Intel and AMD, show none"
            raise NotSupported(f"RAPL: no zone {' or '.join(self.domains)}: {why}{hint}")
        twice = {name for name, _ in zones if [other for other, _ in zones].count(name) > 1}
        return [_counter(f"{name} of {folder.name}" if name in twice else name, folder) for name, folder in zones]


def _zones(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and folder of each zone of energy."""
    try:
        folders = sorted(root.iterdir())[:_MOST_ZONES]
    except OSError:
        return
    for folder in folders:
        # intel-rapl-mmio shows the same package a second time.
        if "-rapl:" in folder.name and "mmio" not in folder.name and (folder / "energy_uj").exists():
            try:
                yield (folder / "name").read_text("ascii", "replace").strip()[:40], folder
            except OSError:
                continue


def _counter(name: str, folder: Path) -> EnergyCounter:
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
        raise NotSupported(f"RAPL: {folder / 'max_energy_range_uj'} cannot be read: {error}") from None
    if modulus < 1:
        raise NotSupported(f"RAPL: {folder / 'max_energy_range_uj'} is {modulus}")
    return EnergyCounter(name, read, 1e-6, modulus)
