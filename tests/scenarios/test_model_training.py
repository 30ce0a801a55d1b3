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
from sketches import sketching

from nnpipe.experiment.database.database import RunDatabase
from nnpipe.scenarios.model_training import main

PARTS = ["PyTorchDigitsCNN", "DigitsDataset"]
EPOCHS = ["--num-epochs", "2", "--batch-size", "64", "--learning-rate", "0.005"]


def train(*more: str) -> int:
    return main([*PARTS, *EPOCHS, *more, "--verbosity", "error"])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    with sketching():
        assert train("--model-path", str(folder / "w.pt"), "--run-folder", str(folder / "run")) == 0
    return folder


@pytest.mark.slow
def test_a_run_folder_has_a_page_with_the_pictures_of_the_default_callbacks(
    undisturbed: Path,
) -> None:
    page = (undisturbed / "run" / "index.html").read_text()
    names = {path.name for path in (undisturbed / "run" / "pictures").iterdir()}
    assert names == {
        "history.png",
        "learning_rate.png",
        "samples-data-train.png",
        "samples-data-validation.png",
        "confusion-data-validation-output.png",
        "pr-data-validation-output.png",
        "roc-data-validation-output.png",
        "worst-data-train.png",
        "worst-data-train-samples.png",
        "worst-data-validation.png",
        "worst-data-validation-samples.png",
    } | {name for name in names if name.startswith("confusions-")}
    assert all(f"pictures/{name}" in page for name in names)


@pytest.mark.slow
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
        assert (tmp_path / "run" / "tables" / name).read_bytes() == (
            undisturbed / "run" / "tables" / name
        ).read_bytes()
    with RunDatabase(tmp_path / "runs.sqlite") as database:
        (run,) = database.runs.find("experiment = digits")
        assert (run.id, run.status, run.done) == (killed.id, "completed", 2)
        assert run.statistics["validation_accuracy"] > 0.9
        history = database.figures.history(run.id, "epochs")
        assert history["epoch"].tolist() == [1, 2]
        assert history["validation_accuracy"][-1] == run.statistics["validation_accuracy"]
        names = {artifact.name for artifact in database.artifacts.list(run.id)}
        assert names >= {"weights", "index.html", "checkpoints/best.state", "pictures/history.png"}
        assert (
            database.artifacts.path(run.id, "weights").read_bytes()
            == (tmp_path / "w.pt").read_bytes()
        )
        origins = {origin.path.rpartition(".")[2] for origin in database.origins(run.id)}
        assert origins == {*PARTS, "current folder"}
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
        (
            ["--callbacks", "NanWatch"],
            "NanWatch: callbacks write into a run's folder; give --run-folder",
        ),
        (
            ["--run-folder", "run", "--callbacks", "Nanwatch"],
            "did you mean nnpipe.training.callbacks.resource_monitor.NanWatch?",
        ),
        (["--experiment", "digits"], "need --database"),
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


@pytest.mark.slow
def test_a_run_is_begun_anew_where_that_is_asked_for(undisturbed: Path, tmp_path: Path) -> None:
    own = ["--model-path", str(tmp_path / "w.pt"), "--run-folder", str(tmp_path / "run")]
    assert train(*own, "--learning-rate", "0.002", "--callbacks", "none") == 0
    assert train(*own) == 2  # begun with another rate
    assert train(*own, "--no-resume", "--callbacks", "none") == 0
    assert (tmp_path / "w.pt").read_bytes() == (undisturbed / "w.pt").read_bytes()
    assert [path.name for path in (tmp_path / "run" / "tables").iterdir()] == ["final_weights.json"]
    assert sorted(path.name for path in (tmp_path / "run").iterdir() if path.name[0] != ".") == [
        "checkpoints",
        "run.json",
        "status.json",
        "tables",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model-path", "{}"], "{} is a folder: name a file in it"),
        (
            ["--model-path", "{}/file/w.pt"],
            "{}/file/w.pt cannot be written: {}/file is a file, not a folder",
        ),
        (["--model-path", "/proc/w.pt"], "/proc/w.pt cannot be written: "),
        (
            ["--model-path", "{}/w.pt", "--run-folder", "{}/file"],
            "{}/file is a file; a run needs a folder",
        ),
        (["--model-path", "{}/w.pt", "--run-folder", "/proc/run"], "/proc/run cannot be written: "),
    ],
)
def test_what_would_be_lost_at_the_end_is_told_at_once(
    options: list[str], message: str, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "file").write_text("")
    begin = time.process_time()
    many = ["--num-epochs", "100000", *(word.replace("{}", str(tmp_path)) for word in options)]
    assert main([*PARTS, *many, "--database", str(tmp_path / "runs.sqlite")]) == 2
    assert time.process_time() - begin < 20, "a training of so many epochs takes hours"
    said = capsys.readouterr().err
    assert message.replace("{}", str(tmp_path)) in said
    assert "Traceback" not in said
    assert {path.name for path in tmp_path.iterdir()} <= {
        "file",
        "runs.sqlite",
        "runs.artifacts",
        "runs",
    }


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says beforehand")
def test_a_disk_without_room_for_the_weights_is_told_at_once(tmp_path: Path) -> None:
    """With a run's folder, and without one."""
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); "
        + (
            "from nnpipe.scenarios.model_training import main; *given, more, folder = "
            "sys.argv[1:]; sys.exit(main(given) * 10 + main([*given, more, folder]))"
        )
    )
    given = [*PARTS, "--num-epochs", "100000", "--model-path", str(tmp_path / "w.pt")]
    command = [sys.executable, "-c", script, *given, "--run-folder", str(tmp_path / "run")]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert answer.returncode == 22, answer.stderr
    assert (
        answer.stderr.count("w.pt cannot be written: File too large; 0.3 MB are needed there") == 2
    ), answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_save_that_fails_all_the_same_keeps_the_weights_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from nnpipe.modelwrappers.classification.small_cnn import PyTorchDigitsCNN

    wanted, other = tmp_path / "there" / "w.pt", tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    save = PyTorchDigitsCNN.save

    def full(self: Any, live: Any, path: Any) -> Any:
        if Path(path) == wanted:
            raise OSError(28, "No space left on device")
        return save(self, live, path)

    monkeypatch.setattr(PyTorchDigitsCNN, "save", full)
    assert (
        main([*PARTS, "--num-epochs", "1", "--model-path", str(wanted), "--verbosity", "error"])
        == 2
    )
    said = capsys.readouterr().err
    (kept,) = other.rglob("w.pt")
    assert f"{wanted} cannot be written: No space left on device; it is kept as {kept}" in said
    PyTorchDigitsCNN().open(kept).close()


def test_the_best_weights_are_kept_where_asked_for_and_noted_beside_them(
    tmp_path: Path, capsys: Any
) -> None:
    from nnpipe.core.artifact import Artifact
    from nnpipe.datasets.digits import DigitsDataset
    from nnpipe.modelwrappers.classification.small_cnn import PyTorchDigitsCNN

    path = tmp_path / "w.pt"
    own = ["--model-path", str(path), "--run-folder", str(tmp_path / "run"), "--callbacks", "none"]
    assert (
        train(
            *own,
            "--weights",
            "best",
            "--learning-rate",
            "0.02",
            "--database",
            str(tmp_path / "r.sqlite"),
        )
        == 0
    )
    noted = Artifact.read(path).trained
    assert noted["weights"] == "best"
    assert f"the best weights, after epoch {noted['epoch']}: loss" in capsys.readouterr().out
    wrapper, data = PyTorchDigitsCNN(), DigitsDataset()
    inputs, truth = data.read(data.split("validation"))
    with wrapper.open(path).session() as session:
        found = session.infer(wrapper.preprocess(data.preprocess(inputs)))["scores"]
    accuracy = float((found.argmax(1) == truth["label"]).mean())
    assert accuracy == pytest.approx(noted["figures"]["validation_accuracy"])
    with RunDatabase(tmp_path / "r.sqlite") as database:
        (run,) = database.runs.find()
        assert run.statistics["validation_accuracy"] == noted["figures"]["validation_accuracy"]
