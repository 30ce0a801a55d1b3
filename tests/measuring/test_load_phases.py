"""Measuring a model with data under a load, as the commands do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.measuring.benchmark import benchmark
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.run import Run
from nnpipe.testing.fakes import FakeClock, FakeSession

Measured = Callable[..., Run]
FREE = FakeSession().io
FIXED = IOSpec((TensorSpec("x", (4, 4), "float32"),), (TensorSpec("y", (4, 4), "float32"),))


@pytest.fixture
def measured(dataset: Any, wrapper: Any) -> Measured:
    def run(
        load: LoadOptions, io: IOSpec = FREE, session: Any = None, samples: int = 50, **given: Any
    ) -> Run:
        return benchmark(
            session or (lambda: FakeSession(io)),
            dataset=dataset,
            wrapper=wrapper,
            indices=np.arange(samples),
            load=load,
            **given,
        )

    return run


SHORT: dict[str, Any] = {"load_queries": 200}
LOADS = [
    LoadOptions(scenario="single-stream", **SHORT),
    LoadOptions(scenario="multi-stream", **SHORT),
    LoadOptions(scenario="server", rate=20_000.0, **SHORT),
    LoadOptions(scenario="offline", **SHORT),
]


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.scenario)
@pytest.mark.parametrize("io", [FREE, FIXED], ids=["free", "fixed"])
def test_every_sample_is_judged_once_and_queries_are_timed(
    measured: Measured, load: LoadOptions, io: IOSpec
) -> None:
    run = measured(load, io)
    assert run.evaluation is not None
    assert run.evaluation.arrays["predicted"].tolist() == list(range(50))
    inference, told = run.series["inference"], run.timing["load"]
    assert len(inference) == 200
    assert told["scenario"] == load.scenario
    assert told["ended"] == "queries"
    samples = {"multi-stream": 8, "offline": 4 if io is FIXED else 64}.get(str(load.scenario), 1)
    assert set(inference["samples"].tolist()) == {samples} == {told["samples_per_query"]}
    assert told["calls_per_query"] == (2 if io is FIXED and load.scenario == "multi-stream" else 1)
    assert ("scheduled_ns" in inference) == (load.scenario == "server")
    assert run.timing["window_ns"] == told["busy_ns"] > 0
    assert len(run.series["resources"]) >= 1


def test_a_run_under_load_is_read_as_it_was_written(measured: Measured, tmp_path: Path) -> None:
    run = measured(
        LoadOptions(scenario="server", rate=20_000.0, max_latency="1s@p50", audit=True, **SHORT)
    )
    run.write(tmp_path / "run.json")
    again = Run.read(tmp_path / "run.json")
    assert again.to_json() == run.to_json()
    assert again.timing["load"]["max_latency"] == "1s@p50"
    assert again.audits["outputs"]["verdict"] == "passed"
    assert run.components["load"]["arguments"]["rate"] == 20_000.0


def test_files_from_before_there_were_audits_are_read(measured: Measured) -> None:
    data = measured(LoadOptions(scenario="single-stream", **SHORT)).to_json()
    del data["audits"]
    assert Run.from_json(data).audits == {}


def test_without_a_load_nothing_is_as_it_was_not(measured: Measured) -> None:
    run = measured(LoadOptions(), options=MeasureOptions(measure_seconds=0.0))
    assert len(run.series["inference"]) == 50
    assert "load" not in run.timing
    assert "load" not in run.components


def test_the_load_alone_is_in_the_window(measured: Measured) -> None:
    clock = FakeClock()
    run = measured(
        LoadOptions(scenario="single-stream", load_queries=30),
        clock=clock,
        session=lambda: FakeSession(spend=lambda: clock.advance(1000)),
    )
    assert run.series["inference"]["latency_ns"].tolist() == [1000] * 30
    assert run.timing["window_ns"] == 30_000


def test_a_search_ends_in_the_run_that_confirmed_it(measured: Measured) -> None:
    clock = FakeClock(step=500)
    run = measured(
        LoadOptions(find_max_rate=True, max_latency="5ms@p50"),
        clock=clock,
        session=lambda: FakeSession(spend=lambda: clock.advance(300_000)),
    )
    told = run.timing["load"]
    assert told["search"]["rate"] == told["rate"] == told["search"]["trials"][-1]["rate"]
    assert told["scenario"] == "server"
    assert len(run.series["inference"]) == told["search"]["trials"][-1]["queries"]


def test_a_batch_size_beside_a_load_is_refused(measured: Measured) -> None:
    with pytest.raises(ConfigError, match="--samples-per-query instead"):
        measured(
            LoadOptions(scenario="offline", **SHORT), options=MeasureOptions(inference_batch_size=3)
        )


def test_audits_are_made_without_a_load_too_and_with_sessions_of_their_own(
    measured: Measured,
) -> None:
    opened: list[FakeSession] = []

    def session() -> FakeSession:
        opened.append(FakeSession())
        return opened[-1]

    run = measured(
        LoadOptions(audit=True), session=session, options=MeasureOptions(measure_seconds=0.0)
    )
    assert run.audits.keys() == {"outputs", "caching"}
    assert run.audits["outputs"]["verdict"] == "passed"
    assert len(opened) == 3
    assert all(each.calls[-1] == "close" for each in opened)


def test_an_audit_that_fails_to_run_leaves_the_measurement(measured: Measured) -> None:
    left = 1

    def session() -> FakeSession:
        nonlocal left
        left -= 1
        if left < 0:
            raise NNPipeError("the target\nis gone")
        return FakeSession()

    run = measured(
        LoadOptions(audit=True), session=session, options=MeasureOptions(measure_seconds=0.0)
    )
    assert run.audits["caching"] == {"verdict": "unknown", "reason": "the target is gone"}
    assert len(run.series["inference"]) == 50
