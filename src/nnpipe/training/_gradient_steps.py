"""Accumulating gradients, and making optimiser steps from them."""

from __future__ import annotations

from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.training._average import WeightAverage
from nnpipe.training._learning_rate import Rate
from nnpipe.training.options import TrainerOptions


class GradientSteps:
    """Accumulates gradients over batches and processes, and makes optimiser steps from them.

    With one batch per step and one process, the batch's mean loss is
    differentiated.  Otherwise the sum over its samples is, and the gradients are
    then divided by the number of samples of the whole step.  So the result is
    always the mean over all samples, even if batches differ in size.
    """

    def __init__(
        self, optimiser: Any, rate: Rate, options: TrainerOptions, world: int, average: WeightAverage | None
    ) -> None:
        import torch

        self.optimiser = optimiser
        self.rate = rate
        self.average = average
        self.norm: Any = None
        half = options.precision == "float16"
        self.scaler: Any = torch.amp.GradScaler(options.device) if half else None
        self._parameters = [p for group in optimiser.param_groups for p in group["params"] if p.requires_grad]
        self._options = options
        self._world = world
        self._summed = options.accumulate > 1 or world > 1
        self._pending = 0
        self._samples = 0

    @property
    def ready(self) -> bool:
        """Whether enough batches for a step have been accumulated."""
        return self._pending >= self._options.accumulate

    @property
    def pending(self) -> bool:
        """Whether there are gradients that no step has used yet."""
        return self._pending > 0

    def backward(self, loss: Any, size: int) -> None:
        """Add the gradients of a batch's mean loss."""
        if not loss.requires_grad:
            raise ConfigError("no output has a loss that depends on the weights; nothing can be learned from it")
        if self._pending == 0:
            self.optimiser.zero_grad(set_to_none=True)
        if self._summed:
            loss = loss * size
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        loss.backward()
        self._pending += 1
        self._samples += size

    def step(self, number: int) -> None:
        """Make step ``number``, counted from 0."""
        options = self._options
        self.rate.before_step(number)
        if self.scaler is not None:
            self.scaler.unscale_(self.optimiser)
        if self._summed:
            self._divide()
        self._clip(options.clip_norm, options.clip_value)
        if self.scaler is not None:
            self.scaler.step(self.optimiser)
            self.scaler.update()
        else:
            self.optimiser.step()
        self.rate.after_step()
        if self.average is not None:
            self.average.update(number)
        self._pending = self._samples = 0

    def _divide(self) -> None:
        import torch

        samples = float(self._samples)
        if self._world > 1:
            total = torch.tensor(samples, device=self._parameters[0].device)
            torch.distributed.all_reduce(total)
            samples = float(total) / self._world  # DistributedDataParallel gives the mean over processes
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        torch._foreach_mul_(gradients, 1.0 / samples)

    def _clip(self, norm: float | None, value: float | None) -> None:
        if norm is None and value is None:
            return
        import torch

        if value is not None:
            torch.nn.utils.clip_grad_value_(self._parameters, value)
        if norm is not None:
            self.norm = torch.nn.utils.clip_grad_norm_(self._parameters, norm)
