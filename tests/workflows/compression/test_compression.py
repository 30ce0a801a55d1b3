"""A search finds how the layers of a model are stored in few bytes, and proves what that costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.core.training import TrainingOptions
from nnpipe.datasets.arrays import write_arrays
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.searching.objectives import Limit, Objectives
from nnpipe.searching.trial_store import SearchTrial
from nnpipe.testing.model_files import write_onnx_classifier
from nnpipe.workflows.compression.compressing import choose_forms, list_tradeoffs
from nnpipe.workflows.compression.subject import SearchedCompression, select_finalists
from nnpipe.workflows.search.run_file import read_search, run_search
from nnpipe.workflows.workers.machine_turns import MachineTurns

COSTS = {
    "large": {"int8": (1000.0, 1e-6), "int4": (500.0, 1e-3), "cluster4": (250.0, 0.1)},
    "small": {"int8": (100.0, 1e-6), "int4": (50.0, 1e-2), "cluster4": (25.0, 0.5)},
}


def test_dear_noise_keeps_all_bits_and_cheap_noise_none() -> None:
    assert choose_forms(COSTS, 1e9) == {"large": "int8", "small": "int8"}
    assert choose_forms(COSTS, 1e-9) == {"large": "cluster4", "small": "cluster4"}
    assert choose_forms(COSTS, 1e4) == {"large": "int4", "small": "int8"}


def test_choices_go_from_most_bytes_to_most_noise() -> None:
    found = list_tradeoffs(COSTS, 10)
    sizes = [sum(COSTS[layer][form][0] for layer, form in chosen.items()) for chosen in found]
    assert sizes == sorted(sizes, reverse=True)
    assert len({tuple(chosen.items()) for chosen in found}) == len(found) >= 4
    assert list_tradeoffs(COSTS, 2) == [found[0], found[-1]]


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    pytest.importorskip("optuna", reason="Optuna is not installed")
    random = np.random.default_rng(0)
    centres = random.normal(size=(8, 64))
    labels = np.arange(400) % 8
    samples = (centres[labels] + 0.3 * random.normal(size=(400, 64))).astype(np.float32)
    return {
        "title": "small",
        "compress": {
            "title": "nearest",
            "class": "ONNXModel",
            "arguments": {
                "model_path": write_onnx_classifier(tmp_path / "m.onnx", samples, labels),
                "scale": 1,
            },
        },
        "dataset": write_arrays(tmp_path / "data", {"image": samples}, labels),
        "forms": ["as-it-is", "int6", "int4"],
        "activations": ["float"],
        "constraints": ["loss(accuracy) <= 0.1"],
        "measure": {"measure_seconds": 0.1},
        "search_samples": 100,
        "calibration_samples": 32,
        "trials": 3,
        "output": tmp_path / "found",
    }


class WatchedTurns(MachineTurns):
    def __init__(self) -> None:
        self.taken: list[str] = []

    @contextmanager
    def acquire_shared(self) -> Iterator[None]:
        self.taken.append("beside others")
        yield

    @contextmanager
    def acquire_exclusive(self) -> Iterator[None]:
        self.taken.append("alone")
        yield


@pytest.mark.slow
def test_compressed_models_are_made_beside_other_workers_and_measured_alone(
    settings: dict[str, Any],
) -> None:
    search = read_search(settings)
    subject = search.subject
    assert isinstance(subject, SearchedCompression)
    subject.turns = turns = WatchedTurns()
    (name,) = search.space.parameters
    trial = SearchTrial(number=0, configuration={name: "int6"})
    try:
        made, _ = subject.prepare_trial(trial, {name: "int6"})
        assert turns.taken == ["beside others"]
        written = made.stat().st_mtime_ns
        result = subject.measure_trial(trial, {name: "int6"})
    finally:
        subject.close()
    assert turns.taken == ["beside others", "beside others", "alone"]
    assert made.stat().st_mtime_ns == written  # it was not made twice
    assert result.values["size"] == made.stat().st_size
    for metric in ("loss(accuracy)", "latency_median"):
        low, high = result.intervals[metric]
        assert low <= result.values[metric] <= high


def test_other_machines_cannot_compress_a_model_that_is_trained_here(
    settings: dict[str, Any],
) -> None:
    subject = read_search(settings).subject
    assert isinstance(subject, SearchedCompression)
    subject.close()
    subject.check_elsewhere()
    subject._compressing.model = replace(subject._compressing.model, training=TrainingOptions())
    with pytest.raises(
        ConfigError, match=r"compress\.training: workers on other machines compress a trained model"
    ):
        subject.check_elsewhere()


def test_the_metric_to_choose_by_is_an_objective(settings: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match="choose: latency_median is no objective; add it to objectives"
    ):
        read_search({**settings, "choose": "latency_median"})


@pytest.mark.slow
def test_the_smallest_model_whose_loss_is_proven_is_chosen(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    search = read_search(settings)
    assert [each.count for each in search.space.parameters.values()] == [3]
    with RunDatabase(f"sqlite:///{tmp_path / 'runs.sqlite'}") as database:
        found = run_search(search, database)
    assert found.final is not None
    best = min(found.finished, key=lambda trial: trial.values["size"])
    assert found.final.chosen == f"trial {best.number}"
    certificate = json.loads((tmp_path / "found" / "final" / "certificate.json").read_text("utf-8"))
    # What was searched is what ships: the file is made anew by the compilers that the certificate
    # names.
    assert (
        certificate["artifact"]["bytes"] == best.values["size"] == found.final.model.stat().st_size
    )  # type: ignore[union-attr]
    assert certificate["compilers"][-1]["class"].endswith("ONNXCompressor")
    assert certificate["claims"][0]["holds"] is True
    whole = next(each for each in found.final.judged if each.title == "8 bits everywhere")
    assert best.values["size"] < whole.figures["size"].value  # type: ignore[operator]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("forms", ["int6", "int1"], "forms.1: 'int1' is no form of a layer"),
        ("activations", ["int4"], "activations: expected a list of int8 and float"),
        (
            "space",
            {"a": {"kind": "bool"}},
            "space: this key does not belong to a search with compress",
        ),
        ("constraints", ["units <= 3"], "constraints: 'units <= 3' is on no metric"),
        ("objectives", ["memory"], "objectives: a trial tells size, latency_median, accuracy"),
        ("dataset", None, "dataset: a model is compressed with samples"),
    ],
)
def test_a_wrong_setting_is_named(
    settings: dict[str, Any], key: str, value: Any, told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_search({**settings, key: value})
    assert told in str(caught.value)


def test_finalists_go_from_the_best_to_the_safest() -> None:
    objectives = Objectives({"size": "minimize"}, (Limit("loss", 0.1),))
    losses = [0.09, 0.095, 0.06, 0.08, 0.05, 0.03, 0.02, 0.04]
    trials = [
        SearchTrial(
            number=place, configuration={}, state="finished", values={"size": place, "loss": loss}
        )
        for place, loss in enumerate(losses)
    ]
    assert [each.number for each in select_finalists(trials, objectives, 9)] == [0, 2, 4, 5, 6]
    assert [each.number for each in select_finalists(trials, objectives, 3)] == [0, 4, 6]
    assert [each.number for each in select_finalists(trials, objectives, 1)] == [0]
