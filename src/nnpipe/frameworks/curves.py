"""Curves of a training, for TensorBoard."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nnpipe.core.errors import ConfigError, MissingDependency

_VALIDATION = "validation_"


@contextmanager
def curves(logdir: Path | None) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """Give a function that adds the figures of an epoch to the event files in a folder.

    Training and validation are two runs, ``train`` and ``validation``, with
    tags of the same name, so that TensorBoard draws them into one plot.

    Parameters
    ----------
    logdir
        The folder; where it is None the function does nothing.

    Yields
    ------
    Callable
        Takes the number of the epoch, from 1, and its figures as
        :class:`~nnpipe.core.training.TrainingHistory` has them.

    Raises
    ------
    MissingDependency
        If tensorboardX is not installed.
    ConfigError
        If the folder is a file.
    """
    if logdir is None:
        yield lambda epoch, figures: None
        return
    if importlib.util.find_spec("tensorboardX") is None:
        raise MissingDependency("--logdir needs tensorboardX, which is not installed: pip install tensorboardX")
    if logdir.exists() and not logdir.is_dir():
        raise ConfigError(f"--logdir {logdir} is a file; it must be a folder, or not exist")
    from tensorboardX import SummaryWriter

    with ExitStack() as stack:
        writers = {
            run: stack.enter_context(SummaryWriter(str(logdir / run), write_to_disk=True))
            for run in ("train", "validation")
        }

        def write(epoch: int, figures: Mapping[str, float]) -> None:
            for name, value in figures.items():
                run = "validation" if name.startswith(_VALIDATION) else "train"
                writers[run].add_scalar(name.removeprefix(_VALIDATION), value, epoch)
            for writer in writers.values():
                writer.flush()

        yield write
