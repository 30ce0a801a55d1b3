"""Energy from a Joulescope, through its maker's driver."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.energy_meter import EnergyMeter
from nnpipe.core.errors import NotSupported
from nnpipe.formats.power_trace import PowerTrace
from nnpipe.meters._traced import TracedReading

_RATES = {"js110": 2_000_000, "js220": 1_000_000, "js320": 1_000_000}  # samples a second


class JoulescopeMeter(EnergyMeter):
    """A Joulescope (JS110, JS220, JS320) on the supply of the device.

    The statistics that the instrument sends hold the mean power of each interval, so nothing between them is lost.
    """

    requires = ("pyjoulescope_driver",)
    install = "pyjoulescope_driver"

    joulescope: str = argument("", help="the path of the instrument, if several are connected, such as u/js220/000415")
    statistics_rate: float = argument(50.0, help="statistics a second", minimum=1.0, maximum=1000.0)

    def _open(self) -> TracedReading:
        from pyjoulescope_driver import Driver

        driver = Driver()
        try:
            paths = driver.device_paths()
            device = self.joulescope or (paths[0] if len(paths) == 1 else "")
            model = next((model for model in _RATES if model in device), "")
            if device not in paths or not model:
                there = ", ".join(paths) or "none"
                raise NotSupported(f"JoulescopeMeter: say which instrument by joulescope; connected: {there}")
            samples = StatisticsTrace(1 / self.statistics_rate)
            driver.open(device)
            if model == "js110":
                for signal in "ivp":
                    driver.publish(f"{device}/s/{signal}/ctrl", "on")
            driver.publish(f"{device}/s/i/range/{'select' if model == 'js110' else 'mode'}", "auto")
            driver.publish(f"{device}/s/stats/scnt", round(_RATES[model] / self.statistics_rate))
            driver.publish(f"{device}/s/stats/ctrl", "on" if model == "js110" else 1)
            driver.subscribe(f"{device}/s/stats/value", "pub", samples.take)
        except BaseException:
            driver.finalize()
            raise
        return TracedReading(f"Joulescope {device}", 1 / self.statistics_rate, samples.trace, driver.finalize)


class StatisticsTrace:
    """Collects the statistics of a Joulescope: the mean power of each interval.

    Parameters
    ----------
    interval_s
        The length of an interval.  Its power counts for its middle.
    clock
        The time of day in seconds.
    """

    def __init__(self, interval_s: float, clock: Callable[[], float] = time.time) -> None:
        self._interval_s, self._clock = interval_s, clock
        self._times, self._watts = array("d"), array("d")
        self._lock = threading.Lock()

    def take(self, topic: str, value: Mapping[str, Any]) -> None:
        """Take one message of the driver, at the end of its interval."""
        power = float(value["signals"]["power"]["avg"]["value"])
        with self._lock:
            self._times.append(self._clock() - self._interval_s / 2)
            self._watts.append(power)

    def trace(self) -> PowerTrace:
        """Return the power over the time until now."""
        time.sleep(3 * self._interval_s)  # for the interval of the last mark
        with self._lock:
            return PowerTrace(np.array(self._times, np.float64), np.array(self._watts, np.float64))
