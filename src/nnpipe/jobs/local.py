"""This machine as a place for jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_bytes
from nnpipe.core.secret import reveal_variables
from nnpipe.jobs.agent import control, files, status
from nnpipe.jobs.agent.status import TAIL
from nnpipe.jobs.job_spec import JobSpec
from nnpipe.jobs.place import NAME, EndedWhileStarting, JobError, Look, Place, build_agent

T = TypeVar("T")

HERE = "here"

_EVERY = 30.0
"""Seconds between two updates of a job's progress in a storage."""


@dataclass(frozen=True)
class LocalPlace(Place):
    """Runs jobs on this machine, each in its own session.

    Parameters
    ----------
    root
        The folder in which the jobs' folders are made.
    """

    root: Path | None = None
    address: str = HERE

    def folder(self, job: str) -> str:
        """Return the folder that a job will have; see :class:`Place`."""
        if self.root is None:
            raise ConfigError("where are the jobs' folders to be? give --folder FOLDER")
        return str(self.root.absolute() / job)

    def start(self, job: str, folder: str, work: JobSpec, afterwards: Mapping[str, str]) -> None:
        """Start a job; see :class:`Place`."""
        if not hasattr(os, "fork"):
            raise JobError(
                "jobs need Linux or another Unix here; give --on ssh://HOST to run it elsewhere"
            )
        path = Path(folder)
        try:
            path.mkdir(parents=True, mode=0o700)
            write_bytes(path / NAME, build_agent())
            # Keep a copy, since the file may change.  The job runs the original, beside its modules
            # and data.
            write_bytes(path / f"submitted{work.file.suffix}", work.file.read_bytes())
        except OSError as error:
            raise JobError(
                f"{error.filename or path}: cannot be written: {error.strerror or error}"
            ) from None
        told = {
            "id": job,
            "command": self._build_command(path, work),
            "directory": str(work.directory.absolute()),
            "environment": {**_build_path_variables(work), **reveal_variables(work.environment)},
            "outputs": list(work.outputs),
            "grace": work.grace,
            "afterwards": [sys.executable, "-m", "nnpipe.jobs.collect_results_command"],
            "every": None if work.storage is None else _EVERY,
            "afterwards_environment": {**afterwards, "PYTHONPATH": _format_path()},
        }
        self._run_action(path, lambda: control.start(path, told, self._get_program(path)))

    def look(self, folder: str, progress: int = -TAIL, log: int = -1) -> Look:
        """Check the state of a job; see :class:`Place`."""
        path = Path(folder)
        return Look.from_json(
            self._run_action(path, lambda: status.look(path, progress=progress, log=log)), folder
        )

    def cancel(self, folder: str, grace: float | None) -> Look:
        """Cancel a job; see :class:`Place`."""
        path = Path(folder)
        return Look.from_json(self._run_action(path, lambda: control.cancel(path, grace)), folder)

    def resume(self, job: str, folder: str, work: JobSpec, attempt: int) -> None:
        """Resume a job; see :class:`Place`."""
        path = Path(folder)
        command = self._build_command(path, work, again=True)

        def resume_job() -> None:
            write_bytes(path / NAME, build_agent())
            control.resume(
                path, command, attempt, self._get_program(path), reveal_variables(work.environment)
            )

        self._run_action(path, resume_job)

    def _build_command(self, folder: Path, work: JobSpec, *, again: bool = False) -> list[str]:
        return work.build_command(
            str(work.file.absolute()), str(folder / files.PROGRESS), again=again
        )

    def _get_program(self, folder: Path) -> list[str]:
        return [sys.executable, "-E", str(folder / NAME)]

    def _run_action(self, folder: Path, action: Callable[[], T]) -> T:
        try:
            return action()
        except control.NeverReady as error:
            raise EndedWhileStarting(f"{folder.name[:12]}: {error}") from None
        except control.Refused as error:
            raise JobError(f"{folder.name[:12]}: {error}") from None
        except OSError as error:
            raise JobError(f"{error.filename or folder}: {error.strerror or error}") from None


def _build_path_variables(work: JobSpec) -> dict[str, str]:
    """Return variables by which a pipeline finds the nnpipe that submitted it; a script needs
    none.
    """
    return {"PYTHONPATH": _format_path()} if work.of_nnpipe else {}


def _format_path() -> str:
    return os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
