"""Checkpoints: copied at once, written in the background, with errors raised in the training."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError, TrainingError
from nnpipe.core.files import save_to_any_folder
from nnpipe.experiment.state import AppendOnly
from nnpipe.experiment.state_file import (
    EncodedState,
    StoredArray,
    decode,
    encode,
    read_state,
    write_state,
)
from nnpipe.training.run_folder import RunFolder, make_file_name

# Rows of epochs in files beside the checkpoints: each checkpoint appends only new rows, so its size
# does not grow.
#
# A line of such a file is a row as JSON.  Instead of the rows, a checkpoint holds the file's name,
# the number of rows when it was made, and the SHA-256 of their lines.  Later lines belong to later
# checkpoints, or to one that was never finished.

ENDING = ".jsonl"
_ROWS = frozenset({"$rows", "count", "sha256"})
_LONGEST = 100_000_000  # bytes of a line


@dataclass
class _Written:
    """The part of a file that is known to be on the disk."""

    count: int = 0
    size: int = 0
    digest: Any = field(default_factory=hashlib.sha256)


class RowFiles:
    """Writes the rows of states into files and reads them back.  One thread uses it at a time."""

    def __init__(self) -> None:
        self._written: dict[Path, _Written] = {}

    def put(self, state: Any, folder: Path, name: str = "") -> Any:
        """Append new rows to their files, and return the state with a reference to each file in
        place of its rows.
        """
        if isinstance(state, AppendOnly):
            return self._add(folder / f"{name}{ENDING}", state)
        if isinstance(state, Mapping):
            return {
                key: self.put(value, folder, _join_name(name, key)) for key, value in state.items()
            }
        return state

    def take(self, state: Any, folder: Path) -> Any:
        """Return the state with the rows in place of references; rows that are written next follow
        them.

        Raises
        ------
        ArtifactError
            If a file is missing, or its rows differ from those that the checkpoint was made with.
        """
        if not isinstance(state, Mapping):
            return state
        if state.keys() == _ROWS:
            return self._read(folder, state)
        return {key: self.take(value, folder) for key, value in state.items()}

    def _add(self, path: Path, rows: AppendOnly) -> dict[str, Any]:
        written = self._written.get(path, _Written())
        if written.count > len(rows):
            written = _Written()  # begun anew
        digest, size = written.digest.copy(), written.size
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(size)
            file.truncate()
            for row in rows[written.count :]:
                line = _encode_row(row)
                file.write(line)
                digest.update(line)
                size += len(line)
            file.flush()
            os.fsync(file.fileno())
        self._written[path] = _Written(len(rows), size, digest)
        return {"$rows": path.name, "count": len(rows), "sha256": digest.hexdigest()}

    def _read(self, folder: Path, word: Mapping[str, Any]) -> AppendOnly:
        name = str(word["$rows"])
        if name != Path(name).name:
            raise ArtifactError(f"{folder}: {name!r} is no name of a file of rows")
        path, written, found = folder / name, _Written(), AppendOnly()
        wrong = ArtifactError(
            f"{path}: not the rows that the checkpoint was made with; use another folder"
        )
        try:
            with path.open("rb") as file:
                while written.count < word["count"]:
                    line = file.readline(_LONGEST)
                    if not line.endswith(b"\n"):
                        raise wrong
                    written.digest.update(line)
                    found.append(_decode_row(line))
                    written.count, written.size = written.count + 1, written.size + len(line)
        except OSError as error:
            raise ArtifactError(f"{path}: cannot be read: {error.strerror or error}") from None
        except (ValueError, TypeError, KeyError, RecursionError):
            raise wrong from None
        if written.digest.hexdigest() != word["sha256"]:
            raise wrong
        self._written[path] = written
        return found


def _join_name(name: str, key: Any) -> str:
    return make_file_name(str(key)) if not name else f"{name}.{make_file_name(str(key))}"


def _encode_row(row: Any) -> bytes:
    encoded = encode(row)
    content = {"row": encoded.structure}
    if encoded.arrays:
        content["arrays"] = [
            [a.dtype, list(a.shape), base64.b64encode(a.data).decode()] for a in encoded.arrays
        ]
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _decode_row(line: bytes) -> Any:
    content = json.loads(line)
    arrays = [
        StoredArray(dtype, tuple(shape), base64.b64decode(data))
        for dtype, shape, data in content.get("arrays", ())
    ]
    return decode(EncodedState(content["row"], tuple(arrays)))


CHECKPOINT = "training checkpoint"
"""The kind of state files that hold a whole run."""

WEIGHTS = "training weights"
"""The kind of state files that hold a model's weights and their figures."""

LAST, BEST = "last.state", "best.state"


LARGE = 32_000_000
"""The size in bytes from which only one copy of a state is kept in memory, never two."""


def copy_state(state: Any, spare: Any = None) -> Any:
    """Return a copy of a state that no later step changes, with its tensors on the CPU.

    Parameters
    ----------
    state
        Dictionaries, lists, arrays, tensors and plain values.
    spare
        A copy that is no longer needed; the memory of its tensors is reused where shapes and types
        agree.
    """
    if isinstance(state, AppendOnly):
        return AppendOnly(state)
    if isinstance(state, Mapping):
        old = spare if isinstance(spare, Mapping) else {}
        return {key: copy_state(value, old.get(key)) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(copy_state(value) for value in state)
    if isinstance(state, np.ndarray):
        return state.copy()
    if hasattr(state, "detach"):
        detached = state.detach()
        if (
            type(spare) is type(detached)
            and spare.shape == detached.shape
            and spare.dtype == detached.dtype
        ):
            return spare.copy_(detached)
        return detached.clone() if detached.device.type == "cpu" else detached.cpu()
    return state


def size_of_state(state: Any) -> int:
    """Return the size of a state's arrays and tensors in bytes."""
    if isinstance(state, Mapping):
        return sum(map(size_of_state, state.values()))
    if isinstance(state, (list, tuple)) and not isinstance(state, AppendOnly):
        return sum(map(size_of_state, state))
    return int(getattr(state, "nbytes", 0))


class CheckpointWriter:
    """Writes state files in a thread; of several states for one path, only the newest matters.

    If a newer state of the same path arrives before writing has begun, it replaces
    the older one and goes to the end of the queue.  So everything handed over
    before a checkpoint is on the disk before the checkpoint.  Errors are raised by
    the next call of :meth:`copy_state`, :meth:`write`, :meth:`check` or :meth:`close`.

    All methods must be called by one thread.  A state belongs to the writer after it is handed
    over.
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

    def copy_state(self, state: Mapping[str, Any]) -> Any:
        """Return a copy of a state, to be written.

        There is never more than one copy of a large state: this waits until the
        previous one is written, and reuses its memory.
        """
        spare, self._large = self._large, None
        if spare is not None:
            self.wait()
        copy = copy_state(state, spare)
        if size_of_state(copy) > LARGE:
            self._large = copy
        return copy

    def wait(self) -> None:
        """Wait until everything is written; raise what went wrong."""
        with self._condition:
            while self._waiting or self._busy:
                self._condition.wait()
        self.check()

    def write(self, path: Path, state: Mapping[str, Any], kind: str) -> None:
        """Queue a state to be written."""
        self.check()
        with self._condition:
            self._waiting.pop(path, None)  # a newer state goes to the end of the queue
            self._waiting[path] = (kind, state)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._write_waiting, name="checkpoints", daemon=True
                )
                self._thread.start()
            self._condition.notify_all()

    def check(self) -> None:
        """Raise what went wrong since the last check."""
        with self._condition:
            error, self._error = self._error, None
        if error is not None:
            self.failed = True
            raise error

    def close(self) -> None:
        """Write all queued states, end the thread, and raise what went wrong."""
        with self._condition:
            self._closing = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._large = None
        self.check()

    def _write_waiting(self) -> None:
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
                    # The first error is the cause; later ones may follow from it.
                    self._error = self._error or error
            del state  # frees the memory while the queue is empty


def save_elsewhere(
    weights: Mapping[str, Any], folder: RunFolder, epoch: int, error: OSError
) -> TrainingError:
    """Save a model's weights elsewhere, since its folder cannot be written, and return the error
    that says where.
    """
    state = {
        "model": copy_state(weights),
        "average": None,
        "epoch": epoch,
        "monitor": "",
        "value": 0.0,
    }
    kept = save_to_any_folder(lambda path: write_state(path, state, kind=WEIGHTS), "rescued.state")
    there = (
        f"the weights as they are now, in epoch {epoch}, are kept as {kept}, which read_weights "
        f"reads"
    )
    return TrainingError(
        f"{folder.path} cannot be written: {error.strerror or error}; "
        f"{there if kept else 'nor can any other place'}"
    )


def read_checkpoint(path: Path, rows: RowFiles | None = None) -> dict[str, Any]:
    """Return a checkpoint with the rows in files beside it; raise :class:`ArtifactError` if a
    file is damaged.
    """
    found: dict[str, Any] = (rows or RowFiles()).take(
        read_state(path, kind=CHECKPOINT), path.parent
    )
    return found


def load_weights(
    path: str | Path,
    model: Any,
    *,
    names: Mapping[str, str] | None = None,
    partial: bool = False,
    average: bool = True,
) -> list[str]:
    """Load a model's weights from a checkpoint or a file of the best weights.

    Parameters
    ----------
    path
        The file.
    model
        The ``torch.nn.Module``.
    names
        Prefixes of names in the file, and the prefixes that replace them in the model: ``{"body.":
        "encoder."}``.
    partial
        Whether the model and the file may differ: weights that the file lacks, or has in another
        shape, stay unchanged, and weights that the model lacks are ignored.
    average
        Whether to load the moving average if the file has one.

    Returns
    -------
    list of str
        The names of the loaded weights.

    Raises
    ------
    ArtifactError
        If the file is of another kind or does not fit the model.  The model is unchanged then.
    """
    found = read_weights(path, average=average)
    renamed = {_rename_prefix(name, names or {}): value for name, value in found.items()}
    own = model.state_dict()
    fits = {
        n: v
        for n, v in renamed.items()
        if n in own and getattr(own[n], "shape", None) == getattr(v, "shape", None)
    }
    if not partial and (set(fits) != set(own) or set(fits) != set(renamed)):
        wrong = sorted((set(own) | set(renamed)) - set(fits))
        raise ArtifactError(
            f"{path}: not the weights of this {type(model).__name__}: {', '.join(wrong[:5])} differ"
        )
    if not fits:
        raise ArtifactError(f"{path}: has none of the weights of this {type(model).__name__}")
    model.load_state_dict(fits, strict=not partial)
    return list(fits)


def read_weights(path: str | Path, *, average: bool = True) -> dict[str, Any]:
    """Return the weights of a checkpoint or a file of the best weights, by name.

    Parameters
    ----------
    path
        The file.
    average
        Whether to return the moving average if the file has one.

    Raises
    ------
    ArtifactError
        If the file is damaged or of another kind.
    """
    try:
        state = read_state(path, kind=WEIGHTS)
    except ArtifactError as error:
        if CHECKPOINT not in str(error):
            raise
        state = read_state(path, kind=CHECKPOINT)
    found = dict(state["model"])
    return found | dict(state["average"]) if average and state.get("average") else found


def _rename_prefix(name: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        if name.startswith(old):
            return new + name[len(old) :]
    return name
