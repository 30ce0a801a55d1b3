"""Experiments from a file, by command line: recorded, and gone on with after a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
from sketches import sketching

from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.records import RunRecord
from nnpipe.experiment.state_file import read_state
from nnpipe.scenarios.experiment import main
from nnpipe.training.checkpoints import CHECKPOINT

FILE = Path(__file__).parents[2] / "examples" / "experiment.yaml"
FEWER = [
    "--set",
    "trainer.arguments.options.arguments.num_epochs=3",
    "--set",
    "digits.arguments.test_fraction=0.7",
]
FEWER += ["--verbosity", "error"]


PLAIN = [
    "--set",
    "trainer.arguments.callbacks="
    + json.dumps(
        [
            {"class": f"nnpipe.training.callbacks.{name}"}
            for name in ("epoch_summary.EpochSummary", "run_page.RunPage")
        ]
    ),
]
"""Without the callbacks that draw, which take most of the time; tests of callbacks kill
trainings with all of them.
"""


def run_of(folder: Path, name: str = "experiment") -> RunRecord:
    with RunDatabase(folder / "runs.sqlite") as database:
        (run,) = database.runs.find(f"experiment = {name}")
    return run


TIMED = {
    "session",
    "tables/epochs.txt",
    "checkpoints/last.state",
    "index.html",
    "status.json",
    "checkpoints/callbacks.EpochSummary.state.lines.jsonl",
}
"""Files that hold times, or states that hold them."""


def outcome(folder: Path) -> Any:
    """Return all that a run led to, bit by bit."""
    run = run_of(folder)
    with RunDatabase(folder / "runs.sqlite") as database:
        rows = list(database.figures.history(run.id, "steps").rows())
        digests = {a.name: a.digest for a in database.artifacts.list(run.id)}
    state = read_state(
        folder / "runs" / "experiment" / "checkpoints" / "last.state", kind=CHECKPOINT
    )
    weights = {name: np.asarray(value).tobytes() for name, value in state["model"].items()}
    return (
        rows,
        run.statistics,
        weights,
        {name: d for name, d in digests.items() if name not in TIMED},
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([str(FILE), *FEWER]) == 0
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an experiment whose pictures are not rendered."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch, sketching():
        patch.chdir(folder)
        assert main([str(FILE), *FEWER]) == 0
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([str(FILE), *FEWER, *PLAIN]) == 0
    return folder


def test_an_experiment_without_code_is_carried_out_and_recorded(recorded: Path) -> None:
    run = run_of(recorded)
    assert (run.status, run.done, run.total) == ("completed", 3, 3)
    assert run.statistics["digits/test/digit/accuracy"] > 0.6
    assert Configuration(run.configuration) == Configuration.read(FILE).with_changes(
        FEWER[1], FEWER[3]
    )
    with RunDatabase(recorded / "runs.sqlite") as database:
        history = database.figures.history(run.id, "steps")
        assert history["epoch"].tolist() == [1, 2, 3]
        assert (
            history["digits/test/digit/accuracy"][-1]
            == run.statistics["digits/test/digit/accuracy"]
        )
        names = {artifact.name for artifact in database.artifacts.list(run.id)}
        assert names >= {"session", "index.html", "checkpoints/best.state", "pictures/history.png"}
        origins = {origin.path: origin for origin in database.origins(run.id)}
    assert origins["torch.nn.Linear"].package == "torch"
    assert "nnpipe.training.experiment.Training" in origins
    assert run.environment["packages"]["torch"]


def test_a_completed_experiment_is_not_run_again(
    recorded: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(recorded)
    before = run_of(recorded)
    assert main([str(FILE), *FEWER]) == 0
    assert run_of(recorded) == before
    assert f"nnpipe runs show {before.id[:12]}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("amid", "changes", "expected"),
    [
        pytest.param(True, PLAIN, "plain", marks=pytest.mark.slow),
        pytest.param(True, [], "undisturbed", marks=pytest.mark.slow),
        pytest.param(False, [], "undisturbed", marks=pytest.mark.slow),
    ],
    ids=["amid-plain", "amid", "between"],
)
def test_a_killed_experiment_goes_on_to_the_same_bits(
    tmp_path: Path,
    amid: bool,
    changes: list[str],
    expected: str,
    monkeypatch: Any,
    request: pytest.FixtureRequest,
) -> None:
    whole = request.getfixturevalue(expected)
    monkeypatch.chdir(tmp_path)
    words = [str(FILE), *FEWER, *changes]
    process = subprocess.Popen([sys.executable, "-m", "nnpipe", "experiment", *words], cwd=tmp_path)
    table = (
        tmp_path
        / "runs"
        / "experiment"
        / ("checkpoints/last.state" if amid else "tables/history.csv")
    )
    end = time.monotonic() + 300
    while not table.exists() and time.monotonic() < end:
        assert process.poll() is None
        time.sleep(0.005)
    process.kill()
    assert process.wait(10) == -signal.SIGKILL
    killed = run_of(tmp_path)
    assert killed.status == "running"
    assert main(words) == 0
    assert run_of(tmp_path).id == killed.id
    assert outcome(tmp_path) == outcome(whole)


@pytest.mark.slow
def test_where_the_folder_is_gone_it_begins_anew_with_fresh_weights(
    plain: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    import shutil

    from nnpipe.training.callbacks.history import EpochSummary

    def breaks(self: Any, fit: Any) -> None:
        if fit.epoch == 2:
            raise ZeroDivisionError("here")

    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(EpochSummary, "on_epoch_begin", breaks)
        assert main([str(FILE), *FEWER, *PLAIN]) == 2
    assert "callback EpochSummary.on_epoch_begin failed in epoch 2" in capsys.readouterr().err
    assert run_of(tmp_path).status == "failed"
    shutil.rmtree(tmp_path / "runs")
    assert main([str(FILE), *FEWER, *PLAIN]) == 0
    assert outcome(tmp_path) == outcome(plain)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "network.arguments.outputs.digit.arguments.target=kind",
            "a batch has no 'kind'; it has image, label",
        ),
        (
            "network.arguments.outputs.digit.arguments.output=os.path.join",
            "os.path.join is no Output",
        ),
        ("network.arguments.outputs={}", "without an output there is nothing to learn"),
        (
            "experiment.arguments.datasets={digits: {reference: train}}",
            "sequences by data set and split",
        ),
        ("experiment.arguments.trainer=1", "trainer is a int, no Trainer"),
        ("optimiser.arguments.rate=-1", "optimiser"),
        ("seed=-1", "seed: expected a whole number from 0 to below 2 to the power of 63, found -1"),
        ("schedule.class=nnpipe.training.optimization.Cosin", "schedule.class"),
    ],
)
def test_what_cannot_be_carried_out_is_one_line(
    change: str, message: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(FILE), "--set", change, "--verbosity", "error"]) == 2
    said = [
        line
        for line in capsys.readouterr().err.splitlines()
        if line.startswith("nnpipe experiment: ")
    ]
    assert len(said) == 1
    assert message in said[0]
    assert run_of(tmp_path).status == "failed"


def test_another_setting_needs_another_name(recorded: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(recorded)
    assert main([str(FILE), *FEWER, "--set", "seed=2"]) == 2
    assert "take another name" in capsys.readouterr().err
