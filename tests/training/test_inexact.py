"""A training whose batches depend on time says that it cannot be continued to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
import training_toys as toys
from sketches import sketching

from nnpipe.experiment.state_file import read_state
from nnpipe.training.checkpoints import CHECKPOINT
from nnpipe.training.options import TrainerOptions
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.trainer import Trainer


def trained(folder: Path | None, reservoir: bool) -> dict[str, Any]:
    train: Any = ArraySequence(toys.blobs(64), batch=16)
    train = train.reservoir(32, 16).max_samples(48) if reservoir else train.max_samples(48)
    test = ArraySequence(toys.blobs(16, 1), batch=16)
    data = {"blobs": {"train": train, "test": test}}
    with sketching():
        Trainer(TrainerOptions(num_epochs=2, checkpoint_every=1)).fit(
            toys.fresh(), data, folder=folder
        )
    train.close()
    return (
        {} if folder is None else read_state(folder / "checkpoints" / "last.state", kind=CHECKPOINT)
    )


@pytest.mark.slow
def test_a_reservoir_is_told_once_by_name_and_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert trained(tmp_path, reservoir=True)["inexact"] == ["blobs/train (ReservoirSequence)"]
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.getMessage() == (
        "what blobs/train (ReservoirSequence) gives depends on time: "
        "if this run is killed it can go on, but not to the bit"
    )


def test_nothing_is_said_where_all_is_exact_or_nothing_is_kept(tmp_path: Path, caplog: Any) -> None:
    assert trained(tmp_path, reservoir=False)["inexact"] == []
    trained(None, reservoir=True)
    assert not caplog.records
