"""A short training, enough for weights and activations as trained networks have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoo.data import Task

Loss = Callable[[Any, Tensor], Tensor]


def trained(
    network: Callable[[], nn.Module],
    task: Task,
    *,
    epochs: int = 3,
    rate: float = 1e-3,
    batch: int = 32,
    loss: Loss = nn.functional.cross_entropy,
) -> tuple[nn.Module, Any, Any]:
    """Return a network trained on a task, the samples to judge it on, and those for calibration.

    Parameters
    ----------
    network
        Builds the network, with the random numbers of a fixed seed; it takes the inputs of the task in order.
    epochs, rate, batch
        How long and how fast it learns, by AdamW with one cycle of rates.
    loss
        The loss of outputs and targets.
    """
    torch.manual_seed(0)
    model = network().train()
    inputs, targets = task.training
    tensors = [torch.from_numpy(array) for array in inputs.values()]
    wanted = torch.from_numpy(targets)
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.01)
    steps = epochs * (len(wanted) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    random = np.random.default_rng(0)
    for _ in range(epochs):
        order = torch.from_numpy(random.permutation(len(wanted)))
        for chosen in order[: len(wanted) // batch * batch].split(batch):
            optimizer.zero_grad()
            loss(model(*(tensor[chosen] for tensor in tensors)), wanted[chosen]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return model.eval(), task.test, task.calibration


class Scores(nn.Module):
    """A model of transformers that returns only its scores, and takes its inputs by position."""

    def __init__(self, model: nn.Module, *names: str) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the scores of classes, ``(n, classes)``."""
        return self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=False)[0]
