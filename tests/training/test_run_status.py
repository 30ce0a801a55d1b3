"""A run's folder says how the training stands, while it runs and after whatever ended it."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import training_toys as toys

from nnpipe.core.errors import ConfigError, TrainingError
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.fit import TrainingRun
from nnpipe.training.optimization import AdamW
from nnpipe.training.options import TrainerOptions
from nnpipe.training.run_folder import RunFolder
from nnpipe.training.run_page import tell_end, write_run_page
from nnpipe.training.run_status import RunStatus, read_status, tell
from nnpipe.training.trainer import Trainer

HERE = Path(__file__).parent


def fit(folder: Path, *callbacks: Callback, **options: Any) -> Any:
    trainer = Trainer(TrainerOptions.from_json({"num_epochs": 2, **options}), callbacks)
    return trainer.fit(toys.fresh(), toys.sequences(), folder=folder, optimiser=AdamW(rate=0.01))


def status(folder: Path) -> RunStatus:
    found = read_status(RunFolder(folder))
    assert found is not None
    return found


class Look(Callback):
    """Notes what the file says after each batch, and raises at a step."""

    def __init__(self, folder: Path, at: int = 0, error: BaseException | None = None) -> None:
        self.folder, self.at, self.error, self.seen = folder, at, error, []

    def on_batch_end(self, fit: Any, batch: Any, outputs: Any) -> None:
        self.seen.append(status(self.folder))
        if fit.step == self.at and self.error is not None:
            raise self.error


def apart(command: str, folder: Path) -> subprocess.Popen[str]:
    """Begin something of this file, which is called ``t``, in a process of its own; a fork would
    have no threads.
    """
    script = (
        f"import test_run_status as t, pathlib, sys; folder = pathlib.Path(sys.argv[1]); {command}"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
    )


def test_it_says_how_far_a_training_is_and_that_it_is_through(tmp_path: Path) -> None:
    look = Look(tmp_path)
    history = fit(tmp_path, look, checkpoint_every=3)
    steps = int(history["step"][0])
    assert {seen.state for seen in look.seen} == {"running"}
    assert [seen.epoch for seen in look.seen] == [1] * steps + [2] * steps
    # Seen in a batch is what was last kept: the checkpoint after each third step, and the end of an
    # epoch.
    assert [seen.step for seen in look.seen][: steps + 1] == [n // 3 * 3 for n in range(steps)] + [
        steps
    ]
    end = status(tmp_path)
    assert (end.state, end.epoch, end.epochs, end.step, end.reason) == (
        "completed",
        2,
        2,
        2 * steps,
        "",
    )
    assert end.process == os.getpid()
    written = datetime.datetime.fromisoformat(end.changed)
    assert written.tzinfo is not None
    assert [seen.changed for seen in look.seen] == sorted(seen.changed for seen in look.seen)
    assert look.seen[-1].changed <= end.changed


def test_it_says_what_was_raised_and_then_that_it_goes_on(tmp_path: Path) -> None:
    with pytest.raises(TrainingError):
        fit(tmp_path, Look(tmp_path, 4, ValueError("<no luck>")))
    found = status(tmp_path)
    assert (found.state, found.epoch, found.step) == ("failed", 1, 4)
    assert "TrainingError: callback Look.on_batch_end failed in epoch 1, step 4" in found.reason
    assert found.reason.endswith("ValueError: <no luck>")
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, Look(tmp_path, 5, KeyboardInterrupt()))
    assert (status(tmp_path).state, status(tmp_path).reason) == ("cancelled", "KeyboardInterrupt")
    fit(tmp_path)
    assert (status(tmp_path).state, status(tmp_path).reason) == ("completed", "")


def test_it_says_why_a_training_ended_early(tmp_path: Path) -> None:
    fit(tmp_path, num_epochs=9, patience=1, min_delta=100.0)
    assert status(tmp_path).state == "completed"
    assert status(tmp_path).epoch == 2
    assert "did not get better" in status(tmp_path).reason


def test_a_training_that_is_refused_leaves_it_as_it_was(tmp_path: Path) -> None:
    fit(tmp_path)
    before = (tmp_path / "status.json").read_bytes()
    with pytest.raises(ConfigError, match="started with different settings"):
        fit(tmp_path, seed=3)
    claim = (
        "with RunFolder(Path(sys.argv[1])).lock_for_training({}, resume=False):\n    print('claimed', "
        "flush=True); input()"
    )
    script = (
        f"import sys\nfrom pathlib import Path\nfrom nnpipe.training.run_folder import "
        f"RunFolder\n{claim}"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "claimed\n"
        with pytest.raises(ConfigError, match="another training is writing"):
            fit(tmp_path)
        other.communicate("\n", timeout=200)
    assert other.returncode == 0
    assert (tmp_path / "status.json").read_bytes() == before


class Kill(Callback):
    """Ends the process it runs in at the end of the first epoch."""

    def on_epoch_end(self, fit: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow  # a start of PyTorch
def test_a_training_that_was_killed_stays_running_with_a_process_that_is_gone(
    tmp_path: Path,
) -> None:
    child = apart("t.fit(folder, t.Kill())", tmp_path)
    child.communicate(timeout=200)
    assert child.returncode == -signal.SIGKILL
    assert (status(tmp_path).state, status(tmp_path).process, status(tmp_path).epoch) == (
        "running",
        child.pid,
        1,
    )
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


def test_no_folder_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Trainer(TrainerOptions.from_json({"num_epochs": 1})).fit(toys.fresh(), toys.sequences())
    assert list(tmp_path.iterdir()) == []
    assert read_status(RunFolder(tmp_path)) is None


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"\xff",
        b"{}",
        b"[" * 90_000,
        json.dumps({"kind": "nnpipe run status", "schema": 2, "state": "running"}).encode(),
        json.dumps(
            {"kind": "nnpipe run status", "schema": 1, "state": "running", "more": 1}
        ).encode(),
        json.dumps({"kind": "nnpipe run status", "schema": 1, "state": "dancing"}).encode(),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "status.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"status\.json: not the status of a run"):
        read_status(RunFolder(tmp_path))


def test_an_empty_file_as_a_loss_of_power_leaves_it_is_no_status(tmp_path: Path) -> None:
    (tmp_path / "status.json").touch()
    assert read_status(RunFolder(tmp_path)) is None


def test_the_page_says_how_the_training_ended(tmp_path):
    """The page is written while the training is still under way, and again when its end is
    known.
    """
    fit = TrainingRun(
        model=None,
        optimiser=None,
        datasets={},
        folder=RunFolder(tmp_path),
        options=TrainerOptions(),
    )
    tell(fit, "running")
    write_run_page(tmp_path)
    assert "running" in fit.folder.page.read_text("utf-8")
    tell_end(fit, None)
    assert "completed" in fit.folder.page.read_text("utf-8")
    tell_end(fit, ValueError("no more"))
    assert "ValueError: no more" in fit.folder.page.read_text("utf-8")
