"""Sweeps by workers in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tools.installed import needs

from nnpipe.datasets.arrays import write_arrays
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.scenarios.sweep import main
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.testing.model_files import write_onnx_classifier

needs("sqlalchemy", "onnx", "onnxruntime")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in ("NNPIPE_RUNS", "NNPIPE_STORAGE"):
        monkeypatch.delenv(variable, raising=False)
    labels = np.arange(60) % 4
    samples = np.random.default_rng(0).normal(labels[:, None], 0.1, (60, 6)).astype(np.float32)
    model = write_onnx_classifier(tmp_path / "model.onnx", samples, labels)
    settings = {
        "title": "small",
        "output": "out",
        "dataset": write_arrays(Path("data"), {"image": samples}, labels).describe(),
        "models": [
            {
                "title": "m",
                "class": "ONNXModel",
                "arguments": {"model_path": str(model), "scale": 1},
            }
        ],
        "runtimes": ["ONNXRuntime"],
        "as_trained": False,
        "batch_sizes": [1, 2],
        "measure": {"measure_seconds": 0.01, "measure_samples": 4},
        "verify": {"verify_samples": 0},
    }
    (tmp_path / "sweep.json").write_text(json.dumps(settings), "utf-8")
    return tmp_path


@pytest.mark.slow
def test_each_point_is_measured_once_by_workers_and_the_winner_again(
    folder: Path, capsys: Any
) -> None:
    assert main(["sweep.json", "--workers", "2"]) == 0
    assert "chosen by latency_median: m · ONNXRuntime" in capsys.readouterr().out
    results = {path: path.stat().st_mtime_ns for path in Path("out", "results").glob("*.json")}
    assert len(results) == 2
    assert Path("out", "certificate.json").is_file()
    assert not [*Path("out").rglob("fetched"), *Path("build").rglob("fetched")]
    with RunDatabase("runs.sqlite") as database:
        trials = DatabaseTrials(database, "small: points").trials()
    assert [(trial.state, "again" in (trial.configuration or {})) for trial in trials] == [
        ("finished", False),
        ("finished", False),
        ("finished", True),
    ]
    # Without workers, the same sweep is done already, and more points are added to it.
    assert main(["sweep.json", "batch_sizes=[1, 2, 4]"]) == 0
    after = {path: path.stat().st_mtime_ns for path in Path("out", "results").glob("*.json")}
    assert results.items() <= after.items()
    assert len(after) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--on", "ssh:box"], "a file of SQLite is for one machine"),
        (["--workers", "2", "budget=50 %"], "budget: is for one machine"),
        (["--on", "box"], "box: expected here, ssh:HOST, ssh://USER@HOST:PORT or ray"),
    ],
)
def test_what_workers_cannot_do_is_one_line(
    folder: Path, words: list[str], said: str, capsys: Any
) -> None:
    assert main(["sweep.json", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
