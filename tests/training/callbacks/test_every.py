"""What holds of every callback: it changes nothing of a training, and a kill changes nothing of what it writes."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
for needed in ("safetensors", "matplotlib", "sklearn", "captum", "onnxruntime", "onnxscript", "tensorboardX", "PIL"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")
import every
import training_toys as toys

from nnpipe.experiment.statefile import read_state
from nnpipe.training._random import random_states
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.choosing import callback_classes
from nnpipe.training.optimization import AdamW, Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer

_CLOCKS = {
    "index.html",
    "status.json",
    "tables/epochs.txt",
    "tables/profile.txt",
    "profile/trace.json.gz",
    "tensorboard/events.out.tfevents.run",
}
"""Files that tell times, or how large those are that do."""


class Spy(Callback):
    """Notes, at each step, what the random generators and the model's modes are."""

    def __init__(self) -> None:
        self._noted: list[str] = []

    def _note(self, fit: Any) -> None:
        modes = "".join(str(int(layer.training)) for layer in fit.model.modules())
        self._noted.append(hashlib.sha256((repr(flat(random_states("cpu"))) + modes).encode()).hexdigest())

    def on_epoch_begin(self, fit: Any) -> None:
        self._note(fit)

    def on_batch_begin(self, fit: Any, batch: Any) -> None:
        self._note(fit)

    def on_batch_end(self, fit: Any, batch: Any, outputs: Any) -> None:
        self._note(fit)

    def on_evaluate_batch(self, fit: Any, dataset: str, split: str, batch: Any, outputs: Any) -> None:
        self._note(fit)


def flat(state: Any) -> Any:
    """Return a state in which everything can be compared by ``==``, bit by bit."""
    if isinstance(state, dict):
        return {name: flat(value) for name, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [flat(value) for value in state]
    if isinstance(state, (torch.Tensor, np.ndarray)):
        array = np.asarray(state)
        return [str(array.dtype), list(array.shape), array.tobytes()]
    return state


def train(folder: Path, *callbacks: Callback) -> dict[str, Any]:
    """Train, and give all that a callback could have changed."""
    spy, model, data = Spy(), every.model(), every.data()
    trainer = Trainer(TrainerOptions.from_json({"num_epochs": 2, "clip_norm": 1.0}), [*callbacks, spy])
    before = flat(random_states("cpu"))
    history = trainer.fit(model, data, folder=folder, optimiser=AdamW(rate=0.01), schedule=Cosine(warmup=2))
    assert flat(random_states("cpu")) == before
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules())
    state = read_state(folder / "checkpoints" / "last.state", kind="training checkpoint")
    del state["callbacks"]
    return {
        "weights": flat(toys.weights(model)),
        "history": [dict(row) for row in history.rows()],
        "noted": spy._noted,
        "checkpoint": flat(state),
        "gradients": [p.requires_grad for p in model.parameters()],
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train(tmp_path_factory.mktemp("alone"))


def test_every_callback_is_here() -> None:
    assert list(callback_classes()) == sorted(every.named()), "tests/training/callbacks/every.py lacks a new callback"


@pytest.mark.parametrize("name", every.named())
def test_a_callback_changes_nothing(name: str, alone: dict[str, Any], tmp_path: Path) -> None:
    found = train(tmp_path, every.made(name))
    assert [key for key in alone if found[key] != alone[key]] == []


def test_that_test_sees_what_a_callback_changes(alone: dict[str, Any], tmp_path: Path) -> None:
    class Meddler(Callback):
        def on_batch_end(self, fit: Any, batch: Any, outputs: Any) -> None:
            torch.rand(())

    found = train(tmp_path, Meddler())
    assert {"weights", "history", "noted", "checkpoint"} <= {key for key in alone if found[key] != alone[key]}


def files(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("kills", "rendered"),
    [
        ([["batch", 7], ["end", 0]], False),
        pytest.param([["batch", 7], ["end", 0]], True, marks=pytest.mark.slow),
        pytest.param([["batch", 2], ["write", 9], ["batch", 4], ["end", 0]], True, marks=pytest.mark.slow),
    ],
)
def test_a_run_killed_with_all_callbacks_ends_with_the_same_weights_history_and_files(
    kills: list[list[Any]], rendered: bool, tmp_path: Path
) -> None:
    folders = {tmp_path / "whole": [], tmp_path / "killed": kills}
    (expected, _), (found, times) = toys.killed("callbacks", folders, 1200, rendered)
    assert times == len(kills)
    assert flat(found) == flat(expected)
    own, others = files(tmp_path / "killed"), files(tmp_path / "whole")
    assert sorted(own) == sorted(others)
    assert len(own) > 50
    differ = {name for name in own if own[name].read_bytes() != others[name].read_bytes()}
    # A checkpoint holds the lines of the summary, with their times; its weights are compared above.
    lines = "checkpoints/callbacks.EpochSummary.state.lines.jsonl"
    assert differ <= _CLOCKS | {"checkpoints/last.state", "checkpoints/epoch-0002.state", lines}
