"""What is wrong with the arguments of tasks is told before anything is written."""

from __future__ import annotations

import pytest
from steps import MODEL, READ, READY, TRAIN, VARIABLES

from nnpipe.codegen import check_script

NETWORK = [
    {"class": "Input", "name": "row", "shape": [4]},
    {"class": "Dense", "units": 3, "name": "answer"},
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(framework, steps, extra=(), **more):
    """Check a description; give the code and the place of each problem."""
    described = {
        "script": "tried",
        "framework": framework,
        "networks": {"small": NETWORK},
        "variables": {**VARIABLES, **dict(extra)},
        "tasks": steps,
        **more,
    }
    return {(problem.code, problem.where) for problem in check_script(described).problems}


def test_what_one_framework_cannot_is_told(here):
    quantise = {
        "task": "quantise",
        "model": "done",
        "data": "data",
        "path": "a.tflite",
        "file": "small8",
    }
    assert told("pytorch", [MODEL, READ, READY, TRAIN, quantise], {"small8": "file"}) == {
        ("framework", "quantise")
    }
    masked = [
        {"class": "Input", "shape": [4]},
        {"class": "Embedding", "input_dim": 9, "output_dim": 3, "mask_zero": True},
    ]
    steps = [MODEL, {"task": "save", "model": "net", "path": "a"}]
    given = {"networks": {"small": masked}, "variables": {"net": "network"}}
    assert told("pytorch", steps, **given) == {("framework", "networks.small.embedding")}


def test_faults_in_files_and_plugins_are_told_before_anything_is_written(here):
    (here / "bad.py").write_text("def process_dataset(x): ...")
    (here / "broken.keras").write_bytes(b"no file of Keras's")
    steps = [
        {**MODEL, "weights": "nowhere.keras"},
        {**READ, "data": "raw", "test_fraction": 2},
        {"task": "process_dataset", "plugin": "bad.py", "samples": "raw", "data": "data"},
        READY | {"metrics": ["joy"], "momentum": 0.9},
        READY | {"name": "again", "metrics": 5},
        TRAIN | {"epochs": True},
        {"task": "checkpoint", "path": "a.pt", "monitor": "test_accuracy", "callback": "eye"},
        {"task": "unheard"},
        "no task",
        {"task": "save", "model": "done", "path": "x", "mode": "w", "file": None},
    ]
    networks = {
        "small": NETWORK,
        "other": {"file": "broken.keras"},
        "wrong": [{"class": "Dens", "units": 3}, 7],
    }
    assert told(
        "pytorch", steps, {"raw": "data", "eye": "callback"}, networks=networks, colour="red"
    ) >= {
        ("file", "load_model.weights"),
        ("argument", "load_npz.test_fraction"),
        ("plugin", "process_dataset.plugin"),
        ("argument", "compile.metrics"),
        ("argument", "compile.momentum"),
        ("argument", "again.metrics"),
        ("argument", "train.epochs"),
        ("argument", "checkpoint.path"),
        ("argument", "checkpoint.monitor"),
        ("unknown-task", "tasks[7].task"),
        ("structure", "tasks[8]"),
        ("argument", "save.mode"),
        ("file", "networks.other.file"),
        ("network", "networks.wrong.layers[0]"),
        ("network", "networks.wrong.layers[1]"),
        ("structure", "colour"),
    }


def test_samples_that_do_not_fit_are_told_before_the_script_runs(here):
    (here / "mine.py").write_text("def process_dataset(x, y):\n    return x, y\n")
    two = {**READ, "data": "raw", "inputs": ["x", "x"]}
    plugged = {"task": "process_dataset", "plugin": "mine.py", "samples": "raw", "data": "data"}
    assert told("pytorch", [MODEL, two, plugged, READY, TRAIN], {"raw": "data"}) == {
        ("argument", "process_dataset.samples")
    }
    assert told("pytorch", [MODEL, {**two, "data": "data"}, READY, TRAIN]) == {
        ("argument", "train.data")
    }
    assert told("pytorch", [MODEL, {**READ, "inputs": []}, READY, TRAIN]) == {
        ("argument", "load_npz.inputs")
    }


def test_a_script_is_not_called_as_what_it_imports(here):
    steps = [MODEL, {"task": "call", "function": "tried.parts:look", "arguments": ["net"]}]
    given = {"variables": {"net": "network"}}
    assert told("pytorch", steps, **given) == {("import", "call.function")}
    assert told("pytorch", steps, **given, script="other") == set()


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("epochs", 0, "0 is below the minimum 1"),
        ("epochs", 1 << 41, "2199023255552 is too large"),
        ("epochs", "3", "'3' is not an integer"),
        ("batch_size", None, "nothing given, expected an integer"),
        ("data", "", "must be a text, not ''"),
        ("model", "done\0", "must be a text, not 'done\\x00'"),
        ("model", "\ud800", "must be a text that can be written as UTF-8"),
        ("callbacks", [1], "1 is not a text"),
    ],
)
def test_faults_of_values_say_what_is_wrong(argument, value, message):
    described = {
        "script": "tried",
        "networks": {"small": NETWORK},
        "variables": VARIABLES,
        "tasks": [MODEL, READ, READY, {**TRAIN, argument: value}],
    }
    told = {problem.where: problem.message for problem in check_script(described).problems}
    assert told[f"train.{argument}"] == message
