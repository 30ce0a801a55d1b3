"""The interface of places where jobs run."""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.core.errors import NNPipeError
from nnpipe.experiment.database.jobs import CREATING, ENDED, FAILED, INITIALISING
from nnpipe.jobs.agent.status import TAIL
from nnpipe.jobs.job_spec import JobSpec

ABSENT = "absent"
"""What a place says of a folder in which there is no job."""

_LONGEST = 500  # characters of a reason

_KNOWN = (ABSENT, CREATING, INITIALISING)


class JobError(NNPipeError):
    """A job cannot be started, reached or stopped."""


class Unreached(JobError):
    """A place does not answer now; it may later."""


class Unsure(JobError):
    """Something was asked for, and nobody knows whether it was done."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was seen of a job at one moment.

    Attributes
    ----------
    state, reason
        How it stands; that it is in progress follows from what it reports.
    ended
        What is written about its end, as :func:`end_record` gives it; None before.
    processes
        Who does it.
    progress, log
        What was written to each from the byte asked for on.
    progress_size, log_size
        Bytes of each in all.
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
        """Read what an agent gave; :class:`JobError` if it is nothing of the kind."""
        try:
            if "refused" in value:
                raise JobError(f"{where}: {_text(value['refused'])}")
            ended = None if value["ended"] is None else end_record(value["ended"])
            state, reason = str(value["state"]), _text(value["reason"])
            if ended is not None:
                state, reason = ended["state"], ended["reason"]
            elif state not in _KNOWN:
                raise ValueError("its state makes no sense")
            return cls(
                state=state, reason=reason, ended=ended, processes=_objects(value["processes"]),
                progress=base64.b64decode(value["progress"]), progress_size=int(value["progress_size"]),
                log=base64.b64decode(value["log"]), log_size=int(value["log_size"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, OverflowError, binascii.Error) as error:
            raise JobError(f"{where}: what is told of the job cannot be read ({error!r})") from None


def end_record(value: Any) -> dict[str, Any]:
    """Read what is written about the end of a job; where that is damaged, the job failed."""
    try:
        status, state = value["status"], str(value["state"])
        if state not in ENDED:
            raise ValueError(state)
        return {
            "state": state, "reason": _text(value["reason"]), "status": None if status is None else int(status),
            "outputs": [_output(one) for one in value["outputs"]], "attempt": int(value["attempt"]),
            "at": float(value["at"]),
        }  # fmt: skip
    except (KeyError, TypeError, ValueError, OverflowError):
        reason = "what is written about its end is damaged"
        return {"state": FAILED, "reason": reason, "status": None, "outputs": [], "attempt": None, "at": None}


def _output(value: Any) -> dict[str, Any]:
    size, fault = int(value["size"]), _text(value["fault"])
    return {"path": str(value["path"]), "size": size, "sha256": str(value["sha256"]), "fault": fault}


def _objects(value: Any) -> dict[str, Any]:
    return {str(name): item for name, item in dict(value).items() if isinstance(item, dict)}


def _text(value: Any) -> str:
    return " ".join(str(value).split())[:_LONGEST]


class Place(ABC):
    """A machine or a cluster.  Folders are those that :meth:`folder` gives."""

    address: str
    """What the place is called in the run database."""

    keeps_environment: ClassVar[bool] = True
    """Whether the folder of a job holds its variables, for another attempt."""

    @abstractmethod
    def folder(self, job: str) -> str:
        """Return the folder that a job will have; nothing is made yet."""

    def folder_again(self, job: str, folder: str, attempt: int) -> str:
        """Return the folder that a further attempt at a job will have: the same, unless a place cannot do that."""
        return folder

    @abstractmethod
    def start(self, job: str, folder: str, work: JobSpec, afterwards: Mapping[str, str]) -> None:
        """Start a job.

        Parameters
        ----------
        job
            Its identity.
        folder
            What :meth:`folder` gave for it.
        work
            What it is to do.
        afterwards
            Environment variables for ``nnpipe.jobs.collect_results_command``, which is to run here when it has ended;
            a place elsewhere leaves that to whoever looks next.

        Raises
        ------
        JobError
            If that cannot be done; nothing of it runs then.
        Unsure
            If the line broke off; a later look tells.
        """

    @abstractmethod
    def look(self, folder: str, progress: int = -TAIL, log: int = -1) -> Look:
        """See how a job stands, and what it wrote from these bytes on (negative ones count from the end)."""

    @abstractmethod
    def cancel(self, folder: str, grace: float | None) -> Look:
        """End a job with all its processes, and see how it stands then."""

    @abstractmethod
    def resume(self, job: str, folder: str, work: JobSpec, attempt: int) -> None:
        """Start a job that failed or was cancelled once more, as such an attempt, in what :meth:`folder_again` gave.

        The environment of ``work`` holds what is new, or all of it where the place does not keep any.
        """

    def fetch(self, folder: str, outputs: Sequence[Mapping[str, Any]], directory: Path) -> None:
        """Bring the outputs of a completed job into a folder of this machine; nothing to do where they are here."""
