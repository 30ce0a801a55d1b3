"""Sensors of energy that tests set up: files and modules that behave as the real ones do, with
known energies.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import tty
import types
from collections.abc import Callable
from datetime import datetime, timezone
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

Step = Callable[[], object]
"""Lets energy be taken."""


def powercap(root: Path, zones: dict[str, tuple[str, int, int]]) -> Path:
    """Write a powercap tree: of each zone the name, the counter and its range in microjoules."""
    for folder, (name, energy, most) in zones.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "name").write_text(f"{name}\n")
        (root / folder / "energy_uj").write_text(f"{energy}\n")
        (root / folder / "max_energy_range_uj").write_text(f"{most}\n")
    return root


def add_energy(root: Path, folder: str, microjoules: int) -> None:
    """Add to a counter, which begins again at its range."""
    file = root / folder / "energy_uj"
    most = int((root / folder / "max_energy_range_uj").read_text())
    file.write_text(f"{(int(file.read_text()) + microjoules) % most}\n")


def install_nvml(monkeypatch: pytest.MonkeyPatch, counters: list[int]) -> None:
    """Replace the driver's library by one with these counters of millijoules; -1 for a GPU that
    has none.
    """
    library = _module("pynvml")

    class NVMLError(Exception):
        pass

    def read(handle: int) -> int:
        if counters[handle] < 0:
            raise NVMLError("Not Supported")
        return counters[handle]

    given: dict[str, Any] = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: len(counters),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: b"Tesla",
        "nvmlDeviceGetTotalEnergyConsumption": read,
    }
    vars(library).update(given)
    monkeypatch.setitem(sys.modules, "pynvml", library)


def _module(name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)  # as of a module that is installed
    return module


class SerialSensor:
    """A pseudo-terminal at whose other end a sensor sends a sample of constant power each
    millisecond.
    """

    def __init__(self, volts: float = 5.0, amperes: float = 0.2) -> None:
        self._own, other = os.openpty()
        tty.setraw(self._own)
        tty.setraw(other)
        self.port = os.ttyname(other)
        self._other = other
        self._line = f",{volts},{amperes}\r\n"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        # Microseconds of 32 bits, which begin again soon.
        begin = time.perf_counter_ns() // 1000
        sent = 0
        while not self._stop.wait(0.001):
            due = (time.perf_counter_ns() // 1000 - begin) // 1000
            ticks = [
                ((1 << 32) - 200_000 + 1000 * number) % (1 << 32) for number in range(sent, due)
            ]
            os.write(self._own, "".join(f"{each}{self._line}" for each in ticks).encode())
            sent = due

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        os.close(self._own)
        os.close(self._other)


def install_joulescope(monkeypatch: pytest.MonkeyPatch, watts: float) -> None:
    """Replace the maker's driver by one whose instrument sends statistics of constant power."""
    module = _module("pyjoulescope_driver")

    class Driver:
        def __init__(self) -> None:
            self._stop = threading.Event()
            self._thread: threading.Thread | None = None

        def device_paths(self) -> list[str]:
            return ["u/js220/000415"]

        def open(self, device: str) -> None:
            assert device == "u/js220/000415"

        def publish(self, topic: str, value: object) -> None:
            assert topic.startswith("u/js220/000415/s/")

        def subscribe(self, topic: str, flags: str, take: Callable[[str, Any], None]) -> None:
            assert (topic, flags) == ("u/js220/000415/s/stats/value", "pub")

            def send() -> None:
                while not self._stop.wait(0.02):
                    take(topic, {"signals": {"power": {"avg": {"value": watts, "units": "W"}}}})

            self._thread = threading.Thread(target=send, daemon=True)
            self._thread.start()
            time.sleep(0.1)

        def finalize(self) -> None:
            self._stop.set()
            if self._thread is not None:
                self._thread.join()

    module.Driver = Driver  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyjoulescope_driver", module)


def install_otii(monkeypatch: pytest.MonkeyPatch, watts: float) -> None:
    """Replace the maker's client by one whose instrument records constant power."""

    class Device:
        id, name = "Arc1", "Arc"

        def add_to_project(self) -> None: ...

        def enable_channel(self, channel: str, enable: bool) -> None:
            assert (channel, enable) == ("mp", True)

    class Recording:
        def __init__(self) -> None:
            self.start_time = datetime.now(timezone.utc)
            self.end = 0.0

        def get_channel_data_count(self, device: str, channel: str) -> int:
            return int((self.end - self.start_time.timestamp()) * 4000)

        def get_channel_data(
            self, device: str, channel: str, index: int, count: int
        ) -> dict[str, Any]:
            return {
                "data_type": "analog",
                "timestamp": 0.0,
                "interval": 0.00025,
                "values": [watts] * count,
            }

    class Project:
        last: Recording | None = None

        def start_recording(self) -> None:
            self.last = Recording()

        def stop_recording(self) -> None:
            assert self.last is not None
            self.last.end = time.time()

        def get_last_recording(self) -> Recording | None:
            return self.last

    project = Project()

    class OtiiClient:
        def connect(self, *, host: str, port: int, try_for_seconds: int) -> OtiiClient:
            assert (host, port) == ("127.0.0.1", 1905)
            return self

        def get_devices(self) -> list[Device]:
            return [Device()]

        def get_active_project(self) -> Project:
            return project

        def disconnect(self) -> None: ...

    package, client = _module("otii_tcp_client"), _module("otii_tcp_client.otii_client")
    client.OtiiClient = OtiiClient  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "otii_tcp_client", package)
    monkeypatch.setitem(sys.modules, "otii_tcp_client.otii_client", client)


class GrowingTrace:
    """A program that writes a line of power to a CSV file every millisecond."""

    def __init__(self, path: Path, watts: float) -> None:
        self._file = path.open("w")
        self._file.write("time,power\n")
        self._watts = watts
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._next = time.time() - 0.1
        self._thread.start()

    def _write(self) -> None:
        while not self._stop.wait(0.001):
            while self._next < time.time():
                self._file.write(f"{self._next:.6f},{self._watts}\n")
                self._next += 0.001
            self._file.flush()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._file.close()
