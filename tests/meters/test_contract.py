"""Every energy meter keeps the contract of meters, on a sensor that behaves as the real one
does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from meter_fakes import (
    GrowingTrace,
    SerialSensor,
    add_energy,
    install_joulescope,
    install_nvml,
    install_otii,
    powercap,
)

from nnpipe.core.energy_meter import EnergyMeter, MeterReading
from nnpipe.meters import (
    JoulescopeMeter,
    MachineMeter,
    NVMLMeter,
    OtiiMeter,
    PowerTraceMeter,
    RAPLMeter,
    SerialMeter,
)
from nnpipe.testing.energy_meter import EnergyMeterContract

Set = tuple[EnergyMeter, Callable[[], object]]


def wait() -> None:
    time.sleep(0.03)


class _WithTree:
    """Sets up a powercap tree in the folder of the test."""

    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        return powercap(
            tmp_path / "powercap",
            {"intel-rapl:0": ("package-0", 5, 1000), "intel-rapl:1": ("dram", 3, 99)},
        )


class TestRAPL(_WithTree, EnergyMeterContract):
    @pytest.fixture
    def meter(self, tree: Path) -> EnergyMeter:
        return RAPLMeter(powercap_root=tree, domains=("package", "dram"))

    @pytest.fixture
    def work(self, tree: Path) -> Callable[[], object]:
        def step() -> None:
            add_energy(tree, "intel-rapl:0", 700)
            add_energy(tree, "intel-rapl:1", 50)

        return step

    @pytest.fixture
    def reading(self, meter: EnergyMeter) -> MeterReading:
        return meter.open()


class TestNVML(EnergyMeterContract):
    @pytest.fixture
    def counters(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        found = [10, 20]
        install_nvml(monkeypatch, found)
        return found

    @pytest.fixture
    def meter(self) -> EnergyMeter:
        return NVMLMeter(gpu=1)

    @pytest.fixture
    def work(self, counters: list[int]) -> Callable[[], object]:
        return lambda: counters.__setitem__(1, counters[1] + 30)

    @pytest.fixture
    def reading(self, counters: list[int], meter: EnergyMeter) -> MeterReading:
        return meter.open()


class TestMachine(TestNVML):
    """Without a counter of the processor, what is left is that of the GPUs."""

    @pytest.fixture
    def meter(self) -> EnergyMeter:
        return MachineMeter()

    @pytest.fixture
    def work(self, counters: list[int]) -> Callable[[], object]:
        def step() -> None:
            counters[:] = [value + 30 for value in counters]
            time.sleep(0.005)

        return step


class TestSerial(EnergyMeterContract):
    @pytest.fixture
    def sensor(self) -> Iterator[SerialSensor]:
        pytest.importorskip("serial")
        sensor = SerialSensor()
        yield sensor
        sensor.close()

    @pytest.fixture
    def meter(self) -> EnergyMeter:
        return SerialMeter(meter_port="/dev/ttyACM0", meter_baud_rate=1_000_000)

    @pytest.fixture
    def work(self) -> Callable[[], object]:
        return wait

    @pytest.fixture
    def reading(self, sensor: SerialSensor) -> MeterReading:
        return SerialMeter(meter_port=sensor.port).open()


class TestPowerTrace(EnergyMeterContract):
    @pytest.fixture
    def meter(self) -> EnergyMeter:
        return PowerTraceMeter(
            trace_file=Path("power.csv"), clock_offset=1.5, trace_interval=0.1, trace_wait=0.0
        )

    @pytest.fixture
    def work(self) -> Callable[[], object]:
        return wait

    @pytest.fixture
    def reading(self, tmp_path: Path) -> Iterator[MeterReading]:
        program = GrowingTrace(tmp_path / "power.csv", 2.0)
        yield PowerTraceMeter(trace_file=tmp_path / "power.csv", trace_wait=0.05).open()
        program.close()


class TestJoulescope(EnergyMeterContract):
    @pytest.fixture
    def meter(self) -> EnergyMeter:
        return JoulescopeMeter(joulescope="u/js220/000415", statistics_rate=20.0)

    @pytest.fixture
    def work(self) -> Callable[[], object]:
        return wait

    @pytest.fixture
    def reading(self, monkeypatch: pytest.MonkeyPatch) -> MeterReading:
        install_joulescope(monkeypatch, 1.5)
        return JoulescopeMeter().open()


class TestOtii(EnergyMeterContract):
    @pytest.fixture
    def meter(self) -> EnergyMeter:
        return OtiiMeter(otii_host="bench", otii_port=1906, otii_device="Arc")

    @pytest.fixture
    def work(self) -> Callable[[], object]:
        return wait

    @pytest.fixture
    def reading(self, monkeypatch: pytest.MonkeyPatch) -> MeterReading:
        install_otii(monkeypatch, 0.25)
        return OtiiMeter().open()
