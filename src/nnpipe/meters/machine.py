"""All energy counters of this machine together."""

from __future__ import annotations

import contextlib
from typing import ClassVar

from nnpipe.core.energy_meter import EnergyMeter, MeterReading
from nnpipe.core.errors import NNPipeError, NotSupported
from nnpipe.meters.nvml import NVMLMeter
from nnpipe.meters.rapl import RAPLMeter


class MachineMeter(EnergyMeter):
    """All energy counters of this machine: those of the processor's packages (RAPL) and of NVIDIA GPUs (NVML).

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
                raise NotSupported(f"this machine has no energy counter that can be read: {'; '.join(reasons)}")
            return _Sum(found, stack.pop_all())


class _Sum(MeterReading):
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
