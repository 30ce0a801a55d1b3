"""A Keras training's run folder: a checkpoint at the end of each epoch, and going on from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.statefile import read_state
from nnpipe.training.checkpoints import CHECKPOINT, LAST, CheckpointWriter
from nnpipe.training.runfolder import RunFolder, check_course


class KerasRun:
    """What a training of some epochs needs to go on from the last one that was finished.

    Order and variation of samples follow from seed and epoch, so weights, the
    optimiser's variables and the model's own random states are all there is.
    """

    def __init__(self, path: Path | None, writer: CheckpointWriter, identity: Mapping[str, Any]) -> None:
        self._path = path
        self._writer = writer
        self._identity = dict(identity)

    def restore(self, model: Any, optimiser: Any) -> list[dict[str, float]]:
        """Load the last checkpoint, if there is one; give the figures of the epochs that are done.

        Raises
        ------
        ConfigError
            If it is one of another training; nothing has changed then.
        """
        if self._path is None or not self._path.exists():
            return []
        state = read_state(self._path, kind=CHECKPOINT)
        check_course(self._path, state["course"], self._identity)
        pairs = [*_pairs(model, state["model"], self._path), *_pairs(optimiser, state["optimiser"], self._path)]
        for variable, value in pairs:
            variable.assign(value)
        return [dict(epoch) for epoch in state["epochs"]]

    def keep(self, model: Any, optimiser: Any, epochs: list[dict[str, float]]) -> None:
        """Have a checkpoint written."""
        if self._path is not None:
            state = {
                "course": self._identity,
                "model": _values(model),
                "optimiser": _values(optimiser),
                "epochs": [dict(epoch) for epoch in epochs],
            }
            self._writer.write(self._path, state, CHECKPOINT)


@contextmanager
def keras_run(folder: Path | None, identity: Mapping[str, Any]) -> Iterator[KerasRun]:
    """Give the run in a folder, or one that keeps nothing; what was to be written is, when the block ends."""
    writer = CheckpointWriter()
    with ExitStack() as stack:
        path = None
        if folder is not None:
            own = RunFolder(folder)
            stack.enter_context(own.claimed(identity, resume=True))
            path = own.checkpoint(LAST)
        try:
            yield KerasRun(path, writer, identity)
        finally:
            writer.close()


def _values(owner: Any) -> list[Any]:
    return [np.array(variable.numpy()) for variable in owner.variables]


def _pairs(owner: Any, values: list[Any], path: Path) -> list[tuple[Any, Any]]:
    variables = list(owner.variables)
    if [tuple(v.shape) for v in variables] != [np.shape(value) for value in values]:
        raise ConfigError(f"{path}: of another model; use another folder")
    return list(zip(variables, values, strict=True))
