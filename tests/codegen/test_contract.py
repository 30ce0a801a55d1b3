"""Every task that comes with nnpipe keeps the contract of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from steps import MODEL, READ, READY, TRAIN, VARIABLES

from nnpipe.codegen.description import list_task_classes
from nnpipe.codegen.script_task import ScriptTask
from nnpipe.testing.script_task import ScriptTaskContract

NETWORK = [
    {"class": "Input", "name": "row", "shape": [4]},
    {"class": "Dense", "units": 3, "name": "answer"},
]
PLUGIN = (
    "def process_dataset(x, y):\n    return x, y\n\n\ndef load_test_data(path):\n    return path, "
    "None, 1\n"
)
PLUGIN += "\n\ndef process_model_output(model_input, model_output):\n    return None\n"
BEGIN, SAVE = (MODEL, READ, READY), {"task": "save", "model": "net", "path": "same"}
RAW = {"task": "process_dataset", "plugin": "mine.py", "samples": "raw", "data": "data"}
SEEN = {"task": "load_test_data", "plugin": "mine.py", "path": "rows.npz", "samples": "seen"}
GIVEN = {
    "task": "inference",
    "model": "net",
    "samples": "seen",
    "path": "given.csv",
    "outputs": "given",
}
SMALL = {
    "task": "quantise",
    "model": "net",
    "data": "data",
    "path": "rows.tflite",
    "file": "small8",
}
KINDS = {
    **VARIABLES,
    "raw": "data",
    "seen": "samples",
    "given": "outputs",
    "small8": "file",
    "edge": "file",
}
KINDS |= {"watch": "callback", "bigger": "network"}


def watched(task: str, **more: Any) -> list[dict[str, Any]]:
    return [*BEGIN, {"task": task, "callback": "watch", **more}, {**TRAIN, "callbacks": ["watch"]}]


SCRIPTS: dict[str, list[dict[str, Any]]] = {
    "load_model": [MODEL, SAVE],
    "load_npz": [*BEGIN, TRAIN],
    "load_csv": [
        MODEL,
        {"task": "load_csv", "path": "rows.csv", "target": "kind", "data": "data"},
        READY,
        TRAIN,
    ],
    "load_sklearn": [
        MODEL,
        {"task": "load_sklearn", "dataset": "iris", "data": "data"},
        READY,
        TRAIN,
    ],
    "load_images": [
        MODEL,
        {"task": "load_images", "path": "pictures", "size": [2, 2], "data": "data"},
        READY,
        TRAIN,
    ],
    "process_dataset": [{**READ, "data": "raw"}, RAW, MODEL, READY, TRAIN],
    "load_test_data": [MODEL, SEEN, GIVEN],
    "inference": [MODEL, SEEN, GIVEN],
    "process_model_output": [
        MODEL,
        SEEN,
        GIVEN,
        {"task": "process_model_output", "plugin": "mine.py", "outputs": "given"},
    ],
    "compile": [*BEGIN, TRAIN],
    "train": [*BEGIN, TRAIN],
    "evaluate": [*BEGIN, {"task": "evaluate", "compiled": "ready", "data": "data"}],
    "save": [MODEL, SAVE],
    "apply_delta": [
        MODEL,
        {"task": "apply_delta", "model": "net", "network": "small", "changed": "bigger"},
        {**SAVE, "model": "bigger"},
    ],
    "checkpoint": watched("checkpoint", path="best"),
    "early_stopping": watched("early_stopping"),
    "csv_logger": watched("csv_logger", path="table.csv"),
    "tensorboard_logger": watched("tensorboard_logger", folder="board"),
    "progress": watched("progress"),
    "quantise": [MODEL, READ, SMALL],
    "compile_edge_tpu": [
        MODEL,
        READ,
        SMALL,
        {"task": "compile_edge_tpu", "quantised": "small8", "file": "edge"},
    ],
    "call": [MODEL, {"task": "call", "function": "pprint:pprint", "arguments": ["net"]}],
}


def own() -> dict[str, type[ScriptTask]]:
    return {
        name: cls
        for name, cls in list_task_classes().items()
        if cls.__module__.startswith("nnpipe.")
    }


class TestEveryTask(ScriptTaskContract):
    @pytest.fixture(params=sorted(own()))
    def task(self, request: pytest.FixtureRequest) -> type[ScriptTask]:
        return list_task_classes()[request.param]

    @pytest.fixture
    def script(
        self, task: type[ScriptTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Mapping[str, Any]:
        monkeypatch.chdir(tmp_path)
        Path("mine.py").write_text(PLUGIN, "utf-8")
        steps = SCRIPTS[task.task]
        used = {
            name
            for step in steps
            for value in step.values()
            for name in (value if isinstance(value, list) else [value])
            if isinstance(name, str)
        }
        variables = {name: kind for name, kind in KINDS.items() if name in used}
        return {
            "script": "tried",
            "framework": "pytorch",
            "networks": {"small": NETWORK},
            "variables": variables,
            "tasks": steps,
        }


def test_no_task_is_forgotten() -> None:
    assert set(SCRIPTS) == set(own())
    assert len(own()) > 18
