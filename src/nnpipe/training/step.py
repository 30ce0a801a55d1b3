"""Steps: how a training learns from a batch.

A step is a function of the training and a batch, which :meth:`Trainer.fit
<nnpipe.training.trainer.Trainer.fit>` takes as ``step``.  :func:`default_step` is what it does
without one, and an example for others::

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
:class:`~nnpipe.experiment.module.Module` that keeps them in a
:class:`~nnpipe.experiment.state.State`: they are part of checkpoints.  Everything else that a step
changes must follow from the weights, the batch, ``fit.step`` and the global random generators; then
a training that was killed goes on to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.module import Module, Stateful
from nnpipe.training.fit import TrainingRun
from nnpipe.training.outputs.classification import BinaryOutput, DistillationOutput
from nnpipe.training.outputs.output import Output


class LearningStep(Protocol):
    """Learns from a batch."""

    def __call__(
        self, fit: TrainingRun, batch: dict[str, Any], /
    ) -> Mapping[str, Output] | Output | None:
        """Learn from a batch of tensors, and return the outputs, whose losses and metrics become
        figures.
        """
        raise NotImplementedError


def default_step(fit: TrainingRun, batch: dict[str, Any]) -> dict[str, Output]:
    """Minimise the sum of the losses of the model's outputs.

    Precision, accumulation over batches, clipping, schedules and the moving average are as in the
    options.
    """
    loss, outputs = fit.forward(batch)
    fit.backward(loss)
    fit.update()
    return outputs


class Unfreezing(Module):
    """Learns as usual, but lets the weights of one optimiser rest in the first epochs.

    Parameters
    ----------
    later
        The name of the optimiser whose weights rest, such as ``layers`` of a
        :class:`~nnpipe.training.network.Network`.
    after
        Number of epochs without them.
    """

    def __init__(self, later: str, after: int) -> None:
        check_call(Unfreezing, locals())
        self.later = later
        self.after = after

    def __call__(self, fit: TrainingRun, batch: dict[str, Any]) -> dict[str, Output]:
        """Learn from a batch."""
        if self.later not in fit.optimisers:
            raise ConfigError(
                f"Unfreezing: no optimiser {self.later!r}; there are "
                f"{', '.join(fit.optimisers) or 'none'}"
            )
        loss, outputs = fit.forward(batch)
        fit.backward(loss)
        for name in fit.optimisers:
            if name == self.later and fit.epoch <= self.after:
                fit.discard(name)
            else:
                fit.update(name)
        return outputs


class Distilling(Module):
    """Learns an output of classes from a teacher, whose weights stay (Hinton et al., 2015).

    Parameters
    ----------
    teacher
        A module, or an object with one as its attribute ``module``, that gives the same output for
        the same batch.
    output
        The name of the output.
    temperature, hard
        As in :class:`~nnpipe.training.outputs.classification.DistillationOutput`.
    """

    def __init__(
        self, teacher: Any, output: str, temperature: float = 4.0, hard: float = 0.1
    ) -> None:
        check_call(Distilling, locals())
        self.teacher = teacher
        self.output = output
        self.temperature = temperature
        self.hard = hard

    def children(self) -> Iterator[tuple[str, Stateful]]:
        """Return none: the teacher does not change."""
        return iter(())

    def __call__(self, fit: TrainingRun, batch: dict[str, Any]) -> dict[str, Output]:
        """Learn from a batch."""
        import torch

        teacher = getattr(self.teacher, "module", self.teacher).to(fit.device).eval()
        with torch.no_grad(), fit.autocast():
            said = teacher(batch)[self.output].output
        _, outputs = fit.forward(batch)
        own = outputs[self.output]
        found = DistillationOutput(
            own.output,
            own.target,
            teacher=said,
            temperature=self.temperature,
            hard=self.hard,
            weights=own.weights,
        )
        fit.backward(found.loss())
        fit.update()
        return {self.output: found}


class Adversarial(Module):
    """Teaches a critic to tell samples from what a generator draws, and the generator to make that
    harder.

    Goodfellow et al., "Generative Adversarial Nets", 2014.  The model is
    :class:`~nnpipe.training.network.Adversaries`; the optimisers are called ``generator`` and
    ``critic``.

    Parameters
    ----------
    input
        The feature of samples, which are flattened.
    noise
        Number of random numbers from which a sample is drawn.
    scale, shift
        Samples are multiplied by ``scale``, and ``shift`` is added, so that they have the
        generator's range.
    """

    def __init__(self, input: str, noise: int, scale: float = 1.0, shift: float = 0.0) -> None:
        check_call(Adversarial, locals())
        self.input = input
        self.noise = noise
        self.scale = scale
        self.shift = shift

    def __call__(self, fit: TrainingRun, batch: dict[str, Any]) -> dict[str, Output]:
        """Learn from a batch."""
        import torch

        real = batch[self.input].flatten(1).float() * self.scale + self.shift
        size = len(real)
        with fit.autocast():
            drawn = fit.model.generator(torch.randn(size, self.noise, device=real.device))
            seen, unmasked = fit.model.critic(real), fit.model.critic(drawn.detach())
        zeros, ones = torch.zeros(size, device=real.device), torch.ones(size, device=real.device)
        found = {
            "real": BinaryOutput(seen[:, 0], ones),
            "drawn": BinaryOutput(unmasked[:, 0], zeros),
        }
        fit.backward(found["real"].loss() + found["drawn"].loss(), "critic")
        fit.update("critic")
        with fit.autocast():
            fooled = BinaryOutput(fit.model.critic(drawn)[:, 0], ones)
        fit.backward(fooled.loss(), "generator")
        fit.update("generator")
        return dict(found)
