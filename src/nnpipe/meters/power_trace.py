"""Energy from traces of power: files, Joulescope, Otii, and sensors on a serial line."""

from __future__ import annotations

import contextlib
import math
import re
import threading
import time
from array import array
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.energy_meter import EnergyMeter, MeterReading
from nnpipe.core.errors import ArtifactError, NotSupported, TransportError
from nnpipe.formats.power_trace import PowerTrace, read_power_trace


class TracedReading(MeterReading):
    """Marks are times of day; the trace is fetched when the energy is asked for.

    Parameters
    ----------
    source, resolution_s
        As of every reading.
    trace
        Returns the trace, with times in seconds since 1970; it is called once all marks are set.
    close
        Releases the instrument.
    clock
        The time of day in seconds.
    """

    def __init__(
        self,
        source: str,
        resolution_s: float,
        trace: Callable[[], PowerTrace],
        close: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.source, self.resolution_s = source, resolution_s
        self._trace, self._close, self._clock = trace, close, clock
        self._marks: list[float] = []

    def mark(self) -> None:
        """Note the time of day."""
        self._marks.append(self._clock())

    def joules(self) -> list[float]:
        """Return the energy of each span in the trace."""
        if len(self._marks) < 2:
            return []
        trace = self._trace()
        return [trace.compute_energy(begin, end) for begin, end in pairwise(self._marks)]

    def close(self) -> None:
        """Release the instrument."""
        self._close()


class PowerTraceMeter(EnergyMeter):
    """A CSV file of power over time, which another program writes while nnpipe measures.

    Its first line names the columns: ``time`` in seconds since 1970, and ``power`` in watts, or
    ``voltage`` and ``current`` in volts and amperes; ``time_ms``, ``power_mw``, ``current_ma`` and
    the like are known, too.
    """

    trace_file: Path = argument(
        help="the file, which must reach to the end of the measurement", metavar="FILE.csv"
    )
    clock_offset: float = argument(
        0.0, help="seconds to add to the file's times to get this machine's time of day"
    )
    trace_interval: float = argument(
        0.001, help="seconds between two samples", minimum=1e-7, maximum=60.0
    )
    trace_wait: float = argument(
        2.0,
        help="seconds to wait after measuring for the last samples to be written",
        minimum=0.0,
        maximum=3600.0,
    )

    def _open(self) -> TracedReading:
        if not self.trace_file.parent.is_dir():
            raise NotSupported(
                f"{self.trace_file}: there is no such folder, so nothing writes a trace there"
            )
        return TracedReading(f"trace {self.trace_file.name}", self.trace_interval, self._read)

    def _read(self) -> PowerTrace:
        time.sleep(self.trace_wait)
        found = read_power_trace(self.trace_file)
        return (
            PowerTrace(found.time_s + self.clock_offset, found.watts, found.trigger)
            if self.clock_offset
            else found
        )


_RATES = {"js110": 2_000_000, "js220": 1_000_000, "js320": 1_000_000}  # samples a second


class JoulescopeMeter(EnergyMeter):
    """A Joulescope (JS110, JS220, JS320) on the supply of the device.

    The statistics that the instrument sends hold the mean power of each interval, so nothing
    between them is lost.
    """

    requires = ("pyjoulescope_driver",)
    install = "pyjoulescope_driver"

    joulescope: str = argument(
        "", help="the path of the instrument, if several are connected, such as u/js220/000415"
    )
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
                raise NotSupported(
                    f"JoulescopeMeter: say which instrument by joulescope; connected: {there}"
                )
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
        return TracedReading(
            f"Joulescope {device}", 1 / self.statistics_rate, samples.trace, driver.finalize
        )


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


_POWER = "mp"  # main power in watts
_INTERVAL_S = 0.00025
_CONNECT_S = 5


class OtiiMeter(EnergyMeter):
    """An Otii Arc or Ace on the supply of the device; the maker's program or its server must run.

    Voltage and current limits are those that are set in the program; nnpipe does not change what
    the device gets.
    """

    requires = ("otii_tcp_client",)
    install = "otii_tcp_client"

    otii_host: str = argument("127.0.0.1", help="where Otii's TCP server runs")
    otii_port: int = argument(1905, help="the port of Otii's TCP server", minimum=1, maximum=65535)
    otii_device: str = argument("", help="the name of the instrument, if several are connected")

    def _open(self) -> TracedReading:
        from otii_tcp_client.otii_client import OtiiClient

        client = OtiiClient()
        try:
            otii = client.connect(
                host=self.otii_host, port=self.otii_port, try_for_seconds=_CONNECT_S
            )
        except Exception as error:  # the package declares no common base of its errors
            raise TransportError(
                f"no Otii server answers at {self.otii_host}:{self.otii_port}: {error}"
            ) from None
        try:
            devices = [each for each in otii.get_devices() if self.otii_device in ("", each.name)]
            if len(devices) != 1:
                names = ", ".join(each.name for each in otii.get_devices()) or "none"
                raise NotSupported(
                    f"OtiiMeter: say which instrument by otii_device; connected: {names}"
                )
            recorder = OtiiRecording(devices[0], otii.get_active_project())
            recorder.start()
        except BaseException:
            client.disconnect()
            raise

        def close() -> None:
            recorder.stop()
            with contextlib.suppress(Exception):
                client.disconnect()

        return TracedReading(f"Otii {devices[0].name}", _INTERVAL_S, recorder.trace, close)


class OtiiRecording:
    """A recording of power in an Otii project; ``device`` and ``project`` are objects of
    ``otii_tcp_client``.
    """

    def __init__(self, device: Any, project: Any) -> None:
        self._device, self._project = device, project
        self._began_s = 0.0
        self._runs = False

    def start(self) -> None:
        """Begin to record."""
        self._device.add_to_project()
        self._device.enable_channel(_POWER, True)
        before = time.time()
        self._project.start_recording()
        self._began_s = (before + time.time()) / 2
        self._runs = True

    def stop(self) -> None:
        """End the recording; once is enough."""
        if self._runs:
            self._runs = False
            self._project.stop_recording()

    def trace(self) -> PowerTrace:
        """End the recording, and return its power over time, in seconds since 1970."""
        time.sleep(0.1)
        self.stop()
        recording = self._project.get_last_recording()
        count = (
            0 if recording is None else recording.get_channel_data_count(self._device.id, _POWER)
        )
        if not count:
            raise NotSupported(
                "OtiiMeter: the recording holds no power; is the instrument's main output on?"
            )
        found = recording.get_channel_data(self._device.id, _POWER, 0, count)
        start = self._began_s if recording.start_time is None else recording.start_time.timestamp()
        watts = np.array(found["values"], np.float64)
        times = start + float(found["timestamp"]) + float(found["interval"]) * np.arange(len(watts))
        return PowerTrace(times, watts)


# Energy from a sensor of voltage and current on a serial line, such as an INA219 behind a
# microcontroller.
#
# The microcontroller sends a line for each sample, in ASCII, with its own clock, and ends each by a
# line feed::
#
#     <microseconds>,<volts>,<amperes>
#
# such as ``1048576,5.012,0.2315``.  Microseconds count from any moment and may begin again at 2 to
# the power of 32, as ``micros()`` of Arduino does.  Lines that begin with ``#`` are comments.  A
# line that is cut or damaged is dropped.

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
    meter_baud_rate: int = argument(
        115_200, help="bits a second of the sensor's serial port", minimum=50
    )

    def _open(self) -> TracedReading:
        import serial

        try:
            port: Any = serial.Serial(self.meter_port, self.meter_baud_rate, timeout=_POLL_S)
        except (OSError, ValueError) as error:
            raise TransportError(
                f"cannot open the serial port {self.meter_port}: {error}"
            ) from None
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

        return TracedReading(
            f"serial sensor at {self.meter_port}", line.interval_s, line.trace, close
        )


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
        # seconds on its clock and on ours, volts, amperes
        self._columns = tuple(array("d") for _ in range(4))
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read_samples, name="nnpipe-meter", daemon=True)

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

        The sensor's clock tells the times between samples.  It is set by the sample that took least
        time to arrive.

        Raises
        ------
        TransportError
            If the line failed.
        """
        time.sleep(3 * self.interval_s + _POLL_S)  # for the sample after the last mark
        if self._error is not None:
            raise TransportError(f"the meter's line failed: {self._error}")
        count = len(self._columns[3])
        own, arrived, volts, amperes = (
            np.array(column[:count], np.float64) for column in self._columns
        )
        if (np.diff(own) < 0).any():
            raise ArtifactError("the meter's clock was set back: did the board restart?")
        return PowerTrace(own + float(np.min(arrived - own)), volts * amperes)

    def _read_samples(self) -> None:
        try:
            while not self._stop.is_set():
                if data := self._read():
                    self.take(data)
                if len(self._columns[3]) > _MOST_SAMPLES:
                    raise ArtifactError(f"more than {_MOST_SAMPLES:,} samples")
        except Exception as error:
            self._error = error
