"""Trials that are made on one machine and measured on another, and the best of them measured in
full there.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.tools.installed import needs

from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.datasets.arrays import write_arrays
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.scenarios.search import main
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial_store import MemoryTrials, SearchTrial, TrialResult
from nnpipe.storage.storage import open_storage, put_files
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.search import measuring_queue
from nnpipe.workflows.search.file import SearchSettings
from nnpipe.workflows.search.measuring_queue import (
    Finals,
    MeasuringQueue,
    count_failures,
    fetch_kept,
    map_relative_paths,
)
from nnpipe.workflows.search.searched_pipeline import SearchedPipeline

needs("optuna", "sqlalchemy", "onnx", "onnxruntime")


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    for variable in ("NNPIPE_RUNS", "NNPIPE_STORAGE"):
        monkeypatch.delenv(variable, raising=False)
    labels = np.arange(60) % 4
    samples = np.random.default_rng(0).normal(labels[:, None], 0.1, (60, 6)).astype(np.float32)
    model = write_onnx_classifier(tmp_path / "model.onnx", samples, labels)
    pipeline = {
        "dataset": write_arrays(tmp_path / "data", {"image": samples}, labels).describe(),
        "model": {"class": "ONNXModel", "arguments": {"model_path": str(model), "scale": 1}},
        "measure": {"measure_seconds": 0.05},
        "candidates": [{"title": "compiled", "runtime": {"class": "ONNXRuntime", "arguments": {}}}],
    }
    found = {
        "pipeline": pipeline,
        "objectives": ["latency_median", "accuracy"],
        "sampler": "grid",
        "space": {
            "candidates.0.runtime.arguments.num_threads": {"kind": "int", "low": 1, "high": 2}
        },
    }
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(found), "utf-8")
    return found


@pytest.fixture
def queue(search: dict[str, Any], tmp_path: Path) -> Iterator[MeasuringQueue]:
    with RunDatabase("runs.sqlite") as database:
        store = DatabaseTrials(
            database, database.searches.open("measuring", {"latency_median": "minimize"})
        )
        yield MeasuringQueue(store, open_storage(str(tmp_path / "store")), "some board")


def settings_of(search: dict[str, Any], output: str) -> tuple[SearchSettings, SearchedPipeline]:
    settings = SearchSettings.from_settings({**search, "output": output})
    assert isinstance(settings.subject, SearchedPipeline)
    return settings, settings.subject


@pytest.mark.slow
def test_another_process_measures_what_was_trained_here(
    search: dict[str, Any], queue: MeasuringQueue
) -> None:
    settings, trainer = settings_of(search, "here")
    _, measurer = settings_of(search, "there")
    trial = SearchTrial(number=3, configuration={"candidates.0.runtime.arguments.num_threads": 1})
    arguments = settings.space.arguments(trial.configuration or {})
    with queue.run_in_thread(
        lambda work: queue.measure_work(work, measurer, settings.space), "the board"
    ):
        result = queue.prepare_here(trainer, trial, arguments)
    assert result.values["accuracy"] == 1.0
    assert 0 < result.values["latency_median"] < 1
    low, high = result.intervals["latency_median"]
    assert low <= result.values["latency_median"] <= high
    # A second attempt at the trial finds what was measured.
    assert queue.prepare_here(trainer, trial, arguments) == result


def test_without_a_machine_of_the_kind_a_trial_says_so(
    search: dict[str, Any], queue: MeasuringQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring_queue, "_PATIENCE", 0.0)
    _, subject = settings_of(search, "here")
    trial = SearchTrial(number=3, configuration={})
    with pytest.raises(
        ConfigError, match="trial 3 is made, but no machine of the kind 'some board' has measured"
    ):
        queue.prepare_here(subject, trial, {})


def test_what_goes_wrong_on_the_machine_of_the_kind_is_the_reason_why_a_trial_fails(
    search: dict[str, Any], queue: MeasuringQueue
) -> None:
    _, subject = settings_of(search, "here")

    def broken(work: Any) -> TrialResult:
        raise ValueError("out of cheese")

    with (
        queue.run_in_thread(broken, "the board"),
        pytest.raises(NNPipeError, match="ValueError: out of cheese"),
    ):
        queue.prepare_here(subject, SearchTrial(number=3, configuration={}), {})


@pytest.mark.slow
def test_the_best_trials_are_measured_in_full_where_trials_are_and_only_read_here(
    search: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(str(tmp_path / "store"))
    trials = [
        SearchTrial(
            number=number,
            state="finished",
            values={"latency_median": 1e-3, "accuracy": 1.0},
            configuration={"candidates.0.runtime.arguments.num_threads": number + 1},
        )
        for number in range(2)
    ]

    def finals(output: str) -> Finals:
        settings, subject = settings_of(search, output)
        return Finals(subject, settings.space, 0, ["nnpipe"], search)

    queue = MemoryTrials()
    queue.enqueue(finals("there").build_work(trials, 0))
    with pytest.raises(
        NNPipeError, match="the workers ended before the best trials were measured in full"
    ):
        finals("here").receive_result(trials, queue, storage)
    lease = queue.lease("the board", lambda number: None, 0)
    assert lease is not None
    queue.finish(lease, finals("there").measure_and_send(trials, storage))

    monkeypatch.setattr(
        "nnpipe.workflows.sweep.run.measure_apart", lambda *given: pytest.fail("measured here")
    )
    found = finals("here").receive_result(trials, queue, storage)
    assert found is not None
    assert found.chosen in ("trial 0", "trial 1")
    assert (Path("here") / "certificate.json").read_bytes() == (
        Path("there") / "certificate.json"
    ).read_bytes()
    # What was sent for other trials does not count.
    with pytest.raises(NNPipeError, match="the workers ended"):
        finals("here").receive_result(trials[:1], queue, storage)
    lost = next((Path("here") / "results").glob("*.json"))
    lost.unlink()
    with pytest.raises(
        ConfigError, match="what was measured on another machine did not come from there"
    ):
        finals("here").measure_finalists(trials, storage, only_known=True)


def test_a_failure_of_the_final_measurements_is_told(
    search: dict[str, Any], tmp_path: Path
) -> None:
    settings, subject = settings_of(search, "here")
    finals, queue = Finals(subject, settings.space, 0, [], search), MemoryTrials()
    trials = [SearchTrial(number=0, configuration={}, state="finished")]
    queue.enqueue(finals.build_work(trials, count_failures(queue.trials())))
    lease = queue.lease("the board", lambda number: None, 0)
    assert lease is not None
    queue.fail(lease, "no test samples")
    with pytest.raises(NNPipeError, match="measuring the best trials in full: no test samples"):
        finals.receive_result(trials, queue, open_storage(str(tmp_path / "store")))
    # the next start tries again
    assert queue.enqueue(finals.build_work(trials, count_failures(queue.trials())))


def test_files_of_trials_reach_the_machine_of_the_finals(
    search: dict[str, Any], tmp_path: Path
) -> None:
    storage = open_storage(str(tmp_path / "store"))
    _, trainer = settings_of(search, "here")
    weights = trainer.output / "trained" / "a.onnx"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"weights")
    files = put_files(storage, map_relative_paths([weights], trainer.output))
    fetch_kept(
        [SearchTrial(number=0, configuration={}, state="finished", files=files)],
        storage,
        tmp_path / "there",
    )
    assert (tmp_path / "there" / "trained" / "a.onnx").read_bytes() == b"weights"


@pytest.mark.slow
def test_workers_on_machines_of_the_kind_train_and_measure(
    search: dict[str, Any], capsys: Any
) -> None:
    assert main(["search.yaml", "--workers", "2", "--measure-on", platform.node()]) == 0
    printed = capsys.readouterr().out
    assert "2 finished" in printed
    assert "chosen by latency_median: trial" in printed
    with RunDatabase("runs.sqlite") as database:
        work = DatabaseTrials(database, "search: measuring").trials()
        trials = DatabaseTrials(database, "search").trials()
    assert [trial.state for trial in work if "finals" in (trial.configuration or {})] == [
        "finished"
    ]
    assert all("latency_median" in trial.intervals for trial in trials)


def test_a_function_cannot_be_trained_here_and_measured_there(
    search: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "measured_module.py").write_text("def f(x):\n    return x\n", "utf-8")
    settings = {
        "function": "measured_module.f",
        "objectives": {"value": "minimize"},
        "space": {"x": {"kind": "bool"}},
    }
    (tmp_path / "function.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    assert main(["function.yaml", "--workers", "2", "--measure-on", platform.node()]) == 2
    assert "--measure-on: is for models" in capsys.readouterr().err


def test_a_kind_that_no_worker_is_of_is_told_before_the_first_trial(
    search: dict[str, Any], capsys: Any
) -> None:
    assert main(["search.yaml", "--measure-on", "no such board"]) == 2
    error = capsys.readouterr().err
    assert (
        "--measure-on: this machine is not of the kind 'no such board', and no worker runs "
        "elsewhere" in error
    )
    assert error.count("\n") == 1
