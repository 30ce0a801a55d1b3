"""Trains in the processes that ``torchrun`` starts, and writes what came out; see
``test_distributed.py``.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import training_toys as toys

from nnpipe.experiment.state_file import write_state
from nnpipe.training._steps import Steps
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.distributed import gather_shards, join_team
from nnpipe.training.optimization import SGD
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.classification import ClassificationOutput
from nnpipe.training.trainer import Trainer

SHARDED = {"shard": ("layers",), "ema_decay": 0.9}


class Plain(torch.nn.Module):
    """Has no layer that looks at a whole batch, so that processes may share one."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16),
            torch.nn.Tanh(),
            torch.nn.Dropout(dropout),
            torch.nn.Linear(16, 3),
        )
        self.other = torch.nn.Linear(8, 3)

    def forward(self, batch: dict[str, Any]) -> Any:
        layers = self.other if batch["x"][0, 0] == 7 else self.layers
        return ClassificationOutput(layers(batch["x"]), batch["label"])


def datasets() -> Any:
    # 33 samples in batches of 16: one is left over, and one of two processes has none of it.
    other = toys.blobs(20, 3)
    other["x"][:, 0] = 7
    return toys.sequences(33) | {"other": {"train": toys.ArraySequence(other, 8)}}


class Copying(Callback):
    """Copies a checkpoint that was made amid an epoch."""

    def __init__(self, folder: Path, to: Path) -> None:
        self.folder, self.to = folder, to

    def on_batch_begin(self, fit: Any, batch: Any) -> None:
        if fit.step == 4 and not self.to.exists():
            deadline = time.monotonic() + 60
            while (
                not (self.folder / "checkpoints" / "last.state").exists()
                and time.monotonic() < deadline
            ):
                time.sleep(0.01)
            shutil.copytree(self.folder, self.to)


def train(folder: Path, *callbacks: Callback, dropout: float = 0.0, **asked: Any) -> dict[str, Any]:
    model = Plain(dropout)
    options = TrainerOptions(num_epochs=2, checkpoint_every=4, clip_norm=1.0, **asked)
    history = Trainer(options, callbacks).fit(
        model, datasets(), folder=folder, optimiser=SGD(rate=0.1)
    )
    return {"model": gather_shards(toys.weights(model), True), "history": list(history.rows())}


def leave(folder: Path, **asked: Any) -> None:
    """Train, and be interrupted amid an epoch, after a checkpoint."""
    begin = Steps.begin

    def interrupting(self: Any, epoch: int, number: int, ids: Any, size: int) -> None:
        if number == 5:
            raise KeyboardInterrupt
        begin(self, epoch, number, ids, size)

    Steps.begin = interrupting  # type: ignore[method-assign]
    try:
        with suppress(KeyboardInterrupt):
            train(folder, **asked)
    finally:
        Steps.begin = begin  # type: ignore[method-assign]


def idle() -> dict[str, Any]:
    """Train with a head that is not used, and one whose output has no loss."""
    from test_user_inputs import Idle

    model = Idle()
    metrics = {"kind": objects()}
    options = TrainerOptions(num_epochs=2)
    history = Trainer(options, ()).fit(
        model, toys.sequences(33), optimiser=SGD(rate=0.1), metrics=metrics
    )
    return {"model": toys.weights(model), "history": list(history.rows())}


def turns(fit: Any, batch: dict[str, Any]) -> Any:
    """Update one of two layers twice, and the other once: what DistributedDataParallel cannot
    exchange.
    """
    for name in ("layers.0", "layers.3", "layers.0"):
        loss, outputs = fit.forward(batch)
        fit.backward(loss, name)
        fit.update(name)
    return outputs


def stepped() -> dict[str, Any]:
    """Train with a step of its own and two optimisers."""
    model = Plain()
    options = TrainerOptions(num_epochs=2, clip_norm=1.0, accumulate=2)
    optimiser = {"layers.0": SGD(rate=0.1), "layers.3": SGD(rate=0.05)}
    history = Trainer(options, ()).fit(model, toys.sequences(33), optimiser=optimiser, step=turns)
    return {"model": toys.weights(model), "history": list(history.rows())}


def objects() -> list[Any]:
    """Return metrics whose states are arrays of all samples, and sums."""
    from torchmetrics.classification import (
        MulticlassAUROC,
        MulticlassCalibrationError,
        MulticlassF1Score,
    )

    return [
        MulticlassAUROC(3),
        MulticlassCalibrationError(3, n_bins=15),
        MulticlassF1Score(3, average=None),
    ]


def evaluated() -> dict[str, float]:
    """Evaluate uneven data, with metrics of all samples."""
    # Of batches of one sample, the second of two processes has none at all.
    data = {
        "blobs": {
            "test": toys.ArraySequence(toys.blobs(33, 5), 16, shuffle=False),
            "single": toys.ArraySequence(toys.blobs(9, 5), 1, shuffle=False),
        }
    }
    wanted = ["roc_auc", "pr_auc", "calibration_error", *objects()]
    return Trainer().evaluate(Plain(), data, metrics={"output": wanted})


def main(folder: Path, left: Path | None = None) -> None:
    """Train into ``folder``; and go on with what was left in ``left``."""
    with join_team("cpu") as members:
        found = {"plain": train(folder / "plain")}
        copy = folder / "copy"
        found["idle"] = idle()
        found["stepped"] = stepped()
        found["evaluated"] = evaluated()
        found["dropout"] = train(folder / "dropout", Copying(folder / "dropout", copy), dropout=0.5)
        if members.world > 1:
            torch.distributed.barrier()
        found["resumed"] = train(copy, dropout=0.5)
        found["sharded"] = train(folder / "sharded", **SHARDED)
        leave(folder / "again", **SHARDED)
        found["again"] = train(folder / "again", **SHARDED)
        leave(folder / "left")
        leave(folder / "left-sharded", **SHARDED)
        if left is not None:
            found["grown"] = train(left / "left")
            found["grown-sharded"] = train(left / "left-sharded", **SHARDED)
        write_state(folder / f"result-{members.rank}.state", found, kind="result")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(*map(Path, sys.argv[1:]))
    sys.stdout.flush()
    os._exit(0)
