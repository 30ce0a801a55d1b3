"""Checkpoints: written in the background, errors where they are seen, and weights taken from them in part."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import training_toys as toys

from nnpipe.core.errors import ArtifactError
from nnpipe.experiment.statefile import read_state, write_state
from nnpipe.training.checkpoints import CheckpointWriter, copied, load_weights
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
    with pytest.raises(OSError, match="checkpoints"):
        Trainer().fit(toys.fresh(), toys.sequences(), folder=tmp_path)
    assert threading.active_count() < 20
    assert not [thread for thread in threading.enumerate() if thread.name == "checkpoints"]


def test_a_copy_does_not_follow_the_weights() -> None:
    model = toys.fresh()
    copy = copied({"m": dict(model.state_dict()), "l": [1, (torch.zeros(2),)]})
    before = toys.weights(model)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1)
    assert toys.equal(copy["m"], before)


def test_weights_are_loaded_in_part_and_under_other_names(tmp_path: Path) -> None:
    trained = toys.fresh()
    Trainer(TrainerOptions(num_epochs=1, ema_decay=0.9)).fit(trained, toys.sequences(), folder=tmp_path)
    path = tmp_path / "checkpoints" / "last.state"
    own, average = toys.fresh(4), toys.fresh(4)
    assert len(load_weights(path, own, average=False)) == len(own.state_dict())
    assert toys.equal(toys.weights(own), toys.weights(trained))
    load_weights(path, average)
    assert not toys.equal(toys.weights(average), toys.weights(own))

    wider = toys.Net(classes=5)
    head = wider.layers[4].weight.detach().clone()
    with pytest.raises(ArtifactError, match=r"last\.state: not the weights of this Net: layers\.4\.bias, layers\.4\.w"):
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
