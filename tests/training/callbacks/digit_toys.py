"""The digits of scikit-learn with two wrong labels, and a small convolutional network for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from training_toys import ArraySequence

from nnpipe.training.outputs.classification import ClassificationOutput

WRONG = {300: 1, 800: 5}
"""Samples whose labels are moved on by so much."""


class DigitNet(torch.nn.Module):
    """Two convolutions and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, 16, 3, 2, 1),
            torch.nn.ReLU(),
        )
        self.head = torch.nn.Linear(256, 10)

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        logits = self.head(self.features(batch["image"]).flatten(1))
        return {"digit": ClassificationOutput(logits, batch["label"])}


class DropoutNet(DigitNet):
    """The same, twice as wide and with dropout: it does not learn a wrong label by heart at
    once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(16, 32, 3, 2, 1),
            torch.nn.ReLU(),
        )
        self.head = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(512, 10))


def planted(seed: int, count: int = 1200) -> tuple[dict[str, Any], set[int]]:
    """Return training samples, two of which have a random wrong label, and which ones."""
    rng = np.random.default_rng(seed)
    wrong = {own: int(rng.integers(1, 10)) for own in rng.choice(count, 2, replace=False).tolist()}
    return arrays(0, count, wrong), set(wrong)


def model() -> DigitNet:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return DigitNet()


def arrays(begin: int = 0, end: int = 1200, wrong: Mapping[int, int] = WRONG) -> dict[str, Any]:
    """Pictures ``(n, 1, 8, 8)`` from 0 to 1 and labels ``(n,)``."""
    image, label = (array.copy() for array in _digits())
    for sample, shift in wrong.items():
        label[sample] = (label[sample] + shift) % 10
    return {"image": image[begin:end], "label": label[begin:end]}


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return found.images.astype(np.float32)[:, None] / 16, found.target.astype(np.int64)


def sequences(train: int = 1200, test: int = 300) -> dict[str, Any]:
    return {
        "digits": {
            "train": ArraySequence(arrays(0, train), 32),
            "test": ArraySequence(arrays(1200, 1200 + test), 64, shuffle=False),
        }
    }
