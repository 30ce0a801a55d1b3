"""Meters give the joules that were taken, and say why they cannot where there is no sensor."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from meter_fakes import (
    SerialSensor,
    add_energy,
    install_joulescope,
    install_nvml,
    install_otii,
    powercap,
)

from nnpipe.core.energy_meter import EnergyMeter, counter_differences
from nnpipe.core.errors import ConfigError, MissingDependency, NotSupported, TransportError
from nnpipe.meters import (
    JoulescopeMeter,
    MachineMeter,
    NVMLMeter,
    OtiiMeter,
    PowerTraceMeter,
    RAPLMeter,
    SerialMeter,
)
from nnpipe.meters.power_trace import SampleLine

MOST = 262_143_328_850


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A machine of two packages, of which the first is shown twice, with parts of its own."""
    return powercap(
        tmp_path / "powercap",
        {
            "intel-rapl:0": ("package-0", MOST - 1_000_000, MOST),
            "intel-rapl:0:0": ("core", 100, MOST),
            "intel-rapl:0:1": ("dram", 100, 65_712_999_613),
            "intel-rapl:1": ("package-1", 7_000, MOST),
            "intel-rapl-mmio:0": ("package-0", MOST - 1_000_000, MOST),
        },
    )


def test_a_counter_that_begins_again_gives_exact_joules(tree: Path) -> None:
    with RAPLMeter(powercap_root=tree).open() as reading:
        reading.mark()
        for first, second in ((3_500_000, 250_001), (1_000_000, 0), (123, 456)):
            add_energy(tree, "intel-rapl:0", first)
            add_energy(tree, "intel-rapl:1", second)
            add_energy(tree, "intel-rapl:0:0", 99_999)
            reading.mark()
        assert reading.joules() == [
            pytest.approx(3.750001, abs=1e-12),
            1.0,
            pytest.approx(0.000579, abs=1e-12),
        ]
        assert reading.source == "RAPL: package-0, package-1"


def test_other_zones_are_added_up_if_they_are_named(tree: Path) -> None:
    with RAPLMeter(powercap_root=tree, domains=("package", "dram")).open() as reading:
        reading.mark()
        for folder, more in (
            ("intel-rapl:0", 1_000_000),
            ("intel-rapl:1", 1_000_000),
            ("intel-rapl:0:1", 500_000),
        ):
            add_energy(tree, folder, more)
        reading.mark()
        assert reading.joules() == [2.5]
    with pytest.raises(ConfigError, match="package contains core"):
        RAPLMeter(domains=("package", "core"))


def test_a_counter_that_stands_still_is_no_sensor(tree: Path) -> None:
    with RAPLMeter(powercap_root=tree).open() as reading:
        reading.mark()
        add_energy(tree, "intel-rapl:0", 10)
        reading.mark()
        with pytest.raises(NotSupported, match="package-1 stood still"):
            reading.joules()


def test_a_machine_without_counters_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="has no energy counters; virtual machines"):
        RAPLMeter(powercap_root=tmp_path / "nowhere").open()
    powercap(tmp_path, {"intel-rapl:0": ("psys", 0, 10)})
    with pytest.raises(NotSupported, match=r"no zone package: .* has the zones psys"):
        RAPLMeter(powercap_root=tmp_path).open()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_counter_that_only_root_may_read_says_how_to_read_it(tree: Path) -> None:
    (tree / "intel-rapl:0/energy_uj").chmod(0)
    with pytest.raises(
        NotSupported, match=r"only root may read .*intel-rapl:0/energy_uj: run as root, or"
    ):
        RAPLMeter(powercap_root=tree).open()


def test_a_refused_file_is_told_as_one_for_root(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Path, *args: object, **more: object) -> str:
        if self.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return self.read_bytes().decode()

    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(NotSupported, match="only root may read"):
        RAPLMeter(powercap_root=tree).open()


def test_gpus_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = [1_000, 5_000]
    install_nvml(monkeypatch, counters)
    with NVMLMeter().open() as reading:
        reading.mark()
        counters[:] = [1_500, 5_250]
        reading.mark()
        assert reading.joules() == [0.75]
        assert reading.source == "NVML: GPU 0 (Tesla), GPU 1 (Tesla)"
        counters[0] = 0
        reading.mark()
        with pytest.raises(ConfigError, match="was reset"):
            reading.joules()


def test_a_gpu_without_a_counter_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    install_nvml(monkeypatch, [-1])
    with pytest.raises(NotSupported, match="GPU 0 has no energy counter: Not Supported"):
        NVMLMeter().open()
    with pytest.raises(NotSupported, match="there is no GPU 3"):
        NVMLMeter(gpu=3).open()
    with pytest.raises(
        NotSupported, match=r"no energy counter that can be read: RAPL: .*; NVML: GPU 0"
    ):
        MachineMeter().open()


@pytest.mark.parametrize("watts", [0.25, 3.0])
def test_a_serial_sensor_gives_its_energy_within_one_percent(watts: float) -> None:
    pytest.importorskip("serial")
    sensor = SerialSensor(volts=5.0, amperes=watts / 5)
    try:
        with SerialMeter(meter_port=sensor.port).open() as reading:
            time.sleep(0.3)  # its clock begins again meanwhile
            start = time.perf_counter()
            reading.mark()
            time.sleep(0.4)
            reading.mark()
            seconds = time.perf_counter() - start
            assert reading.joules() == [pytest.approx(watts * seconds, rel=0.01)]
    finally:
        sensor.close()


@pytest.mark.slow
def test_damaged_lines_are_dropped() -> None:
    now = [100.0]
    line = SampleLine(bytes, clock=lambda: now[0])
    line.take(b"# volts and amperes\n71,5.0")
    now[0] = 101.0
    line.take(b",0.1\r\nnoise\n999999999999999999999999,1,1\n1000071,5.0,0.3\n2000071,5,0.3\n2000,")
    trace = line.trace()
    assert trace.watts.tolist() == [0.5, 1.5, 1.5]
    assert trace.compute_energy(trace.time_s[0], trace.time_s[2]) == pytest.approx(1.0 + 1.5)


def test_a_silent_line_is_told() -> None:
    pytest.importorskip("serial")
    with pytest.raises(TransportError, match="cannot open the serial port /dev/no-such-port"):
        SerialMeter(meter_port="/dev/no-such-port").open()
    line = SampleLine(bytes)
    line.start()
    with pytest.raises(TransportError, match="sent no line MICROSECONDS"):
        line.wait_for_samples(0.1)
    line.stop()


def test_instruments_of_makers_give_their_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    install_joulescope(monkeypatch, 1.5)
    install_otii(monkeypatch, 0.25)
    for meter, watts in ((JoulescopeMeter(), 1.5), (OtiiMeter(), 0.25)):
        with meter.open() as reading:
            start = time.perf_counter()
            reading.mark()
            time.sleep(0.2)
            reading.mark()
            seconds = time.perf_counter() - start
            assert reading.joules() == [pytest.approx(watts * seconds, rel=0.01)]


@pytest.mark.parametrize("meter", [JoulescopeMeter(), OtiiMeter()])
def test_a_makers_package_that_is_missing_is_named(meter: EnergyMeter) -> None:
    if not meter.missing():
        pytest.skip("the package is installed")
    with pytest.raises(MissingDependency, match="pip install"):
        meter.open()


def test_a_trace_in_no_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="there is no such folder"):
        PowerTraceMeter(trace_file=tmp_path / "nowhere" / "power.csv").open()


def test_a_counter_may_begin_again() -> None:
    assert counter_differences([], 10) == counter_differences([3], 10) == []
    assert counter_differences([8, 1, 1, 9], 10) == [3, 0, 8]
