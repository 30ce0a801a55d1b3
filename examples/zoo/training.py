"""A short training, after which a network has learned its task: 8-bit integers are judged on
such networks only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from zoo.data import TEST, Task

Loss = Callable[[Any, Tensor], Tensor]
Measure = Callable[[Any, np.ndarray], dict[str, float]]
SETTLING = 1024


class Trained(NamedTuple):
    """A network after its training, the samples to judge it on and to calibrate on, and how well
    it does its task.
    """

    network: Any
    test: tuple[dict[str, np.ndarray], np.ndarray]
    calibration: tuple[dict[str, np.ndarray], np.ndarray]
    score: dict[str, float]


def accuracy(scores: Any, labels: np.ndarray) -> dict[str, float]:
    """Return the share of samples whose class has the highest score."""
    return {"accuracy": float((np.asarray(scores).argmax(axis=1) == labels).mean())}


def trained(
    network: Callable[[], nn.Module],
    task: Task,
    *,
    epochs: int = 3,
    rate: float = 1e-3,
    batch: int = 32,
    moved: int = 0,
    loss: Loss = nn.functional.cross_entropy,
    measure: Measure = accuracy,
) -> Trained:
    """Return a network trained on a task, and how well it does on the samples to judge it on.

    Parameters
    ----------
    network
        Builds the network, with the random numbers of a fixed seed; it takes the inputs of the task
        in order.
    epochs, rate, batch
        How long and how fast it learns, by AdamW with one cycle of rates.
    moved
        How many pixels the pictures of a batch are moved by at most, lest few of them be learned by
        heart.
    loss
        The loss of outputs and targets.
    measure
        Returns what the outputs for the samples to judge on are worth, by name.
    """
    torch.manual_seed(0)
    model = network().train()
    inputs, targets = task.training
    tensors = [torch.from_numpy(array) for array in inputs.values()]
    wanted = torch.from_numpy(targets)
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.01, fused=True)
    steps = epochs * (len(wanted) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    random = np.random.default_rng(0)
    for _ in range(epochs):
        order = torch.from_numpy(random.permutation(len(wanted)))
        for chosen in order[: len(wanted) // batch * batch].split(batch):
            optimizer.zero_grad()
            taken = [tensor[chosen] for tensor in tensors]
            if moved:
                taken = [
                    tensor.roll(tuple(random.integers(-moved, moved + 1, 2)), (2, 3))
                    for tensor in taken
                ]
            loss(model(*taken), wanted[chosen]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    settle(model, *(tensor[:SETTLING] for tensor in tensors))
    inputs, targets = task.part(0, TEST)
    with torch.no_grad():
        outputs = model.eval()(*(torch.from_numpy(array) for array in inputs.values()))
    return Trained(model, task.test, task.calibration, measure(outputs, targets))


def settle(model: nn.Module, *inputs: Tensor, batch: int = 64) -> None:
    """Replace the running averages of batch normalisation by means over samples.

    After some hundred steps they are still those of earlier weights, or, with the momentum that
    transformers gives MobileNetV2 and EfficientNet, those of the last batch alone.
    """
    layers = [
        layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)
    ]
    if not layers:
        return
    model.eval()  # without dropout, which would widen what the layers behind it see
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
        layer.train()
    with torch.no_grad():
        for pieces in zip(*(tensor.split(batch) for tensor in inputs), strict=True):
            model(*pieces)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum


class Scores(nn.Module):
    """A model of transformers that returns only its scores, and takes its inputs by position."""

    def __init__(self, model: nn.Module, *names: str) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the scores of classes, ``(n, classes)``."""
        return self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=False)[0]
