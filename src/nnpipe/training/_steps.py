"""What a training step is made of: running the model, adding gradients, and updating weights."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from nnpipe.core.errors import ConfigError, TrainingError
from nnpipe.core.messages import suggest_name
from nnpipe.training._batches import format_batch_ids
from nnpipe.training._forward import Forward, make_precision_factory
from nnpipe.training._gradient_steps import GradientSteps, Rate
from nnpipe.training.averages import EpochAverage, WeightAverage
from nnpipe.training.options import TrainerOptions
from nnpipe.training.outputs.output import Output

# Fetching the loss from a GPU makes the host wait, so it is fetched only every few steps.
_STEPS_BETWEEN_CHECKS = 50
_LEAST = -sys.float_info.max  # of a finite loss


class Diverged(TrainingError):
    """The loss of a batch is not finite, or above ``abort_above``."""


class Steps:
    """The parts of the training steps of one training, which
    :class:`~nnpipe.training.fit.TrainingRun` offers to a step.

    Attributes
    ----------
    by_name
        The gradients and steps of each optimiser.
    average
        The moving average of the weights; None unless ``ema_decay`` is set.
    swa
        The average of the weights at the ends of epochs; None unless ``swa_start`` is set.
    forward
        Runs the model on a batch with the precision of the options; returns the sum of the outputs'
        losses, and the outputs.
    """

    def __init__(
        self,
        by_name: Mapping[str, GradientSteps],
        forward: Forward,
        options: TrainerOptions,
        average: WeightAverage | None,
        swa: EpochAverage | None = None,
    ) -> None:
        self.by_name = dict(by_name)
        self.average = average
        self.swa = swa
        self._all = tuple(self.by_name.values())
        self._single = self._all[0] if len(self._all) == 1 else None
        self._forward = forward
        self._precision = make_precision_factory(options)
        self.forward: Forward = (
            forward if options.precision == "float32" else self._run_with_precision
        )
        self._accumulates = options.accumulate > 1
        self._most = sys.float_info.max if options.abort_above is None else options.abort_above
        self._ids: Any = None
        self._epoch = self._size = self._number = 0
        self._unchecked: list[tuple[Any, Any, int]] = []
        self._at_once = options.device == "cpu"

    # -- what a step calls ----------------------------------------------------------------------

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which the model computes with ``options.precision``."""
        return self._precision()

    def _run_with_precision(self, batch: dict[str, Any]) -> tuple[Any, dict[str, Output]]:
        with self._precision():
            return self._forward(batch)

    def backward(
        self, loss: Any, name: str | None, retain_graph: bool | None, create_graph: bool
    ) -> None:
        """Check a loss, and add its gradients to those of the weights of an optimiser, or of
        all.
        """
        if not loss.requires_grad:
            raise ConfigError(
                "no output has a loss that depends on the weights; nothing can be learned from it"
            )
        self.check(loss)
        only = self._single if name is None else self._get_steps(name)
        if only is not None:
            inputs = None if name is None else only.parameters
            only.backward(loss, self._size, inputs, retain_graph, create_graph)
            return
        every = self._all
        if every[0].scaler is None:  # no factors that differ: one pass for all
            for one in every[1:]:
                one.count(self._size)
            inputs = list({id(p): p for one in every for p in one.parameters}.values())
            every[0].backward(loss, self._size, inputs, retain_graph, create_graph)
            return
        for one in every:
            keeps = True if one is not every[-1] else retain_graph
            one.backward(loss, self._size, one.parameters, keeps, create_graph)

    def update(self, name: str | None) -> bool:
        """Make the steps of an optimiser, or of all, that are due; return whether there was one."""
        only = self._single if name is None else self._get_steps(name)
        if only is not None:
            if self._accumulates and not only.ready:
                return False
            only.step(self._number)
            return True
        due = [one for one in self._all if one.ready]
        for one in due:
            one.step(self._number)
        return bool(due)

    def discard(self, name: str | None) -> None:
        """Forget the gradients that no step has used."""
        for one in self._all if name is None else (self._get_steps(name),):
            one.discard()

    def check(self, loss: Any) -> None:
        """Stop the training if the loss of the present batch is not finite, or above
        ``abort_above``.
        """
        if self._at_once:
            value = loss.item()
            if not _LEAST <= value <= self._most:
                raise self._make_divergence_error(value, self._ids, self._number + 1)
            return
        self._unchecked.append((loss.detach(), self._ids, self._number + 1))
        if len(self._unchecked) >= _STEPS_BETWEEN_CHECKS:
            self.check_all()

    def _get_steps(self, name: str) -> GradientSteps:
        if name not in self.by_name:
            known = ", ".join(self.by_name)
            raise ConfigError(
                f"there is no optimiser {name!r}; there are "
                f"{known}{suggest_name(name, self.by_name)}"
            )
        return self.by_name[name]

    @property
    def reduces(self) -> bool:
        """Whether gradients are exchanged between processes only when a step is made."""
        return self._all[0].reduces

    @property
    def rates(self) -> dict[str, Rate]:
        """What sets the learning rates of each optimiser."""
        return {name: one.rate for name, one in self.by_name.items()}

    # -- what the loop calls --------------------------------------------------------------------

    def begin(self, epoch: int, number: int, ids: Any, size: int) -> None:
        """Begin a batch of ``size`` samples, in step ``number`` of the training, counted from 0."""
        self._epoch, self._number, self._ids, self._size = epoch, number, ids, size
        for one in self._all:
            one.begin_batch()

    def end(self) -> bool:
        """End a batch: return whether a weight changed; then, schedules and the moving average
        follow.
        """
        stepped = False
        for one in self._all:
            if one.stepped:
                if one.rate.followed:
                    one.rate.finish_step()
                stepped = True
        if stepped and self.average is not None:
            self.average.update(self._number)
        return stepped

    def flush(self, number: int) -> bool:
        """Use the gradients of batches that did not suffice for a step, in step ``number``, counted
        from 0.

        Return whether there were any.
        """
        self._number = number  # after a resumption, no batch may have begun
        left = [one for one in self._all if one.pending]
        for one in self._all:
            one.stepped = False
        for one in left:
            one.step(self._number)
        return self.end()

    @property
    def norm(self) -> Any:
        """The norm of the gradients of the last step before clipping, a scalar tensor; None
        without ``clip_norm``.
        """
        norms = [one.norm for one in self._all if one.norm is not None]
        if len(norms) < 2:
            return norms[0] if norms else None
        import torch

        return torch.linalg.vector_norm(torch.stack(norms))

    def check_all(self) -> None:
        """Check the losses that were not fetched from the device so far."""
        unchecked, self._unchecked = self._unchecked, []
        for loss, ids, step in unchecked:
            value = loss.item()
            if not _LEAST <= value <= self._most:
                raise self._make_divergence_error(value, ids, step)

    def _make_divergence_error(self, value: float, ids: Any, step: int) -> Diverged:
        where = f"in epoch {self._epoch}, step {step}{format_batch_ids({'sample_id': ids})}"
        if math.isfinite(value):
            return Diverged(f"the loss is {value:.6g} {where}; abort_above is {self._most:g}")
        return Diverged(
            f"the training diverged {where}: the loss is {value}; use a smaller learning rate"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the optimisers: those of a single one, or by name."""
        if self._single is not None:
            return self._single.state_dict()
        return {"optimisers": {name: one.state_dict() for name, one in self.by_name.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        if self._single is not None:
            self._single.load_state_dict(state)
            return
        for name, one in self.by_name.items():
            one.load_state_dict(state["optimisers"][name])

    def gradients(self) -> dict[str, Any]:
        """Return the gradients of this process that no step has used, by optimiser."""
        found = {name: one.gradients() for name, one in self.by_name.items()}
        return {name: state for name, state in found.items() if state is not None}

    def load_gradients(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`gradients` returned."""
        for name, gradients in state.items():
            self.by_name[name].load_gradients(gradients)
