"""The base class of all callbacks."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.core.argument_checks import describe_parameters
from nnpipe.core.discoverable import (
    Discoverable,
    Option,
    extract_parameter_descriptions,
    is_installed,
)
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.experiment.module import Module
from nnpipe.training.run_folder import RunFolder

if TYPE_CHECKING:
    from nnpipe.training.fit import TrainingRun


class Callback(Module, Discoverable):
    """Observes the training of a model; every method is optional.

    A class in a plugin is found by its name, as components are: ``--callbacks Spread:every=5``
    makes a ``Spread(every=5)``.  Its options are its constructor's parameters, and their help is
    the section ``Parameters`` of its docstring.

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
    :meth:`Fit.generator <nnpipe.training.fit.TrainingRun.generator>` there.

    With several processes, callbacks run in the first process only.

    Attributes
    ----------
    frameworks
        The frameworks whose trainings it can observe.  With ``"torch"``, batches and outputs hold
        tensors; with ``"keras"``, they hold arrays and ``fit.model`` is a ``keras.Model``.
    describes_weights
        Whether what it writes after an epoch describes the weights of that epoch.  If the trainer
        leaves other weights in the model than those it evaluated last, it evaluates the model once
        more, and calls ``on_evaluate_batch`` and ``on_epoch_end`` of these callbacks again;
        ``fit.epoch`` is then the epoch of these weights.

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
        said, taken = extract_parameter_descriptions(cls), describe_parameters(cls)
        return tuple(
            Option(
                p.name,
                taken.get(p.name, ""),
                said.get(p.name, ""),
                MISSING if p.default is p.empty else p.default,
            )
            for p in inspect.signature(cls).parameters.values()
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        )

    @classmethod
    def missing(cls) -> tuple[str, ...]:
        """Return the packages that are not installed, of ``requires`` and the frameworks that it
        supports.
        """
        framework = "|".join(cls.frameworks)
        absent = () if any(map(is_installed, cls.frameworks)) else (framework,)
        return (*absent, *super().missing())

    def parts(self) -> tuple[Callback, ...]:
        """Return the callback itself, or those that it calls."""
        return (self,)

    def on_fit_begin(self, fit: TrainingRun) -> None:
        """Prepare for the training; the state of a resumed run has been restored."""

    def on_epoch_begin(self, fit: TrainingRun) -> None:
        """Prepare for an epoch; ``fit.epoch`` counts from 1.  Not called if a run resumes within
        an epoch.
        """

    def on_batch_begin(self, fit: TrainingRun, batch: dict[str, Any]) -> None:
        """Inspect or change a training batch before the model receives it."""

    def on_batch_end(
        self, fit: TrainingRun, batch: dict[str, Any], outputs: dict[str, Any]
    ) -> None:
        """Inspect a training batch and its outputs; the gradients of this step are still
        available.
        """

    def on_evaluate_batch(
        self,
        fit: TrainingRun,
        dataset: str,
        split: str,
        batch: dict[str, Any],
        outputs: dict[str, Any],
    ) -> None:
        """Inspect a batch of an evaluated split, and its outputs."""

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Finish an epoch; ``fit.history.last`` holds its figures."""

    def on_fit_end(self, fit: TrainingRun) -> None:
        """Finish, after the last epoch or after a call of ``fit.stop``; not called after an
        error.
        """

    def close(self) -> None:
        """Close files and end processes; always called, also after an error."""


class WritingCallback(Callback):
    """A callback that writes tables and pictures into the folders ``tables`` and ``pictures`` of
    the run's folder.

    Each file keeps its name throughout the training and is replaced atomically, so
    the number of files does not grow with the epochs.
    Write tables with :func:`write_table` and pictures with :func:`create_figure` and
    :func:`save_figure`.  A subclass that overrides ``on_fit_begin`` calls this one first.

    Attributes
    ----------
    draws
        Whether it draws pictures, which requires matplotlib.
    """

    abstract: ClassVar[bool] = True
    install: ClassVar[str] = "nnpipe[report]"
    draws: ClassVar[bool] = False

    @classmethod
    def missing(cls) -> tuple[str, ...]:
        """Return the packages that are not installed, including matplotlib if it ``draws``."""
        absent = ("matplotlib",) if cls.draws and not is_installed("matplotlib") else ()
        return (*super().missing(), *absent)

    def on_fit_begin(self, fit: TrainingRun) -> None:
        """Check before the first epoch that there is a folder to write to, and matplotlib for
        pictures.

        Raises
        ------
        ConfigError
            If the training has no folder.
        MissingDependency
            If a package that it needs is not installed.
        """
        name = type(self).__name__
        if fit.folder is None:
            raise ConfigError(
                f"{name} writes files: give the training a folder, Trainer.fit(..., folder=...)"
            )
        self.check_installed()


def get_run_folder(fit: TrainingRun) -> RunFolder:
    """Return the run's folder, which names its files."""
    assert fit.folder is not None  # on_fit_begin has checked this
    return fit.folder


def is_write_due(fit: TrainingRun) -> bool:
    """Return whether files that show all epochs are written anew after this one.

    They are after each of the first 100 epochs, then after each tenth, from 1,000 on after each
    hundredth, and so on, and after the last: otherwise the time of an epoch would grow with their
    number.  A Keras loop may go on beyond ``num_epochs``, whose last epoch is known only when the
    training ends.
    """
    last = is_last(fit) and (fit.epoch <= fit.options.num_epochs or bool(fit.stopping))
    return last or fit.epoch % 10 ** max(0, len(str(fit.epoch - 1)) - 2) == 0


def is_last(fit: TrainingRun) -> bool:
    """Return whether no epoch follows this one; also when the final weights are described."""
    options = fit.options
    over = options.max_steps is not None and fit.step >= options.max_steps
    return over or fit.final is not None or fit.epoch >= options.num_epochs or bool(fit.stopping)


def write_table(fit: TrainingRun, name: str, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as a JSON list; numbers that are not finite become null, as JSON has no NaN."""
    lines = ",\n".join(json.dumps(_replace_nonfinite(row), allow_nan=False) for row in rows)
    write_text(get_run_folder(fit).table(name), f"[\n{lines}\n]\n")


def _replace_nonfinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_nonfinite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def create_figure(width: float, height: float) -> Any:
    """Return a ``matplotlib.figure.Figure``, with width and height in inches, that pyplot does
    not know of.
    """
    from matplotlib.figure import Figure

    return Figure((width, height), layout="constrained")


def save_figure(fit: TrainingRun, name: str, figure: Any) -> None:
    """Write a figure as PNG into ``pictures``; equal figures give equal bytes.

    After the last epoch it is written at once.  Before, rendering takes at most a tenth of the
    training's time: a figure waits until it may, or a newer one of its name takes its place, or the
    training ends.
    """
    fit.pictures.add(get_run_folder(fit).picture(name), figure, at_once=is_last(fit))


def render_pictures(fit: TrainingRun) -> list[Path]:
    """Render the figures that wait, and return all pictures of the run, in order."""
    fit.pictures.finish()
    return get_run_folder(fit).pictures()


def draw_heat_map(
    axes: Any,
    values: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    label: str,
    colours: str = "viridis",
) -> None:
    """Draw a matrix ``(rows, columns)`` as colours with a scale; some names are left out if they
    would overlap.
    """
    picture = axes.imshow(values, aspect="auto", interpolation="nearest", cmap=colours)
    for names, axis, most in ((rows, axes.yaxis, 40), (columns, axes.xaxis, 20)):
        step = -(-len(names) // most) or 1
        axis.set_ticks(range(0, len(names), step), names[::step])
    axes.figure.colorbar(picture, ax=axes, label=label)
