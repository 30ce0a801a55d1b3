"""Searching architectures from a file: the space, the networks of trials, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from tests.tools.installed import needs

from nnpipe.core.errors import ConfigError
from nnpipe.datasets.arrays import write_arrays
from nnpipe.layers.imports.network_files import read_network
from nnpipe.scenarios.search import main
from nnpipe.searching.trial_store import SearchTrial
from nnpipe.workflows.search.file import SearchSettings, build_search_schema
from nnpipe.workflows.search.searched_pipeline import SearchedArchitecture

needs("optuna")
needs("torch")
needs("onnxruntime")
needs("sqlalchemy")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NNPIPE_RUNS", raising=False)
    labels = np.arange(90) % 3
    bars = (np.eye(3)[labels][:, :, None, None] * 200).repeat(2, 1).repeat(6, 2)
    images = (bars + np.random.default_rng(0).integers(0, 50, bars.shape)).astype(np.uint8)
    data = write_arrays(tmp_path / "data", {"image": images}, labels)
    return {
        "title": "cells",
        "architecture": {
            "cell": {"operations": ["none", "skip_connect", "nor_conv_1x1"], "nodes": 2},
            "channels": [2, 4],
            "stages": 1,
        },
        "pipeline": {
            "dataset": data.describe(),
            "model": {"arguments": {"scale": 255}, "training": {"num_epochs": 1, "batch_size": 16}},
            "candidates": [
                {
                    "title": "ONNX",
                    "export": "onnx",
                    "runtime": "nnpipe.runtimes.onnxruntime.ONNXRuntime",
                }
            ],
            "measure": {"measure_seconds": 0.1},
        },
        "space": {"model.training.learning_rate": {"kind": "power", "low": -3, "high": -1}},
        "objectives": ["accuracy", "latency_median"],
        # networks that have hardly been trained
        "accept_doubts": ["chance", "constant", "collapsed"],
        "sampler": "nsga2",
        "trials": 2,
        "output": "build/found",
    }


def test_the_space_has_the_parameters_of_the_architecture_and_further_settings(
    settings: dict[str, Any],
) -> None:
    jsonschema.validate(settings, build_search_schema())
    found = SearchSettings.from_settings(settings)
    assert list(found.space.parameters) == [
        "channels",
        "edge_0_1",
        "edge_0_2",
        "edge_1_2",
        "model.training.learning_rate",
    ]
    assert not found.space.allows(
        {"edge_0_1": "skip_connect", "edge_0_2": "none", "edge_1_2": "none"}
    )
    assert isinstance(found.subject, SearchedArchitecture)
    assert found.subject.architecture.input == (6, 6, 1)
    assert found.subject.architecture.classes == 3
    assert found.objectives.by_name == {"accuracy": "maximize", "latency_median": "minimize"}


def test_the_network_of_a_trial_is_a_file_that_its_pipeline_trains(
    settings: dict[str, Any],
) -> None:
    subject = SearchSettings.from_settings(settings).subject
    assert isinstance(subject, SearchedArchitecture)
    cell = {
        "channels": 4,
        "edge_0_1": "nor_conv_1x1",
        "edge_0_2": "none",
        "edge_1_2": "skip_connect",
    }
    pipeline = subject.build_settings(
        SearchTrial(number=7, configuration=cell), {**cell, "model.training.learning_rate": 0.01}
    )
    assert pipeline["output"] == str(Path("build/found/trials/7"))
    assert pipeline["model"]["training"]["learning_rate"] == 0.01
    path = Path("build/found/trials/7/network.yaml")
    assert pipeline["model"]["arguments"] == {"scale": 255, "network": str(path)}
    assert read_network(path).graph == subject.architecture.network(cell)


def test_choices_may_grow_and_other_stages_are_another_search(settings: dict[str, Any]) -> None:
    before = SearchSettings.from_settings(settings).subject.to_json()
    grown = {**settings["architecture"], "channels": [2, 4, 8]}
    assert (
        SearchSettings.from_settings({**settings, "architecture": grown}).subject.to_json()
        == before
    )
    deeper = {**settings["architecture"], "stages": 2}
    assert (
        SearchSettings.from_settings({**settings, "architecture": deeper}).subject.to_json()
        != before
    )


@pytest.mark.slow
def test_networks_are_searched_by_their_measured_latency(
    settings: dict[str, Any], capsys: Any
) -> None:
    Path("search.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    assert main(["search.yaml"]) == 0
    assert "2 finished" in capsys.readouterr().out
    assert main(["search.yaml", "trials=3"]) == 0
    assert "going on after 2 trials" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"architecture": {"cell": {"operations": ["conv"]}}},
            "architecture.cell.operations.0: there is no operation",
        ),
        (
            {"architecture": {"cell": {"operations": ["skip_connect"]}, "classes": 1}},
            "architecture.classes: expected",
        ),
        ({"architecture": [1]}, "architecture: expected an object, found list"),
        (
            {"space": {"edge_0_1": {"kind": "bool"}}},
            "space.edge_0_1: is a parameter of the architecture, too",
        ),
        ({"space": {"model.training.rate": {"kind": "bool"}}}, "pipeline: with .*rate"),
        ({"objectives": ["speed"]}, "speed"),
        (
            {"function": "a.b", "pipeline": None},
            "search: a function has no architecture; give a pipeline",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    settings: dict[str, Any], changes: Any, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        SearchSettings.from_settings({**settings, **changes})
    assert "\n" not in str(error.value)


def test_a_network_that_is_not_trained_is_refused(settings: dict[str, Any]) -> None:
    del settings["pipeline"]["model"]["training"]
    with pytest.raises(ConfigError, match=r"model\.training is missing"):
        SearchSettings.from_settings(settings)
