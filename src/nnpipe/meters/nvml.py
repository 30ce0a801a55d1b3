"""The energy counters of NVIDIA GPUs, through the driver's library."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import ClassVar

from nnpipe.core.arguments import argument
from nnpipe.core.energy_meter import EnergyMeter
from nnpipe.core.errors import NotSupported
from nnpipe.meters._counters import CounterReading, EnergyCounter

_RESOLUTION_S = 0.1  # the counters are updated every 20 to 100 ms


class NVMLMeter(EnergyMeter):
    """The counters of NVIDIA GPUs, from the driver (NVML); GPUs have them since Volta.

    They hold the whole board with its memory, whatever process uses it.
    """

    requires = ("pynvml",)
    install = "nnpipe[gpu]"
    measures_host: ClassVar[bool] = True

    gpu: int | None = argument(None, help="the number of the GPU; by default all are added up", minimum=0)

    def _open(self) -> CounterReading:
        counters, close = self.counters()
        return CounterReading("NVML", counters, _RESOLUTION_S, close)

    def counters(self) -> tuple[list[EnergyCounter], Callable[[], object]]:
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
                    raise NotSupported(f"NVML: GPU {number} has no energy counter: {error}") from None
                name = name.decode(errors="replace") if isinstance(name, bytes) else name
                found.append(_counter(f"GPU {number} ({name})", handle))
            return found, stack.pop_all().close


def _counter(name: str, handle: object) -> EnergyCounter:
    import pynvml

    def read() -> int:
        try:
            return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        except pynvml.NVMLError as error:
            raise NotSupported(f"NVML: {name} can no longer be read: {error}") from None

    return EnergyCounter(name, read, 1e-3)
