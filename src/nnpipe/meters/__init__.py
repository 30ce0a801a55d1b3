"""Energy meters, which say how many joules a machine or a board takes.

This package offers the classes; each is imported when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_getattr

if TYPE_CHECKING:
    from nnpipe.meters.joulescope import JoulescopeMeter as JoulescopeMeter
    from nnpipe.meters.machine import MachineMeter as MachineMeter
    from nnpipe.meters.nvml import NVMLMeter as NVMLMeter
    from nnpipe.meters.otii import OtiiMeter as OtiiMeter
    from nnpipe.meters.power_trace import PowerTraceMeter as PowerTraceMeter
    from nnpipe.meters.rapl import RAPLMeter as RAPLMeter
    from nnpipe.meters.serial_line import SerialMeter as SerialMeter

__getattr__ = lazy_getattr(
    __name__,
    {
        "joulescope": ("JoulescopeMeter",),
        "machine": ("MachineMeter",),
        "nvml": ("NVMLMeter",),
        "otii": ("OtiiMeter",),
        "power_trace": ("PowerTraceMeter",),
        "rapl": ("RAPLMeter",),
        "serial_line": ("SerialMeter",),
    },
)
