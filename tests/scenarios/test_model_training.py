"""Training by command line: the run's folder, going on after a kill, and the run database."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.scenarios.model_training import main

PARTS = ["PyTorchDigitsCNN", "DigitsDataset"]
EPOCHS = ["--num-epochs", "3", "--batch-size", "128", "--learning-rate", "0.005"]


def train(*more: str) -> int:
    return main([*PARTS, *EPOCHS, *more, "--verbosity", "error"])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert train("--model-path", str(folder / "w.pt"), "--run-folder", str(folder / "run")) == 0
    return folder


def test_a_run_folder_has_a_page_with_the_pictures_of_the_default_callbacks(undisturbed: Path) -> None:
    page = (undisturbed / "run" / "index.html").read_text()
    names = {path.name for path in (undisturbed / "run" / "pictures").iterdir()}
    assert names == {
        "history.png", "learning_rate.png", "samples-data-train.png", "samples-data-validation.png",
        "confusion-data-validation-output.png", "roc-data-validation-output.png",
        "worst-data-train.png", "worst-data-train-samples.png",
        "worst-data-validation.png", "worst-data-validation-samples.png",
    } | {name for name in names if name.startswith("confusions-")}  # fmt: skip
    assert all(f"pictures/{name}" in page for name in names)


def test_a_killed_training_goes_on_to_the_same_weights_and_is_one_recorded_run(
    undisturbed: Path, tmp_path: Path, capsys: Any
) -> None:
    own = ["--model-path", str(tmp_path / "w.pt"), "--run-folder", str(tmp_path / "run")]
    own += ["--database", str(tmp_path / "runs.sqlite"), "--experiment", "digits"]
    command = [sys.executable, "-m", "nnpipe.scenarios.model_training", *PARTS, *EPOCHS, *own]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 300
    while not (tmp_path / "run" / "checkpoints" / "last.state").exists() and time.monotonic() < end:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    assert process.wait(10) == -signal.SIGKILL
    assert not (tmp_path / "w.pt").exists()
    with RunDatabase(tmp_path / "runs.sqlite") as database:
        (killed,) = database.runs.find()
        assert killed.status == "running"
    assert train(*own, "--resume") == 0
    assert (tmp_path / "w.pt").read_bytes() == (undisturbed / "w.pt").read_bytes()
    for name in ("history.csv", "worst-data-train.json", "datasets.json", "learning_rate.json"):
        assert (tmp_path / "run" / "tables" / name).read_bytes() == (undisturbed / "run" / "tables" / name).read_bytes()
    with RunDatabase(tmp_path / "runs.sqlite") as database:
        (run,) = database.runs.find("experiment = digits")
        assert (run.id, run.status, run.done) == (killed.id, "completed", 3)
        assert run.statistics["validation_accuracy"] > 0.9
        history = database.figures.history(run.id, "epochs")
        assert history["epoch"].tolist() == [1, 2, 3]
        assert history["validation_accuracy"][-1] == run.statistics["validation_accuracy"]
        names = {artifact.name for artifact in database.artifacts.list(run.id)}
        assert names >= {"weights", "index.html", "checkpoints/best.state", "pictures/history.png"}
        assert database.artifacts.path(run.id, "weights").read_bytes() == (tmp_path / "w.pt").read_bytes()
        origins = {origin.path.rpartition(".")[2] for origin in database.origins(run.id)}
        assert origins == set(PARTS)
    said = capsys.readouterr().out
    assert f"recorded: run {run.id[:12]}" in said
    assert str(tmp_path / "run" / "index.html") in said


def test_a_training_that_fails_is_recorded_with_the_reason(tmp_path: Path, capsys: Any) -> None:
    own = ["--model-path", str(tmp_path / "w.pt"), "--database", str(tmp_path / "runs.sqlite")]
    assert train(*own, "--learning-rate", "1e30") == 2
    with RunDatabase(tmp_path / "runs.sqlite") as database:
        (run,) = database.runs.find()
        assert run.experiment == "PyTorchDigitsCNN on DigitsDataset"
        assert run.status == "failed"
        assert "use a smaller learning rate" in run.reason
    assert not (tmp_path / "w.pt").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--callbacks", "NanWatch"], "NanWatch: callbacks write into a run's folder; give --run-folder"),
        (["--run-folder", "run", "--callbacks", "Nanwatch"], "did you mean NanWatch?"),
        (["--experiment", "digits"], "give --database, too"),
        (["--database", "nowhere://"], "nowhere://"),
    ],
)
def test_what_cannot_work_is_one_line(
    more: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*PARTS, "--model-path", "w.pt", *more, "--verbosity", "error"]) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert "\n" not in said
    assert not list(tmp_path.glob("*"))


def test_a_run_is_begun_anew_where_that_is_asked_for(undisturbed: Path, tmp_path: Path) -> None:
    own = ["--model-path", str(tmp_path / "w.pt"), "--run-folder", str(tmp_path / "run")]
    assert train(*own, "--learning-rate", "0.002", "--callbacks", "none") == 0
    assert train(*own) == 2  # begun with another rate
    assert train(*own, "--no-resume", "--callbacks", "none") == 0
    assert (tmp_path / "w.pt").read_bytes() == (undisturbed / "w.pt").read_bytes()
    assert sorted(path.name for path in (tmp_path / "run").iterdir() if path.name[0] != ".") == [
        "checkpoints", "run.json", "status.json",
    ]  # fmt: skip
