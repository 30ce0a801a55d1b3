"""A journal: a folder that records finished work, so that long work can be killed and resumed at
any time.

Each point of a sweep, or candidate of a pipeline, has one file: its result, or
the reason why there is none.  Files are written atomically, under names that
follow from everything the work depends on.  So an existing file is valid, and
work without a file is done again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.bounded_json import read_object
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.files import remove_abandoned, replace_atomically, write_text
from nnpipe.core.leases import try_lock
from nnpipe.measuring.run import Run


@dataclass(frozen=True)
class Outcome:
    """The outcome of a point: a run, or the reason why there is none."""

    run: Run | None
    reason: str = ""


def get_error_message(error: BaseException) -> str:
    """Return an error's message, or its class if the message is empty."""
    return str(error) or type(error).__name__


def compute_digest(value: Any) -> str:
    """Return the first sixteen hexadecimal digits of the SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Journal:
    """Outcomes by key in a folder."""

    folder: Path

    def get_result_path(self, key: str) -> Path:
        """Return the path of a point's result file, which may not exist yet."""
        return self.folder / f"{key}.json"

    def get_working_path(self, key: str) -> Path:
        """Return the path for an unfinished result; a file there is ignored."""
        return self.folder / f".{key}.working.json"

    def read(self, key: str) -> Outcome | None:
        """Return the outcome of a point; ``None`` if it has not been done.

        Raises
        ------
        ArtifactError
            If its file cannot be read; it is not discarded silently.
        """
        path = self.get_result_path(key)
        if path.is_file():
            return Outcome(Run.read(path))
        failure = self._get_failure_path(key)
        if not failure.is_file():
            return None
        try:
            return Outcome(None, str(read_object(failure)["reason"]))
        except (ArtifactError, KeyError) as error:
            raise ArtifactError(
                f"{failure}: not a note of a failure ({error}); delete it to try again"
            ) from None

    def write(self, key: str, title: str, outcome: Outcome) -> None:
        """Record the outcome of a point."""
        if outcome.run is not None:
            outcome.run.write(self.get_result_path(key))
            self.remove_failure(key)
        else:
            self.get_result_path(key).unlink(missing_ok=True)
            note = {"title": title, "reason": outcome.reason}
            write_text(self._get_failure_path(key), json.dumps(note, indent=2) + "\n")

    def record_result(self, key: str, result: Path) -> None:
        """Record a point as done, by an exact copy of its result file."""
        with replace_atomically(self.get_result_path(key)) as temporary:
            shutil.copyfile(result, temporary)

    def remove(self) -> None:
        """Remove the folder with all outcomes."""
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def remove_failure(self, key: str) -> None:
        """Remove the record of a failure, so that the point is tried again."""
        self._get_failure_path(key).unlink(missing_ok=True)

    def _get_failure_path(self, key: str) -> Path:
        return self.folder / f"{key}.failed.json"


@contextmanager
def lock_folder(folder: Path, what: str = "sweep") -> Iterator[None]:
    """Lock a folder against a second sweep or run, and remove what a killed one left in it.

    The system releases the lock however the process ends.

    Raises
    ------
    ConfigError
        If another one has locked it; the message calls it ``what``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "ab") as handle:
        if try_lock(handle.fileno()) is False:
            raise ConfigError(
                f"{folder}: another {what} is at work here; wait, or choose another output"
            )
        remove_abandoned(folder, within=True)
        yield
