"""Checkpoints: written in the background, errors where they are seen, and weights taken from
them in part.
"""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import training_toys as toys

from nnpipe.core.errors import ArtifactError, ConfigError, TrainingError
from nnpipe.experiment.state_file import read_state, write_state
from nnpipe.training import checkpoints
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.checkpoints import CheckpointWriter, copy_state, load_weights
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer


def test_states_are_written_in_the_background(tmp_path: Path) -> None:
    writer = CheckpointWriter()
    writer.write(tmp_path / "a.state", {"x": 1}, "k")
    writer.write(tmp_path / "b.state", {"x": 2}, "k")
    writer.close()
    assert [read_state(tmp_path / f"{name}.state", kind="k")["x"] for name in "ab"] == [1, 2]


def test_the_training_does_not_wait_and_the_newest_counts() -> None:
    begun, go, written = threading.Event(), threading.Event(), []

    def slow(path: Path, state: Any, kind: str) -> None:
        begun.set()
        assert go.wait(30)
        written.append((path.name, state["x"]))

    writer = CheckpointWriter(slow)
    writer.write(Path("last"), {"x": 0}, "k")
    assert begun.wait(30)
    writer.write(Path("last"), {"x": 1}, "k")
    writer.write(Path("best"), {"x": 9}, "k")
    writer.write(Path("last"), {"x": 4}, "k")
    assert written == []
    go.set()
    writer.close()
    assert written == [("last", 0), ("best", 9), ("last", 4)]


@pytest.mark.parametrize("asking", ["check", "close"])
def test_errors_of_the_background_are_raised_in_the_training(asking: str) -> None:
    def full(path: Path, state: Any, kind: str) -> None:
        raise OSError(28, "No space left on device")

    writer = CheckpointWriter(full)
    writer.write(Path("last"), {}, "k")
    while asking == "check" and writer._error is None:
        threading.Event().wait(0.01)
    with pytest.raises(OSError, match="No space left"):
        getattr(writer, asking)()
    writer.close()


def test_a_folder_that_cannot_be_written_stops_the_training(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file")
    with pytest.raises(ConfigError, match=r"checkpoints is a file: name a folder"):
        Trainer(callbacks=()).fit(toys.fresh(), toys.sequences(), folder=tmp_path)
    assert threading.active_count() < 20
    assert not [thread for thread in threading.enumerate() if thread.name == "checkpoints"]


def test_a_copy_does_not_follow_the_weights() -> None:
    model = toys.fresh()
    copy = copy_state({"m": dict(model.state_dict()), "l": [1, (torch.zeros(2),)]})
    before = toys.weights(model)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1)
    assert toys.equal(copy["m"], before)


def test_weights_are_loaded_in_part_and_under_other_names(tmp_path: Path) -> None:
    trained = toys.fresh()
    Trainer(TrainerOptions(num_epochs=1, ema_decay=0.9, weights="last"), ()).fit(
        trained, toys.sequences(), folder=tmp_path
    )
    path = tmp_path / "checkpoints" / "last.state"
    own, average = toys.fresh(4), toys.fresh(4)
    assert len(load_weights(path, own, average=False)) == len(own.state_dict())
    assert toys.equal(toys.weights(own), toys.weights(trained))
    load_weights(path, average)
    assert not toys.equal(toys.weights(average), toys.weights(own))

    wider = toys.Net(classes=5)
    head = wider.layers[4].weight.detach().clone()
    with pytest.raises(
        ArtifactError,
        match=r"last\.state: not the weights of this Net: layers\.4\.bias, layers\.4\.w",
    ):
        load_weights(path, wider)
    loaded = load_weights(path, wider, partial=True, average=False)
    assert "layers.0.weight" in loaded
    assert "layers.4.weight" not in loaded
    assert torch.equal(wider.layers[4].weight, head)
    assert torch.equal(wider.layers[0].weight, trained.layers[0].weight)

    class Renamed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = toys.Net().layers

    renamed = Renamed()
    load_weights(path, renamed, names={"layers.": "body."}, average=False)
    assert torch.equal(renamed.body[0].weight, trained.layers[0].weight)


def test_foreign_files_hold_no_weights(tmp_path: Path) -> None:
    write_state(tmp_path / "x.state", {"a": 1}, kind="other")
    with pytest.raises(ArtifactError, match=r"x\.state"):
        load_weights(tmp_path / "x.state", toys.fresh())


@pytest.mark.parametrize("where", ["checkpoint", "status", "rows"])
def test_a_disk_that_fills_up_amid_a_training_costs_no_weights(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    run, model = tmp_path / "run", toys.fresh()
    options = TrainerOptions(num_epochs=4)

    class Filling(Callback):
        """Makes the folder take no more in the third epoch."""

        def on_epoch_begin(self, fit: Any) -> None:
            if fit.epoch == 3:
                name = {
                    "checkpoint": "nnpipe.training.checkpoints.write_state",
                    "status": "nnpipe.training.run_status.write_text",
                    "rows": "nnpipe.training.checkpoints.RowFiles.put",
                }[where]

                def full(*_: Any, **__: Any) -> None:
                    raise OSError(28, "No space left on device")

                if where == "checkpoint":
                    writer._write = full
                else:
                    monkeypatch.setattr(name, full)

    made = CheckpointWriter.__init__

    def noticed(self: Any, *arguments: Any) -> None:
        nonlocal writer
        made(self, *arguments)
        writer = self

    writer: Any = None
    monkeypatch.setattr(CheckpointWriter, "__init__", noticed)
    with pytest.raises(
        TrainingError,
        match=r"run cannot be written: No space left on device; the weights .* are kept as",
    ):
        Trainer(options, [Filling()]).fit(model, toys.sequences(), folder=run)
    (kept,) = other.rglob("rescued.state")
    restored = toys.fresh(9)
    load_weights(kept, restored)
    assert toys.equal(toys.weights(restored), toys.weights(model))
    monkeypatch.undo()
    # and it goes on
    assert len(Trainer(options, ()).fit(toys.fresh(), toys.sequences(), folder=run)) == 4


def test_of_a_large_state_there_is_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LARGE", 1000)
    written, go = [], threading.Event()

    def slow(path: Path, state: Any, kind: str) -> None:
        assert go.wait(30)
        written.append(float(state["x"][0]))

    writer = CheckpointWriter(slow)
    places = []
    for number in range(3):
        copy = writer.copy_state({"x": torch.full((1000,), float(number))})
        places.append(copy["x"].data_ptr())
        writer.write(Path("last"), copy, "k")
        go.set()
    writer.close()
    assert written == [0.0, 1.0, 2.0]  # none was changed while it was being written
    assert len(set(places)) == 1
