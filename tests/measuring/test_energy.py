"""The energy of an inference: blocks of calls, the figure, and what is said without a sensor."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from meter_fakes import add_energy, powercap

from nnpipe import MeasureOptions, Run, benchmark
from nnpipe.core.dataset import Dataset
from nnpipe.core.energy_meter import EnergyMeter, MeterReading
from nnpipe.core.errors import ComponentNotFound, ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.measuring.constraints import MetricConstraint
from nnpipe.measuring.energy import BLOCKS, measure_energy
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.run_figures import compute_energy_figure, describe_energy_source
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.sections.performance import build_energy_blocks
from nnpipe.report.sections.summary import build_summary_section
from nnpipe.report.writers.json_figures import collect_figures
from nnpipe.testing.fakes import FakeClock, FakeSession

IDLE_W, CALL_J, CALL_NS = 2.0, 0.003, 1_000_000
BATCHES = [{"x": np.full((size, 4), size, np.float32)} for size in (1, 2)]


class Bench(MeterReading):
    """A clock that a call advances by 1 ms, and a meter of the energy that has been taken until
    then.
    """

    source, resolution_s = "a bench", 0.001

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.taken = 0.0
        self.marks: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.clock.advance(round(1e9 * seconds))
        self.taken += IDLE_W * seconds

    def call(self) -> None:
        self.sleep(CALL_NS / 1e9)
        self.taken += CALL_J

    def mark(self) -> None:
        self.marks.append(self.taken)

    def joules(self) -> list[float]:
        return np.diff(self.marks).tolist()


class BenchMeter(EnergyMeter):
    """The meter of a bench."""

    bench: ClassVar[Bench]

    def _open(self) -> MeterReading:
        return self.bench


def measured(**options: Any) -> tuple[Any, dict[str, Any], FakeSession]:
    bench = BenchMeter.bench = Bench()
    session = FakeSession(spend=bench.call)
    series, about = measure_energy(
        session, BATCHES, [1, 2], BenchMeter(), clock=bench.clock, sleep=bench.sleep, **options
    )
    return series, about, session


def run_with(series: Any, about: dict[str, Any]) -> Run:
    calls = {
        "start_ns": np.arange(3),
        "latency_ns": np.full(3, 900),
        "samples": np.ones(3, np.int64),
    }
    from nnpipe.measuring.series import Series

    given = {"inference": Series(calls)} | ({} if series is None else {"energy": series})
    return Run("x", (), {}, {}, {}, {"batch_size": 1, "energy": about}, given)


def test_each_block_lasts_as_long_as_asked_and_all_energy_is_counted() -> None:
    series, about, session = measured(seconds=2.0)
    assert len(series) == BLOCKS
    assert (series["duration_ns"] >= 99_000_000).all()
    assert set(series["calls"].tolist()) <= {100, 101}
    assert (abs(series["samples"] - 1.5 * series["calls"]) <= 1).all()
    assert series["joules"] == pytest.approx(series["calls"] * (CALL_J + IDLE_W * 0.001))
    assert "idle_watts" not in about
    assert about["source"] == "a bench"
    assert session.calls.count("run") >= 100 * BLOCKS
    found = compute_energy_figure(run_with(series, about))
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((CALL_J + IDLE_W * 0.001,) * 3)
    assert found.count == series["calls"].sum()


def test_a_slow_sensor_gets_longer_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "resolution_s", 0.1)
    series, _, _ = measured(seconds=0.1)
    assert (series["duration_ns"] >= 1_990_000_000).all()


def test_a_long_measurement_has_more_blocks_so_that_no_counter_begins_again_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nnpipe.measuring.energy._LONGEST_S", 0.1)
    series, _, _ = measured(seconds=3.0)
    assert len(series) == 30
    assert series["joules"] == pytest.approx(series["calls"] * (CALL_J + IDLE_W * 0.001))


def test_idle_power_is_subtracted_only_if_asked_and_then_said() -> None:
    series, about, _ = measured(seconds=1.0, idle_seconds=12.0)
    assert about["idle_watts"] == pytest.approx(IDLE_W)
    assert about["idle_seconds"] == pytest.approx(12.0)
    run = run_with(series, about)
    found = compute_energy_figure(run)
    assert found is not None
    assert found.value == pytest.approx(CALL_J)
    assert describe_energy_source(run) == "a bench, less an idle power of 2 W"
    with pytest.raises(ConfigError, match="idle-seconds are for a meter"):
        MeasureOptions(idle_seconds=1.0)


def test_the_figure_is_in_results_reports_and_constraints(tmp_path: Path) -> None:
    series, about, _ = measured(seconds=1.0)
    run_with(series, about).write(tmp_path / "run.json")
    run = Run.read(tmp_path / "run.json")
    assert run.summary()["energy"]["unit"] == "J"
    assert run.summary()["energy"]["value"] == pytest.approx(0.005)
    candidate = Candidate.from_run(run)
    assert collect_figures(candidate)["energy"].value == pytest.approx(0.005)
    said = str(build_energy_blocks(candidate))
    assert "5.00\\xa0mJ" in said
    assert "a bench" in said
    assert "the idle power is included" in said
    assert "Energy, mJ" in str(build_summary_section([candidate, Candidate.from_run(run, 1)]))
    constraint = MetricConstraint.parse("energy <= 6 mJ")
    assert constraint.evaluate(collect_figures(candidate)["energy"]) is True
    assert (
        MetricConstraint.parse("energy <= 4.9 mJ").evaluate(collect_figures(candidate)["energy"])
        is False
    )
    with pytest.raises(ConfigError, match="say the unit"):
        MetricConstraint.parse("energy <= 6")


def test_without_a_sensor_there_is_no_column_and_the_reason_is_told(
    dataset: Dataset, wrapper: ModelWrapper, tmp_path: Path
) -> None:
    options = MeasureOptions(
        measure_seconds=0.0,
        energy_meter="RAPLMeter",
        energy_meter_options=(f"powercap_root={tmp_path}",),
    )
    run = benchmark(
        FakeSession, dataset=dataset, indices=np.arange(4), wrapper=wrapper, options=options
    )
    assert "energy" not in run.series
    candidate = Candidate.from_run(run)
    found = collect_figures(candidate)["energy"]
    assert found.value is None
    assert "has no energy counters" in found.reason
    assert "Energy is not known: RAPL: no zone package" in str(build_energy_blocks(candidate))
    assert "Energy," not in str(build_summary_section([candidate, Candidate.from_run(run, 1)]))
    assert "energy" not in run.summary()


def test_a_benchmark_reads_the_machines_counter_in_runs_of_its_own(
    dataset: Dataset, wrapper: ModelWrapper, tmp_path: Path
) -> None:
    tree = powercap(tmp_path, {"intel-rapl:0": ("package-0", 0, 1_000_000)})
    spent = FakeSession(spend=lambda: (add_energy(tree, "intel-rapl:0", 20), time.sleep(0.001)))
    options = MeasureOptions(
        measure_seconds=0.0,
        energy_meter="RAPLMeter",
        energy_seconds=0.1,
        energy_meter_options=(f"powercap_root={tmp_path}",),
    )
    run = benchmark(
        lambda: spent, dataset=dataset, indices=np.arange(4), wrapper=wrapper, options=options
    )
    assert len(run.series["inference"]) == 4
    found = compute_energy_figure(run)
    assert found is not None
    assert found.value == pytest.approx(20e-6)
    target = {"protocol": wrapper}
    far = benchmark(
        FakeSession,
        dataset=dataset,
        indices=np.arange(4),
        wrapper=wrapper,
        options=options,
        components=target,
    )
    assert (
        far.timing["energy"]["reason"]
        == "RAPLMeter measures this machine, and the model runs on a target"
    )


def test_a_meter_is_checked_before_anything_is_measured() -> None:
    with pytest.raises(ComponentNotFound, match="RAPLMeter"):
        MeasureOptions(energy_meter="RAPLMetre")
    with pytest.raises(ConfigError, match="gpu"):
        MeasureOptions(energy_meter="NVMLMeter", energy_meter_options=("gpu=first",))
    with pytest.raises(ConfigError, match="without a load"):
        MeasureOptions(energy_meter="MachineMeter").check_with(LoadOptions(scenario="offline"))
