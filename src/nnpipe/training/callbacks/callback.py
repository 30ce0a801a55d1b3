"""The base class of all callbacks."""

from __future__ import annotations

import inspect
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.core.argument_checks import parameter_kinds
from nnpipe.core.discoverable import Discoverable, Option, is_installed, parameter_descriptions
from nnpipe.experiment.module import Module

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class Callback(Module, Discoverable):
    """Observes the training of a model; every method is optional.

    A class in a plugin is found by its name, as components are: ``--callbacks Spread:every=5`` makes a
    ``Spread(every=5)``.  Its options are its constructor's parameters, and their help is the section
    ``Parameters`` of its docstring.

    Attributes that are modules (such as a
    :class:`~nnpipe.experiment.state.State`) are saved in each checkpoint and
    restored from it.  A killed training repeats what happened after the last
    checkpoint, so a callback that writes files must be able to write them twice.

    If a callback raises, the training stops with a
    :class:`~nnpipe.core.errors.TrainingError` that names the callback and the
    samples of the batch, unless ``TrainerOptions.callback_errors`` is ``"log"``.

    The trainer restores random states and the model's mode after
    ``on_fit_begin``, ``on_epoch_begin``, ``on_epoch_end`` and ``on_fit_end``.  It
    does not after the hooks of batches: take random numbers from
    :meth:`Fit.generator <nnpipe.training.fit.Fit.generator>` there.

    With several processes, callbacks run in the first process only.

    Attributes
    ----------
    frameworks
        The frameworks whose trainings it can observe.  With ``"torch"``, batches and
        outputs hold tensors; with ``"keras"``, they hold arrays and ``fit.model`` is a ``keras.Model``.
    describes_weights
        Whether what it writes after an epoch describes the weights of that epoch.  If the trainer leaves other weights
        in the model than those it evaluated last, it evaluates the model once more, and calls ``on_evaluate_batch``
        and ``on_epoch_end`` of these callbacks again; ``fit.epoch`` is then the epoch of these weights.

    Examples
    --------
    >>> from nnpipe.experiment.state import State
    >>> class Steps(Callback):
    ...     'Counts the steps of a training.'
    ...     frameworks = ("torch", "keras")
    ...     def __init__(self) -> None:
    ...         self.state = State(steps=0)
    ...     def on_batch_end(self, fit, batch, outputs):
    ...         self.state.steps += 1
    >>> Steps().state_dict()
    {'state': {'steps': 0}}
    """

    abstract: ClassVar[bool] = True
    frameworks: ClassVar[tuple[str, ...]] = ("torch",)
    describes_weights: ClassVar[bool] = False

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """Return the constructor's parameters, with their help from the docstring."""
        said, taken = parameter_descriptions(cls), parameter_kinds(cls)
        return tuple(
            Option(p.name, taken.get(p.name, ""), said.get(p.name, ""), MISSING if p.default is p.empty else p.default)
            for p in inspect.signature(cls).parameters.values()
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        )

    @classmethod
    def missing(cls) -> tuple[str, ...]:
        """Return the packages that are not installed, of ``requires`` and the frameworks that it supports."""
        framework = "|".join(cls.frameworks)
        absent = () if any(map(is_installed, cls.frameworks)) else (framework,)
        return (*absent, *super().missing())

    def parts(self) -> tuple[Callback, ...]:
        """Return the callback itself, or those that it calls."""
        return (self,)

    def on_fit_begin(self, fit: Fit) -> None:
        """Prepare for the training; the state of a resumed run has been restored."""

    def on_epoch_begin(self, fit: Fit) -> None:
        """Prepare for an epoch; ``fit.epoch`` counts from 1.  Not called if a run resumes within an epoch."""

    def on_batch_begin(self, fit: Fit, batch: dict[str, Any]) -> None:
        """Inspect or change a training batch before the model receives it."""

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Inspect a training batch and its outputs; the gradients of this step are still available."""

    def on_evaluate_batch(
        self, fit: Fit, dataset: str, split: str, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Inspect a batch of an evaluated split, and its outputs."""

    def on_epoch_end(self, fit: Fit) -> None:
        """Finish an epoch; ``fit.history.last`` holds its figures."""

    def on_fit_end(self, fit: Fit) -> None:
        """Finish, after the last epoch or after a call of ``fit.stop``; not called after an error."""

    def close(self) -> None:
        """Close files and end processes; always called, also after an error."""
