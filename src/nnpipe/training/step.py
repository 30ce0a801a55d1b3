"""Steps: how a training learns from a batch.

A step is a function of the training and a batch, which :meth:`Trainer.fit <nnpipe.training.trainer.Trainer.fit>` takes
as ``step``.  :func:`default_step` is what it does without one, and an example for others::

    def step(fit, batch):
        noise = torch.randn(len(batch["image"]), 16)
        fake = fit.model.generator(noise)
        ...
        fit.backward(critic_loss, "critic")  # gradients for the weights of this optimiser only
        fit.update("critic")
        fit.backward(generator_loss, "generator")
        fit.update("generator")
        return {"real": ..., "fake": ...}  # outputs, whose losses and metrics become figures

    trainer.fit(model, data, optimiser={"generator": AdamW(), "critic": AdamW()}, step=step)

A step that makes no update skips the batch.  A step with values of its own is a
:class:`~nnpipe.experiment.module.Module` that keeps them in a :class:`~nnpipe.experiment.state.State`: they are part of
checkpoints.  Everything else that a step changes must follow from the weights, the batch, ``fit.step`` and the global
random generators; then a training that was killed goes on to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from nnpipe.training.fit import Fit
from nnpipe.training.outputs.output import Output


class LearningStep(Protocol):
    """Learns from a batch."""

    def __call__(self, fit: Fit, batch: dict[str, Any], /) -> Mapping[str, Output] | Output | None:
        """Learn from a batch of tensors, and return the outputs, whose losses and metrics become figures."""
        raise NotImplementedError


def default_step(fit: Fit, batch: dict[str, Any]) -> dict[str, Output]:
    """Minimise the sum of the losses of the model's outputs.

    Precision, accumulation over batches, clipping, schedules and the moving average are as in the options.
    """
    loss, outputs = fit.forward(batch)
    fit.backward(loss)
    fit.update()
    return outputs
