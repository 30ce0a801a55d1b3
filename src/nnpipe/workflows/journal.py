"""A journal: the folder in which long work records what is done, so that it can be killed and resumed at any time.

Each point of a sweep, or candidate of a pipeline, has one file: its result, or
why there is none.  A file appears whole or not at all, under a name that
follows from everything the work depends on; so what is there is right, and
what is not there is done again.
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

from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.files import replacing, write_text
from nnpipe.core.leases import locked
from nnpipe.measuring.run import Run


@dataclass(frozen=True)
class Outcome:
    """What became of a point: a run, or the reason why there is none."""

    run: Run | None
    reason: str = ""


def said(error: BaseException) -> str:
    """Return what an error says, and its kind where it says nothing."""
    return str(error) or type(error).__name__


def digest_of(value: Any) -> str:
    """Return sixteen hexadecimal digits of the SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Journal:
    """Outcomes by key in a folder."""

    folder: Path

    def result_path(self, key: str) -> Path:
        """Where the result file of a point lies, once there is one."""
        return self.folder / f"{key}.json"

    def working_path(self, key: str) -> Path:
        """Where a result may lie that is not finished; whatever is there means nothing."""
        return self.folder / f".{key}.working.json"

    def read(self, key: str) -> Outcome | None:
        """Return what became of a point; ``None`` if it is yet to be done.

        Raises
        ------
        ArtifactError
            If its file cannot be read, naming it: nothing is thrown away silently.
        """
        path = self.result_path(key)
        if path.is_file():
            return Outcome(Run.read(path))
        failure = self._failure_path(key)
        if not failure.is_file():
            return None
        try:
            return Outcome(None, str(json.loads(failure.read_text("utf-8"))["reason"]))
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise ArtifactError(f"{failure}: not a note of a failure ({error}); delete it to try again") from None

    def write(self, key: str, title: str, outcome: Outcome) -> None:
        """Note what became of a point."""
        if outcome.run is not None:
            outcome.run.write(self.result_path(key))
            self.forget_failure(key)
        else:
            self.result_path(key).unlink(missing_ok=True)
            note = {"title": title, "reason": outcome.reason}
            write_text(self._failure_path(key), json.dumps(note, indent=2) + "\n")

    def keep(self, key: str, result: Path) -> None:
        """Note that a point is done by a copy of its result file, byte for byte."""
        with replacing(self.result_path(key)) as temporary:
            shutil.copyfile(result, temporary)

    def remove(self) -> None:
        """Remove the folder with all that is noted in it."""
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def forget_failure(self, key: str) -> None:
        """Have a point that failed tried again."""
        self._failure_path(key).unlink(missing_ok=True)

    def _failure_path(self, key: str) -> Path:
        return self.folder / f"{key}.failed.json"


@contextmanager
def alone(folder: Path, what: str = "sweep") -> Iterator[None]:
    """Hold a folder against a second sweep or run; the system lets go of it however the process ends.

    Raises
    ------
    ConfigError
        If another one holds it; the message calls it ``what``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "ab") as handle:
        if locked(handle.fileno()) is False:
            raise ConfigError(f"{folder}: another {what} is at work here; wait, or choose another output")
        yield
