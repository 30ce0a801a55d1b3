"""Energy meters, which say how many joules a machine or a board takes.

This package offers the classes; each is imported when it is first used.
"""

from typing import TYPE_CHECKING

from nnpipe.core.lazy_exports import lazy_getattr

if TYPE_CHECKING:
    from nnpipe.meters.machine import MachineMeter as MachineMeter
    from nnpipe.meters.machine import NVMLMeter as NVMLMeter
    from nnpipe.meters.machine import RAPLMeter as RAPLMeter
    from nnpipe.meters.power_trace import JoulescopeMeter as JoulescopeMeter
    from nnpipe.meters.power_trace import OtiiMeter as OtiiMeter
    from nnpipe.meters.power_trace import PowerTraceMeter as PowerTraceMeter
    from nnpipe.meters.power_trace import SerialMeter as SerialMeter

__getattr__ = lazy_getattr(
    __name__,
    {
        "machine": ("MachineMeter", "NVMLMeter", "RAPLMeter"),
        "power_trace": ("JoulescopeMeter", "OtiiMeter", "PowerTraceMeter", "SerialMeter"),
    },
)
