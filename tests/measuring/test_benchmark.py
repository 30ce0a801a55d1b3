from __future__ import annotations

import gc
import json
import threading
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.artifact import Artifact
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError, NotSupported, SpecMismatch
from nnpipe.core.runtime import Runtime
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.measuring import benchmark as module
from nnpipe.measuring.benchmark import benchmark
from nnpipe.measuring.load_options import LoadOptions
from nnpipe.measuring.measure_options import MeasureOptions
from nnpipe.measuring.run import Run
from nnpipe.testing.component import ComponentContract
from nnpipe.testing.fakes import FakeClock, FakeSession, spin


class TestMeasureOptions(ComponentContract):
    @pytest.fixture
    def component(self) -> Component:
        return MeasureOptions(
            inference_batch_size=8,
            measure_samples=5,
            measure_seconds=2.5,
            warmup_runs=0,
            sampling_interval=0.1,
        )


ONCE = MeasureOptions(measure_seconds=0.0)
Measured = Callable[..., Run]


@pytest.fixture
def measured(dataset: Any, wrapper: Any) -> Measured:
    def run(
        open_session: Callable[[], FakeSession] = FakeSession, samples: int = 50, **given: Any
    ) -> Run:
        given = {"indices": np.arange(samples), "options": ONCE} | given
        return benchmark(open_session, dataset=dataset, wrapper=wrapper, **given)

    return run


def test_every_sample_is_measured_and_judged_once(measured: Measured) -> None:
    run = measured()
    assert len(run.series["inference"]) == 50
    assert run.series["inference"]["samples"].sum() == 50
    assert run.evaluation is not None
    assert run.evaluation.arrays["truth"].tolist() == list(range(50))
    assert run.evaluation.arrays["predicted"].tolist() == list(range(50))
    assert len(run.series["resources"]) >= 1


@pytest.mark.parametrize("batch", [None, 8])
def test_only_true_samples_count_whatever_the_batch(measured: Measured, batch: int | None) -> None:
    io = IOSpec(
        (TensorSpec("x", (batch, 4), "float32"),), (TensorSpec("y", (batch, 4), "float32"),)
    )
    options = MeasureOptions(measure_seconds=0.0, inference_batch_size=8)
    run = measured(lambda: FakeSession(io), options=options)
    assert run.series["inference"]["samples"].tolist() == [8] * 6 + [2]
    assert run.evaluation is not None
    assert run.evaluation.arrays["predicted"].tolist() == list(range(50))
    assert run.timing["batch_size"] == 8


def test_a_quantised_model_is_judged_by_real_numbers(measured: Measured) -> None:
    io = IOSpec(
        (TensorSpec("x", (None, 4), "uint8", scale=0.25, zero_point=0),),
        (TensorSpec("y", (None, 4), "uint8", scale=0.25, zero_point=0),),
    )
    run = measured(lambda: FakeSession(io))
    assert run.evaluation is not None
    assert run.evaluation.arrays["predicted"].tolist() == list(range(50))


def test_calls_at_a_pace_are_a_series_of_their_own(measured: Measured, tmp_path: Path) -> None:
    options = MeasureOptions(measure_seconds=0.0, pace="1ms", pace_seconds=0.05)
    run = measured(options=options)
    assert len(run.series["inference"]) == 50
    assert len(run.series["paced"]) == 50
    assert run.timing["pace"]["period_ns"] == 1_000_000
    run.write(tmp_path / "run.json")
    again = Run.read(tmp_path / "run.json")
    assert again.series["paced"]["asleep"].tolist() == run.series["paced"]["asleep"].tolist()
    assert "paced" not in measured().series


def test_a_pace_and_a_load_at_once_are_refused_before_anything_is_loaded(
    measured: Measured,
) -> None:
    opened = []
    with pytest.raises(ConfigError, match="leave out --pace"):
        measured(
            opened.append,
            options=MeasureOptions(pace="1ms"),
            load=LoadOptions(scenario="single-stream"),
        )
    assert not opened


@pytest.mark.parametrize(
    ("given", "told"), [({"pace": "fast"}, "is no pace"), ({"pace_seconds": 3.0}, "--pace")]
)
def test_what_is_no_pace_is_refused(given: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        MeasureOptions(**given)


def test_loading_and_the_first_inference_are_kept_apart(measured: Measured) -> None:
    clock = FakeClock()
    costs = iter([5000, *[100] * 10])

    def open_session() -> FakeSession:
        clock.advance(10**6)
        return FakeSession(spend=lambda: clock.advance(next(costs, 7)))

    run = measured(open_session, samples=10, clock=clock)
    assert run.timing["load_ns"] == 10**6
    assert run.timing["first_ns"] == 5000
    assert run.timing["warmup"] == 10
    assert run.timing["window_ns"] == 70
    assert run.series["inference"]["latency_ns"].tolist() == [7] * 10


def test_short_measurements_are_drawn_out_and_judged_once(measured: Measured) -> None:
    clock = FakeClock()
    options = MeasureOptions(measure_seconds=1e-3)
    run = measured(
        lambda: FakeSession(spend=lambda: clock.advance(1000)),
        samples=10,
        clock=clock,
        options=options,
    )
    assert len(run.series["inference"]) == 1000
    assert run.evaluation is not None
    assert len(run.evaluation) == 10


def test_repetitions_end_where_a_result_file_would_grow_too_large(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_CALLS", 300)
    run = measured(samples=10, options=MeasureOptions(measure_seconds=60.0))
    assert len(run.series["inference"]) == 300


def test_some_of_the_samples_are_drawn_at_random_but_always_the_same(measured: Measured) -> None:
    options = MeasureOptions(measure_samples=100, measure_seconds=0.0)
    first, second = (measured(samples=1000, options=options).evaluation for _ in range(2))
    assert first is not None
    assert second is not None
    truth = first.arrays["truth"]
    assert len(set(truth)) == 100
    assert (np.diff(truth) > 0).all()
    assert truth[-1] > 900
    assert truth[0] < 100
    np.testing.assert_array_equal(truth, second.arrays["truth"])


@pytest.mark.slow
def test_many_samples_are_measured_in_bounded_memory(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1 << 20)
    megabyte = IOSpec(
        (TensorSpec("x", (None, 4), "float32"),), (TensorSpec("y", (None, 1 << 18), "float32"),)
    )

    class Wide(FakeSession):
        def _run(self) -> None:
            self._outputs = [np.repeat(self._inputs[0][:, :1], 1 << 18, axis=1)]

    tracemalloc.start()
    try:
        run = measured(lambda: Wide(megabyte), samples=64, model_io=megabyte)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert run.evaluation is not None
    assert run.evaluation.arrays["predicted"].tolist() == list(range(64))
    assert peak < 16 << 20  # all outputs together would be 64 MiB


def test_judging_happens_with_garbage_collection_on_and_outside_the_window(
    measured: Measured, dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[tuple[str, bool]] = []
    evaluate = type(dataset).evaluate

    def watched(self: Any, predictions: Batch, truth: Batch) -> Any:
        states.append(("judge", gc.isenabled()))
        return evaluate(self, predictions, truth)

    monkeypatch.setattr(type(dataset), "evaluate", watched)
    monkeypatch.setattr(module, "_CHUNK_CALLS", 10)
    measured(lambda: FakeSession(spend=lambda: states.append(("run", gc.isenabled()))))
    in_window = states[11:]  # after the first inference and the warm-up
    assert in_window == ([("run", False)] * 10 + [("judge", True)]) * 5


def test_the_run_holds_all_that_is_needed_to_judge_it(measured: Measured, tmp_path: Path) -> None:
    class Extra(Component):
        """Something else."""

        size: int = 3

    model = tmp_path / "model.bin"
    model.write_bytes(b"12345")
    io = IOSpec((TensorSpec("x", (None, 4), "float32"),), (TensorSpec("y", (None, 4), "float32"),))
    artifact = Artifact.create(model, "bin", io)
    run = measured(
        title="int8",
        command=["nnpipe", "run"],
        components={"compilers": (Extra(), Extra(size=4)), "runtime": Extra()},
        artifact=artifact,
    )
    run.write(tmp_path / "run.json")
    data = json.loads((tmp_path / "run.json").read_text())
    assert data["command"] == ["nnpipe", "run"]
    assert data["components"]["dataset"]["class"].endswith("Numbers")
    assert data["components"]["wrapper"]["class"].endswith("Model")
    assert [c["arguments"] for c in data["components"]["compilers"]] == [{"size": 3}, {"size": 4}]
    assert data["components"]["measurement"]["arguments"] == ONCE.to_json()
    assert data["artifact"]["sha256"] == artifact.sha256
    assert data["artifact"]["size"] == 5
    assert data["frameworks"]["numpy"] == np.__version__
    assert {"cpu", "environment", "before", "after", "gpus", "thread_pools"} <= data["host"].keys()
    assert data["created"].endswith("+00:00")
    assert Run.read(tmp_path / "run.json").to_json() == run.to_json()


def test_importing_what_is_needed_is_not_part_of_loading(
    measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_framework.py").write_text("import time\ntime.sleep(0.2)\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    class Slow(Component):
        """Needs a package that takes long to import."""

        requires = ("no_such_framework|slow_framework", "no_such_framework")

    def open_session() -> FakeSession:
        __import__("slow_framework")
        return FakeSession()

    run = measured(open_session, components={"runtime": Slow()})
    assert run.timing["import_ns"] > 200_000_000
    assert run.timing["load_ns"] < 100_000_000


def test_a_runtime_imports_what_it_loads_with_before_it_is_timed(measured: Measured) -> None:
    told: list[str] = []

    class Late(Runtime):
        """Imports some of its framework when it loads a model."""

        def import_framework(self) -> None:
            told.append("imported")
            raise ImportError("an older version has no such module")

        def _load(self, artifact: Any) -> Any:
            raise AssertionError

    def open_session() -> FakeSession:
        told.append("loaded")
        return FakeSession()

    measured(open_session, components={"runtime": Late()})
    assert told == ["imported", "loaded"]


def test_progress_is_told_of_every_batch(measured: Measured) -> None:
    told: list[tuple[str, int | None, int]] = []

    def progress(items: Iterable[Any], what: str, total: int | None = None) -> Iterable[Any]:
        found = list(items)
        told.append((what, total, len(found)))
        return found

    measured(
        progress=progress,
        title="int8",
        options=MeasureOptions(inference_batch_size=7, measure_seconds=0.0),
    )
    assert told == [("measuring int8", 8, 8)]


def test_what_the_session_knows_is_recorded(measured: Measured) -> None:
    class Knowing(FakeSession):
        def stats(self) -> dict[str, Any]:
            return {"target_ns": 12}

    assert measured(Knowing).timing["session"] == {"target_ns": 12}
    assert "session" not in measured().timing


def test_resources_are_watched_on_the_same_timeline(measured: Measured) -> None:
    options = MeasureOptions(measure_seconds=0.2, sampling_interval=0.02)
    run = measured(lambda: FakeSession(spend=lambda: spin(100_000)), options=options)
    inference, resources = run.series["inference"], run.series["resources"]
    assert len(resources) >= 3
    assert resources["time_ns"][0] > 0
    end = inference["start_ns"][-1] + inference["latency_ns"][-1]
    assert resources["time_ns"][-1] < end + 100_000_000


# -- what goes wrong --------------------------------------------------------------------------


def test_an_empty_split_is_refused(measured: Measured) -> None:
    with pytest.raises(ConfigError, match="split that was asked for is empty"):
        measured(samples=0)


def test_a_session_that_does_not_fit_is_refused_and_closed(measured: Measured) -> None:
    wrong = IOSpec(
        (TensorSpec("x", (None, 5), "float32"),), (TensorSpec("y", (None, 5), "float32"),)
    )
    session = FakeSession(wrong)
    with pytest.raises(SpecMismatch, match=r"has shape \(1, 4\), expected \(\?, 5\)"):
        measured(lambda: session)
    assert session.calls == ["close"]


@pytest.mark.usefixtures("nothing_frozen")
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("call", [0, 5, 30])
def test_an_interruption_leaves_nothing_running(
    measured: Measured, error: type[BaseException], call: int
) -> None:
    calls = 0

    def spend() -> None:
        nonlocal calls
        if calls == call:
            raise error
        calls += 1

    session = FakeSession(spend=spend)
    with pytest.raises(error):
        measured(lambda: session)
    assert session.calls[-1] == "close"
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert not any(thread.name == "nnpipe-sampler" for thread in threading.enumerate())


class Idle(Component):
    """Not set up as its makers would."""

    def performance_caveats(self) -> tuple[str, ...]:
        return ("slow kernels", "no tuning")


def test_what_is_not_set_up_as_its_makers_would_is_recorded(
    measured: Measured, tmp_path: Path
) -> None:
    run = measured(components={"compilers": (Idle(),), "runtime": Idle()})
    assert run.timing["settings"] == ["slow kernels", "no tuning"]
    assert "settings" not in measured().timing


def test_whoever_made_the_file_counts_too(measured: Measured, tmp_path: Path) -> None:
    from nnpipe.compilers.tvm import TVMCompiler

    (tmp_path / "model.so").write_bytes(b"x")
    io = FakeSession().io
    source = Artifact(tmp_path / "model.so", "onnx", io, "0" * 64)
    made = Artifact.create(
        tmp_path / "model.so", "tvm", io, producer=TVMCompiler().describe(), parent=source
    )
    assert measured(artifact=made).timing["settings"] == ["TVM without tuning"]


class Keeping(FakeSession):
    """Notes which samples run, and when what it keeps is forgotten."""

    keeps_state = True

    def _run(self) -> None:
        super()._run()
        self.calls[-1] = f"run {int(self._inputs[0][0, 0])}"

    def _reset(self) -> None:
        self.calls.append("reset")


def _kept(calls: list[str]) -> list[str]:
    return [call for call in calls if call.startswith(("run", "reset"))]


def test_each_independent_sample_starts_afresh(measured: Measured) -> None:
    sessions = [Keeping()]
    measured(lambda: sessions[0], samples=30)
    calls = _kept(sessions[0].calls)
    assert calls[0::2] == ["reset"] * (len(calls) // 2)
    assert "reset" not in calls[1::2]


def test_a_stream_runs_from_its_first_sample_to_its_last_without_a_break(
    dataset: Any, wrapper: Any
) -> None:
    class Stream(type(dataset)):  # type: ignore[misc]
        is_stream = True

    stream, session = Stream(), Keeping()
    run = benchmark(
        lambda: session, dataset=stream, wrapper=wrapper, indices=np.arange(3), options=ONCE
    )
    calls = _kept(session.calls)
    assert calls[-4:] == ["reset", "run 0", "run 1", "run 2"]
    assert run.evaluation is not None
    for wrong, told in (
        ({"indices": np.array([0, 2])}, "test-fraction 1"),
        ({"options": MeasureOptions(inference_batch_size=8)}, "batches of one"),
    ):
        given = {"indices": np.arange(3), "options": ONCE} | wrong
        with pytest.raises(ConfigError, match=told):
            benchmark(Keeping, dataset=stream, wrapper=wrapper, **given)
    with pytest.raises(NotSupported, match="keeps nothing"):
        benchmark(FakeSession, dataset=stream, wrapper=wrapper, indices=np.arange(3), options=ONCE)
