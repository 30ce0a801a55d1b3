"""The base of all callbacks."""

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
    """Looks on while a model is trained; every method may be left out.

    A class in a plugin is found by its name, as components are: ``--callbacks Spread:every=5`` makes a
    ``Spread(every=5)``.  Its options are its constructor's parameters, and what its docstring says of them in
    a section ``Parameters`` is their help.

    Attributes that are modules (such as a
    :class:`~nnpipe.experiment.state.State`) go into each checkpoint and come
    back from it.  After a kill, what happened since the last checkpoint happens again: a
    callback that writes files must be able to write them twice.

    A callback that raises stops the training, by a
    :class:`~nnpipe.core.errors.TrainingError` that names it and the samples in
    hand, unless ``TrainerOptions.callback_errors`` is ``"log"``.

    Around ``on_fit_begin``, ``on_epoch_begin``, ``on_epoch_end`` and
    ``on_fit_end`` the trainer puts random states and the model's mode back as
    they were.  In the hooks of batches it does not: draw from
    :meth:`Fit.generator <nnpipe.training.fit.Fit.generator>` there.

    With several processes, callbacks run in the first one only.

    Attributes
    ----------
    frameworks
        Whose trainings it can look on.  With ``"torch"`` batches and outputs hold
        tensors, with ``"keras"`` arrays, and ``fit.model`` is a ``keras.Model``.

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

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """Describe the constructor's parameters, with what the docstring says of them."""
        said, taken = parameter_descriptions(cls), parameter_kinds(cls)
        return tuple(
            Option(p.name, taken.get(p.name, ""), said.get(p.name, ""), MISSING if p.default is p.empty else p.default)
            for p in inspect.signature(cls).parameters.values()
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        )

    @classmethod
    def missing(cls) -> tuple[str, ...]:
        """Return packages that are not installed: ``requires``, and the framework whose trainings it looks on."""
        framework = "|".join(cls.frameworks)
        absent = () if any(map(is_installed, cls.frameworks)) else (framework,)
        return (*absent, *super().missing())

    def on_fit_begin(self, fit: Fit) -> None:
        """Begin; after a resumed run's state was loaded."""

    def on_epoch_begin(self, fit: Fit) -> None:
        """Begin an epoch; ``fit.epoch`` counts from 1.  Not called where a run resumes amid an epoch."""

    def on_batch_begin(self, fit: Fit, batch: dict[str, Any]) -> None:
        """See, or change, a training batch of tensors before the model does."""

    def on_batch_end(self, fit: Fit, batch: dict[str, Any], outputs: dict[str, Any]) -> None:
        """See a training batch and its outputs; the gradients of this step are still there."""

    def on_evaluate_batch(
        self, fit: Fit, dataset: str, split: str, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """See a batch of a split that is evaluated."""

    def on_epoch_end(self, fit: Fit) -> None:
        """End an epoch: ``fit.history.last`` holds its figures."""

    def on_fit_end(self, fit: Fit) -> None:
        """End, when all epochs are done or the training has stopped by itself; not after an error."""

    def close(self) -> None:
        """Let go of files and processes; always called, after an error, too."""
