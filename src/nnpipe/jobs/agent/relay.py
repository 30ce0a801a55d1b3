"""Report progress and the end through a job's output, if its folder cannot be read from outside."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from nnpipe.jobs.agent import files

# Reports are enclosed in control characters that programs do not print (ASCII's record and unit separators).
_TOLD = re.compile(r"\x1e(\{[^\x1e\x1f]*\})\x1f\n?")
_PIECE = 1 << 16


class Relay:
    """Writes new progress of a job to standard output."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._begin = folder, 0

    def tell(self) -> None:
        """Write the progress since the last call."""
        while True:
            data, _ = files.piece(self._folder, files.PROGRESS, self._begin, _PIECE)
            if not data:
                return
            self._begin += len(data)
            _write({"progress": data.decode("latin-1")})

    def end(self, record: dict[str, Any]) -> None:
        """Write the record of the job's end."""
        self.tell()
        _write({"ended": record})


def separated(text: str) -> tuple[str, bytes, dict[str, Any] | None]:
    """Split a job's output into the script's output, its progress file, and the record of the end."""
    progress, end_of = b"", None
    for said in _TOLD.findall(text):
        try:
            told = json.loads(said)
        except ValueError:
            continue
        if isinstance(told.get("progress"), str):
            progress += told["progress"].encode("latin-1", "replace")
        if isinstance(told.get("ended"), dict):
            end_of = told["ended"]
    return _TOLD.sub("", text), progress, end_of


def _write(told: dict[str, Any]) -> None:
    os.write(1, b"\x1e" + json.dumps(told).encode() + b"\x1f\n")
