"""Training curves for TensorBoard."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.exports.export import EventFile, check_installed

DATA = "data"
"""Name of a wrapper's data set in histories."""

OUTPUT = "output"
"""Name of a model's single output in histories."""

_VALIDATION = "validation_"


@contextmanager
def write_training_curves(
    logdir: Path | None,
) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """Yield a function that adds the figures of an epoch to the event files in a folder.

    Training and validation are two runs, ``train`` and ``validation``, with
    tags of the same name, so that TensorBoard draws them into one plot.

    Parameters
    ----------
    logdir
        The folder; with ``None`` the function does nothing.

    Yields
    ------
    Callable
        Takes the number of the epoch, from 1, and its figures by the names in
        :class:`~nnpipe.core.training.TrainingHistory`.

    Raises
    ------
    MissingDependency
        If tensorboardX is not installed.
    ConfigError
        If ``logdir`` is a file.
    """
    if logdir is None:
        yield lambda epoch, figures: None
        return
    check_installed("--logdir")
    if logdir.exists() and not logdir.is_dir():
        raise ConfigError(f"--logdir {logdir} is a file; it must be a folder, or not exist")
    with ExitStack() as stack:
        files = {}
        for run in ("train", "validation"):
            # Two trainings may start within the same second.
            files[run] = EventFile(
                logdir / run / f"events.out.tfevents.{int(time.time())}.{secrets.token_hex(4)}"
            )
            stack.callback(files[run].close)

        def write(epoch: int, figures: Mapping[str, float]) -> None:
            for name, value in figures.items():
                run = "validation" if name.startswith(_VALIDATION) else "train"
                files[run].add_scalar(name.removeprefix(_VALIDATION), value, epoch, time.time())
            for file in files.values():
                file.flush()

        yield write


def map_epoch_figures(row: Mapping[str, float]) -> dict[str, float]:
    """Return the figures of an epoch by the names in
    :class:`~nnpipe.core.training.TrainingHistory`.

    Figures of an output with its own name keep it: ``digit/accuracy``.
    """
    found: dict[str, float] = {}
    for split, prefix in (("train", ""), ("validation", _VALIDATION)):
        for name, value in row.items():
            if name.startswith(f"{DATA}/{split}/"):
                own = name.removeprefix(f"{DATA}/{split}/")
                # The loss of all outputs comes first, and keeps the plain name.
                found.setdefault(prefix + own.removeprefix(f"{OUTPUT}/"), float(value))
    return found
