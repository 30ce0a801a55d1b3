"""Energy from an Otii Arc or Ace, through the TCP server of its maker's program."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.energy_meter import EnergyMeter
from nnpipe.core.errors import NotSupported, TransportError
from nnpipe.formats.power_trace import PowerTrace
from nnpipe.meters._traced import TracedReading

_POWER = "mp"  # main power in watts
_INTERVAL_S = 0.00025
_CONNECT_S = 5


class OtiiMeter(EnergyMeter):
    """An Otii Arc or Ace on the supply of the device; the maker's program or its server must run.

    Voltage and current limits are those that are set in the program; nnpipe does not change what the device gets.
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
            otii = client.connect(host=self.otii_host, port=self.otii_port, try_for_seconds=_CONNECT_S)
        except Exception as error:  # the package declares no common base of its errors
            raise TransportError(f"no Otii server answers at {self.otii_host}:{self.otii_port}: {error}") from None
        try:
            devices = [each for each in otii.get_devices() if self.otii_device in ("", each.name)]
            if len(devices) != 1:
                names = ", ".join(each.name for each in otii.get_devices()) or "none"
                raise NotSupported(f"OtiiMeter: say which instrument by otii_device; connected: {names}")
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
    """A recording of power in an Otii project; ``device`` and ``project`` are objects of ``otii_tcp_client``."""

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
        count = 0 if recording is None else recording.get_channel_data_count(self._device.id, _POWER)
        if not count:
            raise NotSupported("OtiiMeter: the recording holds no power; is the instrument's main output on?")
        found = recording.get_channel_data(self._device.id, _POWER, 0, count)
        start = self._began_s if recording.start_time is None else recording.start_time.timestamp()
        watts = np.array(found["values"], np.float64)
        times = start + float(found["timestamp"]) + float(found["interval"]) * np.arange(len(watts))
        return PowerTrace(times, watts)
