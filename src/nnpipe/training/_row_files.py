"""Rows of epochs in files beside the checkpoints: each checkpoint appends only new rows, so its size does not grow.

A line of such a file is a row as JSON.  Instead of the rows, a checkpoint holds
the file's name, the number of rows when it was made, and the SHA-256 of their
lines.  Later lines belong to later checkpoints, or to one that was never finished.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError
from nnpipe.experiment.append_only import AppendOnly
from nnpipe.experiment.encoding import Bytes, Encoded, decode, encode
from nnpipe.training.run_folder import file_name

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
        """Append new rows to their files, and return the state with a reference to each file in place of its rows."""
        if isinstance(state, AppendOnly):
            return self._add(folder / f"{name}{ENDING}", state)
        if isinstance(state, Mapping):
            return {key: self.put(value, folder, _below(name, key)) for key, value in state.items()}
        return state

    def take(self, state: Any, folder: Path) -> Any:
        """Return the state with the rows in place of references; rows that are written next follow them.

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
                line = _line(row)
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
        wrong = ArtifactError(f"{path}: not the rows that the checkpoint was made with; use another folder")
        try:
            with path.open("rb") as file:
                while written.count < word["count"]:
                    line = file.readline(_LONGEST)
                    if not line.endswith(b"\n"):
                        raise wrong
                    written.digest.update(line)
                    found.append(_row(line))
                    written.count, written.size = written.count + 1, written.size + len(line)
        except OSError as error:
            raise ArtifactError(f"{path}: cannot be read: {error.strerror or error}") from None
        except (ValueError, TypeError, KeyError, RecursionError):
            raise wrong from None
        if written.digest.hexdigest() != word["sha256"]:
            raise wrong
        self._written[path] = written
        return found


def _below(name: str, key: Any) -> str:
    return file_name(str(key)) if not name else f"{name}.{file_name(str(key))}"


def _line(row: Any) -> bytes:
    encoded = encode(row)
    content = {"row": encoded.structure}
    if encoded.arrays:
        content["arrays"] = [[a.dtype, list(a.shape), base64.b64encode(a.data).decode()] for a in encoded.arrays]
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _row(line: bytes) -> Any:
    content = json.loads(line)
    arrays = [Bytes(dtype, tuple(shape), base64.b64decode(data)) for dtype, shape, data in content.get("arrays", ())]
    return decode(Encoded(content["row"], tuple(arrays)))
