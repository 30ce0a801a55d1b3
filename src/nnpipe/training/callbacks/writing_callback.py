"""The base class of callbacks that write files, and functions that write tables and pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nnpipe.core.discoverable import is_installed
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.run_folder import RunFolder

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit


class WritingCallback(Callback):
    """A callback that writes tables and pictures into the folders ``tables`` and ``pictures`` of the run's folder.

    Each file keeps its name throughout the training and is replaced atomically, so
    the number of files does not grow with the epochs.
    Write tables with :func:`write_table` and pictures with :func:`new_figure` and
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

    def on_fit_begin(self, fit: Fit) -> None:
        """Check before the first epoch that there is a folder to write to, and matplotlib for pictures.

        Raises
        ------
        ConfigError
            If the training has no folder.
        MissingDependency
            If a package that it needs is not installed.
        """
        name = type(self).__name__
        if fit.folder is None:
            raise ConfigError(f"{name} writes files: give the training a folder, Trainer.fit(..., folder=...)")
        self.check_installed()


def folder_of(fit: Fit) -> RunFolder:
    """Return the run's folder, which names its files."""
    assert fit.folder is not None  # on_fit_begin has checked this
    return fit.folder


def writes_after(fit: Fit) -> bool:
    """Return whether files that show all epochs are written anew after this one.

    They are after each of the first 100 epochs, then after each tenth, from 1,000 on after each hundredth, and so on,
    and after the last: otherwise the time of an epoch would grow with their number.  A Keras loop may go on beyond
    ``num_epochs``, whose last epoch is known only when the training ends.
    """
    last = is_last(fit) and (fit.epoch <= fit.options.num_epochs or bool(fit.stopping))
    return last or fit.epoch % 10 ** max(0, len(str(fit.epoch - 1)) - 2) == 0


def is_last(fit: Fit) -> bool:
    """Return whether no epoch follows this one; also when the final weights are described."""
    options = fit.options
    over = options.max_steps is not None and fit.step >= options.max_steps
    return over or fit.final is not None or fit.epoch >= options.num_epochs or bool(fit.stopping)


def write_table(fit: Fit, name: str, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as a JSON list; numbers that are not finite become null, as JSON has no NaN."""
    lines = ",\n".join(json.dumps(_finite(row), allow_nan=False) for row in rows)
    write_text(folder_of(fit).table(name), f"[\n{lines}\n]\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def new_figure(width: float, height: float) -> Any:
    """Return a ``matplotlib.figure.Figure``, with width and height in inches, that pyplot does not know of."""
    from matplotlib.figure import Figure

    return Figure((width, height), layout="constrained")


def save_figure(fit: Fit, name: str, figure: Any) -> None:
    """Write a figure as PNG into ``pictures``; equal figures give equal bytes.

    After the last epoch it is written at once.  Before, rendering takes at most a tenth of the training's time: a
    figure waits until it may, or a newer one of its name takes its place, or the training ends.
    """
    fit.pictures.add(folder_of(fit).picture(name), figure, at_once=is_last(fit))


def pictures_of(fit: Fit) -> list[Path]:
    """Render the figures that wait, and return all pictures of the run, in order."""
    fit.pictures.finish()
    return folder_of(fit).pictures()


def heat_map(
    axes: Any, values: Any, rows: Sequence[str], columns: Sequence[str], *, label: str, colours: str = "viridis"
) -> None:
    """Draw a matrix ``(rows, columns)`` as colours with a scale; some names are left out if they would overlap."""
    picture = axes.imshow(values, aspect="auto", interpolation="nearest", cmap=colours)
    for names, axis, most in ((rows, axes.yaxis, 40), (columns, axes.xaxis, 20)):
        step = -(-len(names) // most) or 1
        axis.set_ticks(range(0, len(names), step), names[::step])
    axes.figure.colorbar(picture, ax=axes, label=label)
