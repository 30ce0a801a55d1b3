"""``nnpipe runs list`` tells runs of one name apart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")

from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.scenarios._cli.run_tables import describe_run_differences
from nnpipe.scenarios.runs import main

OPENVINO = {
    "class": "nnpipe.compilers.openvino.OpenVINOCompiler",
    "arguments": {"precision": "fp32", "seed": 1},
}
INT8 = {**OPENVINO, "arguments": {"precision": "int8", "seed": 1}}
ONNXRUNTIME = {"class": "nnpipe.runtimes.onnxruntime.ONNXRuntime", "arguments": {"num_threads": 1}}


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDatabase:
    monkeypatch.setenv("NNPIPE_RUNS", str(tmp_path / "runs.sqlite"))
    return RunDatabase(tmp_path / "runs.sqlite")


def told(database: RunDatabase, *trees: Mapping[str, Any], packages: Any = None) -> list[str]:
    """Return what tells runs of these configurations apart."""
    for number, tree in enumerate(trees):
        around = {"packages": packages[number]} if packages else {}
        database.runs.create("model on data", Configuration(tree), environment=around)
    found = describe_run_differences(database.runs.find(order="created"))
    return list(found.values())


def test_int8_and_float_are_told_apart_by_their_precision(
    database: RunDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    alike = {"title": "mine", "runtime": ONNXRUNTIME}
    found = told(database, {**alike, "compilers": [OPENVINO]}, {**alike, "compilers": [INT8]})
    assert found == ["precision=fp32", "precision=int8"]
    assert main(["list"]) == 0
    header, newest, older = capsys.readouterr().out.splitlines()
    assert "differs by" in header
    assert "precision=int8" in newest
    assert "precision=fp32" in older


def test_titles_suffice_where_they_differ(database: RunDatabase) -> None:
    first = {"title": "float", "compilers": [OPENVINO]}
    assert told(database, first, {"title": "int8", "compilers": [INT8]}) == ["float", "int8"]


def test_classes_are_named_alone(database: RunDatabase) -> None:
    other = {**ONNXRUNTIME, "class": "nnpipe.runtimes.openvino.OpenVINORuntime"}
    assert told(database, {"runtime": ONNXRUNTIME}, {"runtime": other}) == [
        "ONNXRuntime",
        "OpenVINORuntime",
    ]


def test_no_more_is_said_of_a_run_than_it_takes(database: RunDatabase) -> None:
    trees = [{"title": "a", "lr": 0.1}, {"title": "a", "lr": 0.2}, {"title": "b", "lr": 0.1}]
    assert told(database, *trees) == ["a, lr=0.1", "a, lr=0.2", "b"]


def test_names_that_are_in_several_places_are_said_in_full(database: RunDatabase) -> None:
    trees = [
        {"data": {"seed": one}, "model": {"seed": other}} for one in (1, 2) for other in (1, 2)
    ]
    assert told(database, *trees)[0] == "data.seed=1, model.seed=1"


def test_packages_are_named_only_where_settings_are_alike(database: RunDatabase) -> None:
    versions = [{"numpy": "2.0", "torch": "2"}, {"numpy": "2.1", "torch": "2"}]
    assert told(database, {"lr": 1}, {"lr": 1}, packages=versions) == ["numpy=2.0", "numpy=2.1"]


def test_runs_that_are_alike_or_alone_are_told_apart_by_nothing(
    database: RunDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    database.runs.create("alone", Configuration({"lr": 1}))
    assert told(database, {"lr": 1}, {"lr": 1}) == ["", "", ""]
    assert main(["list"]) == 0
    assert "differs by" not in capsys.readouterr().out
