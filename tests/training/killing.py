"""Trains in processes that are killed with -9 at given points and begun again, until they are
through.

A process that has imported PyTorch and not used it forks a child for each
attempt: so that a kill costs no new start of Python.

Reads from standard input a JSON object of ``kind``, whether figures are ``rendered``, and ``folders``, which gives the
kills of each training:
``["batch", n]``   the child kills itself before its n-th batch,
``["write", n]``   before it renames the n-th file that it has written,
``["time", s]``    it is killed from outside s seconds after its first batch,
``["end", 0]``     it kills itself when the training ends, amid its callbacks.
Writes ``result.state`` into each folder, and prints last how often each training was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # the first step of an optimiser would import it, in each child anew
import training_toys as toys
from forks import through
from training_jitter import jitter

from nnpipe.experiment.state import State
from nnpipe.experiment.state_file import write_state
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.optimization import SGD, AdamW, Cosine, TorchSchedule
from nnpipe.training.options import TrainerOptions
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.samplers import RandomSampler
from nnpipe.training.trainer import Trainer


class Drawing(Callback):
    """Draws from every global generator, and keeps a sum: both have to survive."""

    def __init__(self) -> None:
        self.sum = State(value=0.0)

    def on_batch_end(self, fit: Any, batch: Any, outputs: Any) -> None:
        self.sum.value += random.random() + np.random.rand() + float(torch.rand(()))


class Killing(Callback):
    """Reports the first batch, and kills itself before the n-th, or when the training ends."""

    def __init__(self, told: int, at: int, end: bool) -> None:
        self.told, self.at, self.end, self.seen = told, at, end, 0

    def on_batch_begin(self, fit: Any, batch: Any) -> None:
        self.seen += 1
        if self.seen == 1:
            os.write(self.told, b"!")
        if self.seen == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_fit_end(self, fit: Any) -> None:
        if self.end:
            os.kill(os.getpid(), signal.SIGKILL)


def fragile(fit: Any, batch: Any) -> Any:
    """Diverges at the eighth step if the learning rate is above 0.004."""
    loss, outputs = fit.forward(batch)
    fit.backward(loss * float("nan") if fit.step == 7 and fit.rates[0] > 0.004 else loss)
    fit.update()
    return outputs


def run(kind: str, folder: Path, kill: list[Any] | None, told: int) -> None:
    torch.set_num_threads(1)
    options: dict[str, Any] = {
        "num_epochs": 3,
        "checkpoint_every": 2,
        "patience": 3,
        "keep_every": 2,
    }
    kept: dict[str, Any] = {}
    datasets = toys.sequences()
    if kind == "everything":
        options |= {"accumulate": 3, "ema_decay": 0.9, "clip_norm": 0.5, "precision": "float16"}
        options |= {"mixing": "interleaved", "checkpoint_every": 1}
        kept = {"optimiser": AdamW(rate=0.01), "schedule": Cosine(warmup=2)}
        datasets["more"] = {"train": toys.ArraySequence(toys.blobs(60, 4), 8)}
    elif kind == "scheduler":
        make = TorchSchedule(
            make=lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=30)
        )
        kept = {"optimiser": SGD(rate=0.01), "schedule": make}
    elif kind == "workers":
        whole = ArraySequence(toys.blobs(100), batch=16, sampler=RandomSampler(), seed=3)
        datasets["blobs"]["train"] = whole.map(jitter, workers=2, seed=4, start="forkserver")
    model, others = toys.fresh(), []
    if kind == "steps":
        import step_toys as gan

        model, datasets = gan.GAN(), {"blobs": {"train": toys.ArraySequence(gan.points(100), 16)}}
        options |= {
            "accumulate": 2,
            "ema_decay": 0.9,
            "clip_norm": 1.0,
            "precision": "bfloat16",
            "checkpoint_every": 1,
        }
        options |= {"patience": None, "num_epochs": 4}
        kept = {
            "optimiser": gan.optimisers(),
            "schedule": Cosine(warmup=2),
            "step": gan.Adversarial(limit=0.68),
        }
    if kind == "callbacks":
        import every

        model, datasets, others = every.model(), every.data(), every.every()
    if kind == "control":
        options |= {
            "epoch_steps": 3,
            "num_epochs": 7,
            "swa_start": 3,
            "keep_best": 2,
            "on_divergence": "rollback",
        }
        kept = {"optimiser": AdamW(rate=0.01), "step": fragile, "metrics": {"label": ["roc_auc"]}}
        options |= {"monitor": "blobs/test/label/roc_auc", "monitor_mode": "max", "patience": None}
    at = kill[1] if kill is not None and kill[0] == "batch" else 0
    if kill is not None and kill[0] == "write":
        _die_writing(kill[1])
    drawing = Drawing()
    half = len(others) // 2
    killing = Killing(told, at, kill is not None and kill[0] == "end")
    trainer = Trainer(
        TrainerOptions.from_json(options), (drawing, *others[:half], killing, *others[half:])
    )
    history = trainer.fit(model, datasets, folder=folder, **kept)
    for parts in datasets.values():
        parts["train"].close()
    found = {
        "model": toys.weights(model),
        "history": list(history.rows()),
        "drawn": drawing.sum.value,
    }
    write_state(folder / "result.state", found, kind="result")


def _die_writing(number: int) -> None:
    replace, count = os.replace, 0

    def counted(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*arguments)

    os.replace = counted


def main() -> None:
    asked = json.load(sys.stdin)
    drawing = contextlib.nullcontext()
    if asked["kind"] == "callbacks":  # imported once, not after each kill
        import every
        import matplotlib.backends.backend_agg  # noqa: F401
        import onnxscript  # noqa: F401
        import sklearn.metrics  # noqa: F401
        import tensorboardX  # noqa: F401
        from sketches import sketching

        every.every()
        drawing = drawing if asked["rendered"] else sketching()
    with drawing:
        times = [
            through(partial(run, asked["kind"], Path(folder)), kills)
            for folder, kills in asked["folders"].items()
        ]
    print(json.dumps(times))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
