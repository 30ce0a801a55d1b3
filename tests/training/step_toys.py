"""A small GAN with a step of its own, for tests; no pytest here, so that processes may import
it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from nnpipe.experiment.module import Module
from nnpipe.experiment.state import State
from nnpipe.training.optimization import SGD, AdamW
from nnpipe.training.outputs.classification import BinaryOutput


class GAN(torch.nn.Module):
    """Makes points on a circle; dropout and batch normalisation make random states and buffers
    matter.
    """

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.generator = torch.nn.Sequential(
                torch.nn.Linear(4, 16),
                torch.nn.BatchNorm1d(16),
                torch.nn.ReLU(),
                torch.nn.Linear(16, 2),
            )
            self.critic = torch.nn.Sequential(
                torch.nn.Linear(2, 16),
                torch.nn.ReLU(),
                torch.nn.Dropout(0.1),
                torch.nn.Linear(16, 1),
            )


def points(count: int, seed: int = 0) -> dict[str, Any]:
    angle = np.random.default_rng(seed).uniform(0, 2 * np.pi, count)
    return {"x": np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)}


def shifted(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Shift a point, in worker processes."""
    return sample | {"x": sample["x"] + 0.1 * rng.normal(size=2).astype(np.float32)}


class Adversarial(Module):
    """Updates the critic at each batch, and the generator at most where the critic's mean loss is
    small.

    Its mean is a value of its own, which checkpoints have to keep.
    """

    def __init__(self, limit: float = 0.7) -> None:
        self.limit = limit
        self.state = State(mean=0.6)

    def __call__(self, fit: Any, batch: dict[str, Any]) -> dict[str, Any]:
        real, size = batch["x"], len(batch["x"])
        with fit.autocast():
            fake = fit.model.generator(torch.randn(size, 4))
            seen = BinaryOutput(fit.model.critic(real)[:, 0], torch.ones(size))
            made = BinaryOutput(fit.model.critic(fake.detach())[:, 0], torch.zeros(size))
            loss = seen.loss() + made.loss()
        fit.backward(loss, "critic")
        fit.update("critic")
        self.state.mean = 0.9 * self.state.mean + 0.1 * float(loss.detach()) / 2
        if self.state.mean < self.limit:
            with fit.autocast():
                fooled = BinaryOutput(fit.model.critic(fake)[:, 0], torch.ones(size))
            fit.backward(fooled.loss(), "generator")
            fit.update("generator")
        return {"real": seen, "fake": made}


def optimisers() -> dict[str, Any]:
    return {"critic": AdamW(rate=0.01), "generator": SGD(rate=0.05)}


def by_hand(model: GAN, batches: list[Any], limit: float = 0.7) -> None:
    """What anybody would write instead of :class:`Adversarial`, in single precision."""
    critic = torch.optim.AdamW(model.critic.parameters(), lr=0.01, weight_decay=0.01)
    generator = torch.optim.SGD(model.generator.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    mean = 0.6
    model.train()
    for batch in batches:
        real, size = torch.from_numpy(batch["x"]), len(batch["x"])
        fake = model.generator(torch.randn(size, 4))
        loss = F.binary_cross_entropy_with_logits(
            model.critic(real)[:, 0], torch.ones(size), reduction="none"
        ).mean()
        against = model.critic(fake.detach())[:, 0]
        loss = (
            loss
            + F.binary_cross_entropy_with_logits(
                against, torch.zeros(size), reduction="none"
            ).mean()
        )
        critic.zero_grad()
        loss.backward()
        critic.step()
        mean = 0.9 * mean + 0.1 * float(loss.detach()) / 2
        if mean < limit:
            against = model.critic(fake)[:, 0]
            generator.zero_grad()
            F.binary_cross_entropy_with_logits(
                against, torch.ones(size), reduction="none"
            ).mean().backward()
            generator.step()
