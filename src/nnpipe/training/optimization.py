"""Optimisers and schedules as values; PyTorch's objects are made from them once the weights
exist.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from nnpipe.core.arguments import argument
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError


class OptimiserFactory(Protocol):
    """Makes a ``torch.optim.Optimizer`` for parameters, or for PyTorch's groups of them."""

    def __call__(self, parameters: Iterable[Any]) -> Any:
        """Return the optimiser."""
        raise NotImplementedError


class AdamW(Component):
    """Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019."""

    rate: float = argument(1e-3, help="learning rate", minimum=0.0)
    betas: tuple[float, float] = argument(
        (0.9, 0.999), help="what part of both moments a step keeps"
    )
    weight_decay: float = argument(
        0.01, help="part of a weight that a step of rate 1 takes away", minimum=0.0
    )

    def __call__(self, parameters: Iterable[Any]) -> Any:
        """Return the optimiser."""
        import torch

        return torch.optim.AdamW(
            parameters, lr=self.rate, betas=self.betas, weight_decay=self.weight_decay
        )


class SGD(Component):
    """Stochastic gradient descent with momentum."""

    rate: float = argument(0.1, help="learning rate", minimum=0.0)
    momentum: float = argument(0.9, help="part of its direction that a step keeps", minimum=0.0)
    nesterov: bool = argument(True, help="look ahead along the momentum")
    weight_decay: float = argument(
        0.0, help="part of a weight that is added to its gradient", minimum=0.0
    )

    def __call__(self, parameters: Iterable[Any]) -> Any:
        """Return the optimiser."""
        import torch

        return torch.optim.SGD(
            parameters,
            lr=self.rate,
            momentum=self.momentum,
            nesterov=self.nesterov and self.momentum > 0,
            weight_decay=self.weight_decay,
        )


class Schedule(Component):
    """The learning rate as a function of the step, so that a resumed run needs no state of it.

    Attributes
    ----------
    of_length
        Whether it depends on the number of steps of the whole training.  A run with such a schedule
        cannot be extended to more epochs.
    """

    of_length: ClassVar[bool] = True

    @abstractmethod
    def factor(self, step: int, steps: int | None) -> float:
        """Return the factor of the optimiser's rate at a step.

        Parameters
        ----------
        step
            Number of the step, counted from 0.
        steps
            Number of steps of the whole training; None if the length of an epoch is not known.
        """


class ConstantRate(Schedule):
    """The same rate throughout, after a linear warm-up of some steps."""

    of_length: ClassVar[bool] = False

    warmup: int = argument(0, help="steps in which the rate rises from nothing", minimum=0)

    def factor(self, step: int, steps: int | None) -> float:
        """Return 1, or less during the warm-up."""
        return _compute_warmup(step, self.warmup)


class Cosine(Schedule):
    """Half a cosine down to a part of the rate, after a linear warm-up of some steps.

    Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017 (without
    restarts).
    """

    warmup: int = argument(0, help="steps in which the rate rises from nothing", minimum=0)
    floor: float = argument(0.0, help="part of the rate at the end", minimum=0.0)

    def factor(self, step: int, steps: int | None) -> float:
        """Return the height of the cosine."""
        if steps is None:
            raise ConfigError(
                "Cosine needs to know how long an epoch is; a sequence without a length does not "
                "tell"
            )
        if step < self.warmup:
            return _compute_warmup(step, self.warmup)
        done = (step - self.warmup) / max(1, steps - self.warmup)
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


class Milestones(Schedule):
    """The rate is multiplied by ``gamma`` at each milestone."""

    of_length: ClassVar[bool] = False

    milestones: tuple[int, ...] = argument(help="steps after which the rate falls", minimum=0)
    gamma: float = argument(0.1, help="what it is multiplied with at each", minimum=0.0)
    warmup: int = argument(0, help="steps in which the rate rises from nothing", minimum=0)

    def factor(self, step: int, steps: int | None) -> float:
        """Return ``gamma`` to the power of the number of milestones passed."""
        return float(
            _compute_warmup(step, self.warmup)
            * self.gamma ** sum(step >= at for at in self.milestones)
        )


class Exponential(Schedule):
    """The rate is multiplied by ``gamma`` after each step."""

    of_length: ClassVar[bool] = False

    gamma: float = argument(help="what the rate is multiplied with after each step", minimum=0.0)
    warmup: int = argument(0, help="steps in which the rate rises from nothing", minimum=0)

    def factor(self, step: int, steps: int | None) -> float:
        """Return ``gamma`` to the power of the number of steps."""
        return float(_compute_warmup(step, self.warmup) * self.gamma**step)


def _compute_warmup(step: int, warmup: int) -> float:
    return 1.0 if step >= warmup else (step + 1) / warmup


@dataclass(frozen=True, kw_only=True)
class TorchSchedule:
    """A scheduler of ``torch.optim.lr_scheduler``, which is made once the optimiser exists.

    Attributes
    ----------
    make
        Takes the optimiser and returns the scheduler, whose state is saved in checkpoints.
    per
        ``"step"`` or ``"epoch"``: when it is stepped.  A scheduler that takes a figure
        (``ReduceLROnPlateau``) receives the monitored one after each evaluation.
    """

    make: Callable[[Any], Any]
    per: Literal["step", "epoch"] = "step"
