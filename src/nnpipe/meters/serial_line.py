"""Energy from a sensor of voltage and current on a serial line, such as an INA219 behind a microcontroller.

The microcontroller sends a line for each sample, in ASCII, with its own clock, and ends each by a line feed::

    <microseconds>,<volts>,<amperes>

such as ``1048576,5.012,0.2315``.  Microseconds count from any moment and may begin again at 2 to the power of 32, as
``micros()`` of Arduino does.  Lines that begin with ``#`` are comments.  A line that is cut or damaged is dropped.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.energy_meter import EnergyMeter
from nnpipe.core.errors import ArtifactError, TransportError
from nnpipe.formats.power_trace import PowerTrace
from nnpipe.meters._traced import TracedReading

_LINE = re.compile(rb"(\d{1,20}),(-?\d{1,6}(?:\.\d{1,9})?),(-?\d{1,6}(?:\.\d{1,9})?)\r?")
_TURN_US = 1 << 32
_LONGEST_LINE = 200
_MOST_SAMPLES = 50_000_000
_POLL_S = 0.05
_FIRST_S = 3.0  # opening the port restarts many boards


class SerialMeter(EnergyMeter):
    """A sensor of voltage and current on a serial line, such as an INA219 behind a microcontroller.

    It sends a line ``MICROSECONDS,VOLTS,AMPERES`` for each sample.
    """

    requires = ("serial",)
    install = "nnpipe[serial]"

    meter_port: str = argument(help="the sensor's serial port, such as /dev/ttyACM0 or COM4")
    meter_baud_rate: int = argument(115_200, help="bits a second of the sensor's serial port", minimum=50)

    def _open(self) -> TracedReading:
        import serial

        try:
            port: Any = serial.Serial(self.meter_port, self.meter_baud_rate, timeout=_POLL_S)
        except (OSError, ValueError) as error:
            raise TransportError(f"cannot open the serial port {self.meter_port}: {error}") from None
        line = SampleLine(lambda: port.read(max(port.in_waiting, 1)))
        line.start()
        try:
            line.wait_for_samples(_FIRST_S)
        except BaseException:
            line.stop()
            port.close()
            raise

        def close() -> None:
            line.stop()
            with contextlib.suppress(OSError):
                port.close()

        return TracedReading(f"serial sensor at {self.meter_port}", line.interval_s, line.trace, close)


class SampleLine:
    """Reads samples from a line in a thread of its own.

    Parameters
    ----------
    read
        Returns the bytes that have arrived, after a short wait for some.
    clock
        The time of day in seconds.
    """

    def __init__(self, read: Callable[[], bytes], clock: Callable[[], float] = time.time) -> None:
        self._read, self._clock = read, clock
        self._rest = b""
        self._turns, self._last_us = 0, -1
        self._columns = tuple(array("d") for _ in range(4))  # seconds on its clock and on ours, volts, amperes
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_reading, name="nnpipe-meter", daemon=True)

    @property
    def interval_s(self) -> float:
        """Return the mean time between two samples."""
        times = self._columns[0]
        return max((times[-1] - times[0]) / (len(times) - 1), 1e-6) if len(times) > 1 else math.inf

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def wait_for_samples(self, seconds: float) -> None:
        """Wait for the first samples; raise :class:`TransportError` if none come."""
        end = time.monotonic() + seconds
        while len(self._columns[3]) < 3:
            if self._error is not None or time.monotonic() > end:
                why = f": {self._error}" if self._error else f" within {seconds:g} s"
                raise TransportError(f"the meter sent no line MICROSECONDS,VOLTS,AMPERES{why}")
            time.sleep(_POLL_S)

    def take(self, data: bytes) -> None:
        """Take bytes that have just arrived."""
        now = self._clock()
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_LONGEST_LINE:]
        for line in lines:
            found = _LINE.fullmatch(line)
            if found is None:
                continue
            ticks = int(found[1])
            if self._last_us - ticks > _TURN_US // 2:
                self._turns += 1
            self._last_us = ticks
            values = ((ticks + self._turns * _TURN_US) / 1e6, now, float(found[2]), float(found[3]))
            for column, value in zip(self._columns, values, strict=True):
                column.append(value)

    def trace(self) -> PowerTrace:
        """Return what has arrived until now, with times in seconds since 1970.

        The sensor's clock tells the times between samples.  It is set by the sample that took least time to arrive.

        Raises
        ------
        TransportError
            If the line failed.
        """
        time.sleep(3 * self.interval_s + _POLL_S)  # for the sample after the last mark
        if self._error is not None:
            raise TransportError(f"the meter's line failed: {self._error}")
        count = len(self._columns[3])
        own, arrived, volts, amperes = (np.array(column[:count], np.float64) for column in self._columns)
        if (np.diff(own) < 0).any():
            raise ArtifactError("the meter's clock was set back: did the board restart?")
        return PowerTrace(own + float(np.min(arrived - own)), volts * amperes)

    def _keep_reading(self) -> None:
        try:
            while not self._stop.is_set():
                if data := self._read():
                    self.take(data)
                if len(self._columns[3]) > _MOST_SAMPLES:
                    raise ArtifactError(f"more than {_MOST_SAMPLES:,} samples")
        except Exception as error:
            self._error = error
