"""Optimisers and schedules as values: what to make, made when the weights are there."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from nnpipe.core.errors import ConfigError


class OptimiserFactory(Protocol):
    """Makes a ``torch.optim.Optimizer`` of parameters, or of PyTorch's groups of them."""

    def __call__(self, parameters: Iterable[Any]) -> Any:
        """Make it."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019."""

    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01

    def __call__(self, parameters: Iterable[Any]) -> Any:
        """Make the optimiser."""
        import torch

        return torch.optim.AdamW(parameters, lr=self.rate, betas=self.betas, weight_decay=self.weight_decay)


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Stochastic gradient descent with momentum."""

    rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 0.0

    def __call__(self, parameters: Iterable[Any]) -> Any:
        """Make the optimiser."""
        import torch

        return torch.optim.SGD(
            parameters,
            lr=self.rate,
            momentum=self.momentum,
            nesterov=self.nesterov and self.momentum > 0,
            weight_decay=self.weight_decay,
        )


class Schedule(ABC):
    """The learning rate as a function of the step, so that nothing needs to be kept to resume it."""

    @abstractmethod
    def factor(self, step: int, steps: int | None) -> float:
        """Give what the optimiser's own rate is multiplied with.

        Parameters
        ----------
        step
            Number of the step, from 0.
        steps
            Steps of the whole training; None where the length of an epoch is not known.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """The same rate throughout, after a linear warm-up of some steps."""

    warmup: int = 0

    def factor(self, step: int, steps: int | None) -> float:
        """Give 1, or the way to it."""
        return _warming(step, self.warmup)


@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """Half a cosine down to a part of the rate, after a linear warm-up of some steps.

    Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017 (without restarts).
    """

    warmup: int = 0
    floor: float = 0.0

    def factor(self, step: int, steps: int | None) -> float:
        """Give the height of the cosine."""
        if steps is None:
            raise ConfigError("Cosine needs to know how long an epoch is; a sequence without a length does not tell")
        if step < self.warmup:
            return _warming(step, self.warmup)
        done = (step - self.warmup) / max(1, steps - self.warmup)
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


@dataclass(frozen=True, kw_only=True)
class Milestones(Schedule):
    """The rate times ``gamma`` after each of some steps."""

    milestones: tuple[int, ...]
    gamma: float = 0.1
    warmup: int = 0

    def factor(self, step: int, steps: int | None) -> float:
        """Give ``gamma`` to the power of the milestones passed."""
        return float(_warming(step, self.warmup) * self.gamma ** sum(step >= at for at in self.milestones))


@dataclass(frozen=True, kw_only=True)
class Exponential(Schedule):
    """The rate times ``gamma`` after each step."""

    gamma: float
    warmup: int = 0

    def factor(self, step: int, steps: int | None) -> float:
        """Give ``gamma`` to the power of the steps."""
        return float(_warming(step, self.warmup) * self.gamma**step)


def _warming(step: int, warmup: int) -> float:
    return 1.0 if step >= warmup else (step + 1) / warmup


@dataclass(frozen=True, kw_only=True)
class TorchSchedule:
    """A scheduler of ``torch.optim.lr_scheduler``, made when the optimiser is there.

    Attributes
    ----------
    make
        Takes the optimiser and gives the scheduler, whose state goes into checkpoints.
    per
        When it is stepped; one that takes a figure (``ReduceLROnPlateau``)
        is given the monitored one at each epoch that is evaluated.
    """

    make: Callable[[Any], Any]
    per: Literal["step", "epoch"] = "step"
