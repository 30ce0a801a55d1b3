"""Curves of a training, for TensorBoard."""

from __future__ import annotations

import importlib.util
import secrets
import time
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
    # Not its SummaryWriter: that one writes from a thread of its own, whenever that comes round to it.
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.summary import scalar

    with ExitStack() as stack:
        writers = {}
        for run in ("train", "validation"):
            (logdir / run).mkdir(parents=True, exist_ok=True)
            # Two trainings may begin within the second that the file's name tells.
            writers[run] = EventsWriter(str(logdir / run / "events"), f".{secrets.token_hex(4)}")
            stack.callback(writers[run].close)

        def write(epoch: int, figures: Mapping[str, float]) -> None:
            for name, value in figures.items():
                run = "validation" if name.startswith(_VALIDATION) else "train"
                summary = scalar(name.removeprefix(_VALIDATION), value)
                writers[run].write_event(Event(summary=summary, step=epoch, wall_time=time.time()))
            for writer in writers.values():
                writer.flush()

        yield write
