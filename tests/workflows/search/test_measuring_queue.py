"""Trials of a pipeline that are trained on one machine and measured on another."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.tools.installed import needs

from nnpipe.core.errors import ConfigError
from nnpipe.datasets.arrays import write_arrays
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.scenarios.search import main
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial import SearchTrial
from nnpipe.storage.storage import open_storage
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.search import measuring_queue
from nnpipe.workflows.search.file import SearchSettings
from nnpipe.workflows.search.measuring_queue import MeasuringQueue
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
        "pipeline": pipeline, "objectives": ["latency_median", "accuracy"], "sampler": "grid",
        "space": {"candidates.0.runtime.arguments.num_threads": {"kind": "int", "low": 1, "high": 2}},
    }  # fmt: skip
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(found), "utf-8")
    return found


@pytest.fixture
def queue(search: dict[str, Any], tmp_path: Path) -> Iterator[MeasuringQueue]:
    with RunDatabase("runs.sqlite") as database:
        store = DatabaseTrials(database, database.searches.open("measuring", {"latency_median": "minimize"}))
        yield MeasuringQueue(store, open_storage(str(tmp_path / "store")), "some board")


def settings_of(search: dict[str, Any], output: str) -> tuple[SearchSettings, SearchedPipeline]:
    settings = SearchSettings.from_settings({**search, "output": output})
    assert isinstance(settings.subject, SearchedPipeline)
    return settings, settings.subject


@pytest.mark.slow
def test_another_process_measures_what_was_trained_here(search: dict[str, Any], queue: MeasuringQueue) -> None:
    settings, trainer = settings_of(search, "here")
    _, measurer = settings_of(search, "there")
    trial = SearchTrial(number=3, configuration={"candidates.0.runtime.arguments.num_threads": 1})
    arguments = settings.space.arguments(trial.configuration or {})
    with queue.serving(measurer, settings.space, "the board"):
        values = queue.trained_here(trainer, trial, arguments)
    assert values["accuracy"] == 1.0
    assert 0 < values["latency_median"] < 1
    # A second attempt at the trial finds what was measured.
    assert queue.trained_here(trainer, trial, arguments) == values


def test_without_a_machine_of_the_kind_a_trial_says_so(
    search: dict[str, Any], queue: MeasuringQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring_queue, "_PATIENCE", 0.0)
    _, subject = settings_of(search, "here")
    trial = SearchTrial(number=3, configuration={})
    with pytest.raises(ConfigError, match="trial 3 is trained, but no machine of the kind 'some board' has measured"):
        queue.trained_here(subject, trial, {})


@pytest.mark.slow
def test_workers_on_machines_of_the_kind_train_and_measure(search: dict[str, Any], capsys: Any) -> None:
    assert main(["search.yaml", "--workers", "2", "--measure-on", platform.node()]) == 0
    assert "2 finished" in capsys.readouterr().out


def test_a_function_cannot_be_trained_here_and_measured_there(
    search: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "measured_module.py").write_text("def f(x):\n    return x\n", "utf-8")
    settings = {"function": "measured_module.f", "space": {"x": {"kind": "bool"}}}
    (tmp_path / "function.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    assert main(["function.yaml", "--workers", "2", "--measure-on", "box"]) == 2
    assert "--measure-on: is for pipelines" in capsys.readouterr().err
