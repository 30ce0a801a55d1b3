"""The interface of places where jobs run."""

from __future__ import annotations

import base64
import binascii
import io
import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.experiment.database.jobs import CREATING, ENDED, FAILED, INITIALISING
from nnpipe.jobs.agent.status import TAIL
from nnpipe.jobs.job_spec import JobSpec

ABSENT = "absent"
"""The state of a folder without a job."""

_LONGEST = 500  # characters of a reason

_KNOWN = (ABSENT, CREATING, INITIALISING)


class JobError(NNPipeError):
    """A job cannot be started, reached or stopped."""


class Unreached(JobError):
    """A place does not answer now; it may later."""


class EndedWhileStarting(JobError):
    """A job's processes ended before they were ready; another attempt may succeed."""


class Unsure(JobError):
    """It is unknown whether a request was carried out."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """The state of a job at one moment.

    Attributes
    ----------
    state, reason
        The state and its reason; whether the job is in progress follows from its reports.
    ended
        The record of its end, as from :func:`end_record`; None before the end.
    processes
        Its processes.
    progress, log
        The content of each file from the requested position on.
    progress_size, log_size
        The total size of each file in bytes.
    """

    state: str
    reason: str = ""
    ended: Mapping[str, Any] | None = None
    processes: Mapping[str, Any] = field(default_factory=dict)
    progress: bytes = b""
    progress_size: int = 0
    log: bytes = b""
    log_size: int = 0

    @classmethod
    def from_json(cls, value: Mapping[str, Any], where: str) -> Look:
        """Read the answer of an agent; raise :class:`JobError` if it is malformed."""
        try:
            if "refused" in value:
                raise JobError(f"{where}: {_normalize_text(value['refused'])}")
            ended = None if value["ended"] is None else end_record(value["ended"])
            state, reason = str(value["state"]), _normalize_text(value["reason"])
            if ended is not None:
                state, reason = ended["state"], ended["reason"]
            elif state not in _KNOWN:
                raise ValueError("its state makes no sense")
            return cls(
                state=state,
                reason=reason,
                ended=ended,
                processes=_select_objects(value["processes"]),
                progress=base64.b64decode(value["progress"]),
                progress_size=int(value["progress_size"]),
                log=base64.b64decode(value["log"]),
                log_size=int(value["log_size"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError, binascii.Error) as error:
            raise JobError(f"{where}: what is told of the job cannot be read ({error!r})") from None


def end_record(value: Any) -> dict[str, Any]:
    """Check the record of a job's end; if it is damaged, the job counts as failed."""
    try:
        status, state = value["status"], str(value["state"])
        if state not in ENDED:
            raise ValueError(state)
        return {
            "state": state,
            "reason": _normalize_text(value["reason"]),
            "status": None if status is None else int(status),
            "outputs": [_parse_output(one) for one in value["outputs"]],
            "attempt": int(value["attempt"]),
            "at": float(value["at"]),
        }
    except (KeyError, TypeError, ValueError, OverflowError):
        reason = "what is written about its end is damaged"
        return {
            "state": FAILED,
            "reason": reason,
            "status": None,
            "outputs": [],
            "attempt": None,
            "at": None,
        }


def _parse_output(value: Any) -> dict[str, Any]:
    size, fault = int(value["size"]), _normalize_text(value["fault"])
    return {
        "path": str(value["path"]),
        "size": size,
        "sha256": str(value["sha256"]),
        "fault": fault,
    }


def _select_objects(value: Any) -> dict[str, Any]:
    return {str(name): item for name, item in dict(value).items() if isinstance(item, dict)}


def _normalize_text(value: Any) -> str:
    return " ".join(str(value).split())[:_LONGEST]


class Place(ABC):
    """A machine or a cluster on which jobs run; ``folder`` arguments are results of
    :meth:`folder`.
    """

    address: str
    """The name of the place in the run database."""

    keeps_environment: ClassVar[bool] = True
    """Whether the folder of a job stores its environment variables for another attempt."""

    @abstractmethod
    def folder(self, job: str) -> str:
        """Return the path of a new job's folder, without making it."""

    def get_retry_folder(self, job: str, folder: str, attempt: int) -> str:
        """Return the folder of another attempt of a job: the same one, if the place allows it."""
        return folder

    @abstractmethod
    def start(self, job: str, folder: str, work: JobSpec, afterwards: Mapping[str, str]) -> None:
        """Start a job.

        Parameters
        ----------
        job
            The job's identifier.
        folder
            The job's folder, from :meth:`folder`.
        work
            The specification of the job.
        afterwards
            Environment variables for ``nnpipe.jobs.collect_results_command``, which is run on this
            machine when the job has ended.  Places on other machines leave this to the next check
            of the job.

        Raises
        ------
        JobError
            If the job cannot be started; then none of its processes runs.
        Unsure
            If the connection was lost; a later check will show whether the job was started.
        """

    @abstractmethod
    def look(self, folder: str, progress: int = -TAIL, log: int = -1) -> Look:
        """Return the state of a job, and its progress and log from these positions on (negative:
        from the end).
        """

    @abstractmethod
    def cancel(self, folder: str, grace: float | None) -> Look:
        """Cancel a job with all its processes, and return its state."""

    @abstractmethod
    def resume(self, job: str, folder: str, work: JobSpec, attempt: int) -> None:
        """Start a failed or cancelled job again as attempt number ``attempt``, in the folder of
        :meth:`get_retry_folder`.

        The environment of ``work`` contains the new variables, or all of them if the place does not
        store any.
        """

    def fetch(self, folder: str, outputs: Sequence[Mapping[str, Any]], directory: Path) -> None:
        """Copy the outputs of a completed job to a folder of this machine, if they are on
        another one.
        """


_LARGEST = 1 << 30  # bytes


def to_send(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """Return each folder and file with its name on the other machine, relative to the job's working
    directory.

    A folder comes before its content.  Links are replaced by their targets, which
    do not exist on the other machine.  Special files and Python's compiled files
    are left out.

    Raises
    ------
    ConfigError
        If a path is missing or cannot be read, a folder contains itself, or the total size is too
        large.
    """
    found, size = [], 0
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path}: no such file or folder to send")
        # the name of a link itself, which scripts use
        called = Path(os.path.normpath(path.absolute())).name
        try:
            for file, name in _iterate_below(path, called, ()):
                size += 0 if file.is_dir() else file.stat().st_size
                if size > _LARGEST:
                    raise ConfigError(
                        f"{path}: more than {_LARGEST >> 30} GiB to send; put data there by other "
                        f"means"
                    )
                if not os.access(file, os.R_OK):
                    raise ConfigError(f"{file}: cannot be read, and so not be sent")
                found.append((file, name))
        except OSError as error:
            raise ConfigError(
                f"{error.filename or path}: cannot be sent: {error.strerror or error}"
            ) from None
    return found


def _iterate_below(path: Path, name: str, above: tuple[Path, ...]) -> Iterator[tuple[Path, str]]:
    if path.is_file():
        yield path, name
    elif path.is_dir():
        whole = path.resolve()
        if whole in above:
            raise ConfigError(f"{path}: a link to a folder that it lies in; it cannot be sent")
        yield path, name
        for inner in sorted(path.iterdir()):
            if inner.name != "__pycache__":
                yield from _iterate_below(inner, f"{name}/{inner.name}", (*above, whole))


NAME = "agent.pyz"

_MAIN = "import sys\nfrom nnpipe.jobs.agent.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
_BEGINNING = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that the bytes are always the same


def build_agent() -> bytes:
    """Return the archive: the modules of :mod:`nnpipe.jobs.agent` under their own names, and a
    start module.
    """
    folder = Path(__file__).parent / "agent"
    parts = {"__main__.py": _MAIN, "nnpipe/__init__.py": "", "nnpipe/jobs/__init__.py": ""}
    parts |= {
        f"nnpipe/jobs/agent/{path.name}": path.read_text("utf-8")
        for path in sorted(folder.glob("*.py"))
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(zipfile.ZipInfo(name, _BEGINNING), text, zipfile.ZIP_DEFLATED)
    return made.getvalue()
