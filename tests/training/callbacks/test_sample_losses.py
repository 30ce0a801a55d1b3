"""The losses of all samples in all epochs, and what a training takes of the machine."""
# ruff: noqa: E402  (what needs PyTorch is imported where it is there)

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
import training_toys as toys

from nnpipe.core.errors import ConfigError, TrainingError
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.callbacks.resource_monitor import ResourceMonitor
from nnpipe.training.callbacks.sample_losses import SampleLosses, build_loss_matrix
from nnpipe.training.options import TrainerOptions
from nnpipe.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("sketched")


def fit(folder: Path, *callbacks: Callback, model: Any = None, epochs: int = 3) -> Any:
    trainer = Trainer(TrainerOptions(num_epochs=epochs, checkpoint_every=1), callbacks)
    return trainer.fit(model or toys.fresh(), toys.sequences(32, 20), folder=folder)


def test_all_samples_of_all_epochs_are_there(tmp_path: Path) -> None:
    model = toys.fresh()
    history = fit(tmp_path, SampleLosses(), model=model)
    with np.load(tmp_path / "tables" / "losses-blobs-train.npz") as found:
        assert (found["sample_id"].tolist(), found["epoch"].tolist()) == (
            list(range(32)),
            [1, 2, 3],
        )
        assert found["loss"].mean(0) == pytest.approx(history["blobs/train/loss"], rel=1e-6)
    with np.load(tmp_path / "tables" / "losses-blobs-test.npz") as found, torch.no_grad():
        batch = next(iter(toys.sequences(32, 20)["blobs"]["test"]))
        model.eval()
        losses = model({name: torch.as_tensor(value) for name, value in batch.items()})[
            "label"
        ].losses
        assert found["loss"][: len(losses), -1] == pytest.approx(losses.numpy(), rel=1e-6)
    assert (tmp_path / "pictures" / "losses-blobs-train.png").is_file()


def test_a_killed_run_has_the_same_losses(tmp_path: Path) -> None:
    class Kill(Callback):
        def on_batch_begin(self, fit: Any, batch: Any) -> None:
            if fit.epoch == 2 and fit.batch == 1:
                raise RuntimeError("killed")

    fit(tmp_path / "whole", SampleLosses())
    with pytest.raises(TrainingError, match="killed"):
        fit(tmp_path / "killed", SampleLosses(), Kill())
    fit(tmp_path / "killed", SampleLosses())
    for name in ("tables/losses-blobs-train.npz", "pictures/losses-blobs-train.png"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_samples_that_an_epoch_lacks_have_no_loss_there() -> None:
    ids, epochs, losses = build_loss_matrix(
        [
            {"epoch": 1, "ids": np.array([3, 7]), "losses": np.float32([1, 2])},
            {"epoch": 2, "ids": None, "losses": np.float32([3, 4])},
            {"epoch": 4, "ids": np.array([5]), "losses": np.float32([6])},
        ]
    )
    assert (ids.tolist(), epochs.tolist()) == ([3, 5, 7], [1, 2, 4])
    np.testing.assert_array_equal(
        losses, np.float32([[1, 3, np.nan], [np.nan, np.nan, 6], [2, 4, np.nan]])
    )


def test_the_monitor_sees_this_process_and_ends_its_thread(tmp_path: Path) -> None:
    threads = threading.active_count()
    fit(tmp_path, ResourceMonitor(0.01), epochs=2)
    assert threading.active_count() == threads
    rows = json.loads((tmp_path / "tables" / "resources.json").read_text())
    assert rows[0]["seconds"] == 0
    assert all(row["process_bytes"] > 20e6 for row in rows)
    assert (tmp_path / "pictures" / "resources.png").is_file()
    with pytest.raises(ConfigError, match="interval"):
        ResourceMonitor(0)
