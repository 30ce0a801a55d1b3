"""Checkpoints: a copy at once, the writing in the background, and errors where the training sees them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError, TrainingError
from nnpipe.core.saving import kept_elsewhere
from nnpipe.experiment.append_only import AppendOnly
from nnpipe.experiment.state_file import read_state, write_state
from nnpipe.training._row_files import RowFiles
from nnpipe.training.run_folder import RunFolder

CHECKPOINT = "training checkpoint"
"""The kind of the state files that hold all of a run."""

WEIGHTS = "training weights"
"""The kind of those that hold a model's weights, and how good they were."""

LAST, BEST = "last.state", "best.state"


LARGE = 32_000_000
"""Bytes of a state from which on there is one copy of it in memory, never two."""


def copied(state: Any, spare: Any = None) -> Any:
    """Return a state that no later step changes, with its tensors on the CPU.

    Parameters
    ----------
    state
        Dictionaries, lists, arrays, tensors and plain values.
    spare
        A copy that nobody needs any more: its tensors' memory is used where they are alike.
    """
    if isinstance(state, AppendOnly):
        return AppendOnly(state)
    if isinstance(state, Mapping):
        old = spare if isinstance(spare, Mapping) else {}
        return {key: copied(value, old.get(key)) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(copied(value) for value in state)
    if isinstance(state, np.ndarray):
        return state.copy()
    if hasattr(state, "detach"):
        detached = state.detach()
        if type(spare) is type(detached) and spare.shape == detached.shape and spare.dtype == detached.dtype:
            return spare.copy_(detached)
        return detached.clone() if detached.device.type == "cpu" else detached.cpu()
    return state


def size_of_state(state: Any) -> int:
    """Return the bytes of a state's arrays and tensors."""
    if isinstance(state, Mapping):
        return sum(map(size_of_state, state.values()))
    if isinstance(state, (list, tuple)) and not isinstance(state, AppendOnly):
        return sum(map(size_of_state, state))
    return int(getattr(state, "nbytes", 0))


class CheckpointWriter:
    """Writes state files in a thread; the newest of a name is what counts.

    A state that was handed over and has not begun to be written is replaced by
    a newer one of the same path, at the end of the queue: what was handed over
    before a checkpoint is on the disk before it is.  Whatever goes wrong is raised by the next
    :meth:`copied`, :meth:`write`, :meth:`check` or :meth:`close`.

    All methods belong to one thread; states are the writer's own from when they are handed over.
    """

    def __init__(self, write: Callable[..., None] = write_state) -> None:
        self._write = write
        self.rows = RowFiles()
        self._condition = threading.Condition()
        self._waiting: dict[Path, tuple[str, Mapping[str, Any]]] = {}
        self._busy = False
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._closing = False
        self.failed = False
        self._large: Any = None

    def copied(self, state: Mapping[str, Any]) -> Any:
        """Copy a state to be written.

        Of a large one there is never more than one copy: this waits until the one
        before is written, and takes its memory.
        """
        spare, self._large = self._large, None
        if spare is not None:
            self.wait()
        copy = copied(state, spare)
        if size_of_state(copy) > LARGE:
            self._large = copy
        return copy

    def wait(self) -> None:
        """Wait until all is written, and raise what went wrong."""
        with self._condition:
            while self._waiting or self._busy:
                self._condition.wait()
        self.check()

    def write(self, path: Path, state: Mapping[str, Any], kind: str) -> None:
        """Hand a state over to be written."""
        self.check()
        with self._condition:
            self._waiting.pop(path, None)  # a newer state takes its place at the end
            self._waiting[path] = (kind, state)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def check(self) -> None:
        """Raise what went wrong since the last time."""
        with self._condition:
            error, self._error = self._error, None
        if error is not None:
            self.failed = True
            raise error

    def close(self) -> None:
        """Write what waits, end the thread, and raise what went wrong."""
        with self._condition:
            self._closing = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._large = None
        self.check()

    def _work(self) -> None:
        while True:
            with self._condition:
                self._busy = False
                self._condition.notify_all()
                while not self._waiting and not self._closing:
                    self._condition.wait()
                if not self._waiting:
                    return
                path = next(iter(self._waiting))
                kind, state = self._waiting.pop(path)
                self._busy = True
            try:
                self._write(path, self.rows.put(state, path.parent), kind=kind)
            except BaseException as error:
                with self._condition:
                    # The first is the cause; what follows may be its consequence.
                    self._error = self._error or error
            del state  # not kept while there is nothing to do


def rescued(weights: Mapping[str, Any], folder: RunFolder, epoch: int, error: OSError) -> TrainingError:
    """Keep a model's weights somewhere else, since its folder takes no more, and give the error that says where."""
    state = {"model": copied(weights), "average": None, "epoch": epoch, "monitor": "", "value": 0.0}
    kept = kept_elsewhere(lambda path: write_state(path, state, kind=WEIGHTS), "rescued.state")
    there = f"the weights as they are now, in epoch {epoch}, are kept as {kept}, which read_weights reads"
    return TrainingError(
        f"{folder.path} cannot be written: {error.strerror or error}; {there if kept else 'nor can any other place'}"
    )


def read_checkpoint(path: Path, rows: RowFiles | None = None) -> dict[str, Any]:
    """Read a checkpoint with the rows that lie beside it; raises :class:`ArtifactError` naming what is damaged."""
    found: dict[str, Any] = (rows or RowFiles()).take(read_state(path, kind=CHECKPOINT), path.parent)
    return found


def load_weights(
    path: str | Path, model: Any, *, names: Mapping[str, str] | None = None, partial: bool = False, average: bool = True
) -> list[str]:
    """Load a model's weights from a checkpoint or a file of the best weights.

    Parameters
    ----------
    path
        The file.
    model
        The ``torch.nn.Module``.
    names
        For beginnings of names in the file, what they are called in the model: ``{"body.": "encoder."}``.
    partial
        Whether the model may have weights that the file lacks, or of another shape, which then stay;
        and the file some that the model lacks.
    average
        Whether to take the moving average where the file has one.

    Returns
    -------
    list of str
        The names loaded.

    Raises
    ------
    ArtifactError
        If the file is no such file, or does not fit; the model is as before.
    """
    found = read_weights(path, average=average)
    renamed = {_renamed(name, names or {}): value for name, value in found.items()}
    own = model.state_dict()
    fits = {
        n: v for n, v in renamed.items() if n in own and getattr(own[n], "shape", None) == getattr(v, "shape", None)
    }
    if not partial and (set(fits) != set(own) or set(fits) != set(renamed)):
        wrong = sorted((set(own) | set(renamed)) - set(fits))
        raise ArtifactError(f"{path}: not the weights of this {type(model).__name__}: {', '.join(wrong[:5])} differ")
    if not fits:
        raise ArtifactError(f"{path}: has none of the weights of this {type(model).__name__}")
    model.load_state_dict(fits, strict=not partial)
    return list(fits)


def read_weights(path: str | Path, *, average: bool = True) -> dict[str, Any]:
    """Read the weights of a checkpoint or a file of the best weights; raises as :func:`load_weights`."""
    try:
        state = read_state(path, kind=WEIGHTS)
    except ArtifactError as error:
        if CHECKPOINT not in str(error):
            raise
        state = read_state(path, kind=CHECKPOINT)
    found = dict(state["model"])
    return found | dict(state["average"]) if average and state.get("average") else found


def _renamed(name: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        if name.startswith(old):
            return new + name[len(old) :]
    return name
