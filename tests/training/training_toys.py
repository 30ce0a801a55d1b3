"""Small sequences and models for the trainer's tests; no pytest here, so that processes may
import it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nnpipe.experiment.module import Module
from nnpipe.experiment.state_file import read_state
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.outputs.classification import ClassificationOutput


class ArraySequence(Module):
    """Batches of arrays, in an order that follows from seed and epoch."""

    def __init__(
        self, arrays: Mapping[str, Any], size: int, shuffle: bool = True, known_length: bool = True
    ) -> None:
        self.arrays = {"sample_id": np.arange(len(next(iter(arrays.values())))), **arrays}
        self.size, self.shuffle, self.known_length = size, shuffle, known_length
        self.epoch = self.handed = self.closed = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch, self.handed = epoch, 0

    def __len__(self) -> int:
        if not self.known_length:
            raise TypeError("no length")
        return -(-len(self.arrays["sample_id"]) // self.size)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        ids = self.arrays["sample_id"]
        order = (
            np.random.default_rng([5, self.epoch]).permutation(len(ids))
            if self.shuffle
            else np.arange(len(ids))
        )
        start, self.handed = self.handed, 0
        for at in range(start * self.size, len(ids), self.size):
            self.handed = at // self.size + 1
            chosen = order[at : at + self.size]
            yield {name: array[chosen] for name, array in self.arrays.items()}
        self.handed = 0

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "handed": self.handed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.epoch, self.handed = state["epoch"], state["handed"]

    def close(self) -> None:
        self.closed += 1


class Net(torch.nn.Module):
    """A small classifier with batch normalisation and dropout, so that random states and buffers
    matter.
    """

    def __init__(self, features: int = 8, classes: int = 3, dropout: float = 0.2) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(features, 16),
            torch.nn.BatchNorm1d(16),
            torch.nn.ReLU(),
            torch.nn.Dropout(dropout),
            torch.nn.Linear(16, classes),
        )

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {
            "label": ClassificationOutput(
                self.layers(batch["x"]), batch["label"], weights=batch.get("weight")
            )
        }


def fresh(seed: int = 1, dropout: float = 0.2) -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Net(dropout=dropout)


def blobs(count: int, seed: int = 0) -> dict[str, Any]:
    """Three classes that a line cannot quite part."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, count)
    centres = np.random.default_rng(99).normal(size=(3, 8))
    return {"x": (centres[label] + rng.normal(size=(count, 8))).astype(np.float32), "label": label}


def sequences(
    train: int = 100, test: int = 50, size: int = 16
) -> dict[str, dict[str, ArraySequence]]:
    return {
        "blobs": {
            "train": ArraySequence(blobs(train), size),
            "test": ArraySequence(blobs(test, 1), 32, shuffle=False),
        }
    }


class Interrupting(Callback):
    """Interrupts a training at a step, for the first time that it gets there."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_batch_begin(self, fit: Any, batch: Any) -> None:
        if fit.step == self.step:
            raise KeyboardInterrupt


def weights(model: Any) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def killed(
    kind: str, folders: Mapping[Path, list[list[Any]]], seconds: float, rendered: bool = True
) -> list[tuple[dict[str, Any], int]]:
    """Train in processes that are killed at these points (``killing.py``); return each result
    and its kills.
    """
    asked = {
        "kind": kind,
        "rendered": rendered,
        "folders": {str(folder): kills for folder, kills in folders.items()},
    }
    answer = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("killing.py"))],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert answer.returncode == 0, answer.stderr
    times = json.loads(answer.stdout.splitlines()[-1])  # exporters print things, too
    return [
        (read_state(path / "result.state", kind="result"), n)
        for path, n in zip(folders, times, strict=True)
    ]
