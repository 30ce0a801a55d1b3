"""A Ray cluster as a place for jobs, through Ray's job submission API."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.messages import format_one_line
from nnpipe.core.secret import reveal_variables
from nnpipe.experiment.database.jobs import CANCELLED, CREATING, FAILED, INITIALISING
from nnpipe.jobs.agent.control import REPORTS, SENT, TASK
from nnpipe.jobs.agent.status import TAIL
from nnpipe.jobs.agent.supervisor import split_output
from nnpipe.jobs.job_spec import JobSpec
from nnpipe.jobs.place import (
    ABSENT,
    NAME,
    JobError,
    Look,
    Place,
    Unreached,
    build_agent,
    end_record,
    to_send,
)

SCHEMES = ("ray+http://", "ray+https://")
DASHBOARD = 8265
"""The usual port of Ray's dashboard, which takes jobs."""

_ADDRESS = re.compile(r"ray\+https?://(?:[\w.-]+|\[[\w:.%]+\])(?::\d{1,5})?(?:/[\w./-]*)?")
_MOST = 1 << 20
_GRACE = 2.0
"""Ray kills processes 3 s after it has asked them to end (RAY_JOB_STOP_WAIT_TIME_S)."""

_PATIENCE, _PAUSE = 60.0, 0.2
_DONE = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass(frozen=True)
class RayCluster(Place):
    """Runs jobs on a Ray cluster.

    Parameters
    ----------
    server
        The address of Ray's dashboard, such as ``http://head:8265``.
    address
        The same with ``ray+`` before it.
    """

    server: str
    address: str = ""
    keeps_environment: ClassVar[bool] = False

    @classmethod
    def at(cls, address: str) -> RayCluster:
        """Return the place with this address; raise :class:`ConfigError` if it is malformed."""
        if not _ADDRESS.fullmatch(address):
            raise ConfigError(
                f"{format_one_line(address, 80)}: expected ray+http://HOST:8265, where Ray's "
                f"dashboard is"
            )
        return cls(address.removeprefix("ray+"), address)

    def folder(self, job: str) -> str:
        """Return Ray's name for the job; see :class:`Place`."""
        return job

    def get_retry_folder(self, job: str, folder: str, attempt: int) -> str:
        """Return a new name, since Ray remembers the old one for a while; see :class:`Place`."""
        return f"{job}.{attempt}"

    def start(self, job: str, folder: str, work: JobSpec, afterwards: Mapping[str, str]) -> None:
        """Send a job's files and submit it; see :class:`Place`."""
        self._submit(job, folder, work, 1)

    def look(self, folder: str, progress: int = -TAIL, log: int = -1) -> Look:
        """Check the state of a job, as reported by Ray and by the job's supervisor; see
        :class:`Place`.
        """
        with self._open_client() as client:
            try:
                info = client.get_job_info(folder)
            except RuntimeError as error:
                if "does not exist" in str(error):
                    return Look(state=ABSENT)
                raise
            status = str(getattr(info.status, "value", info.status))
            try:
                text = "" if status == "PENDING" else client.get_job_logs(folder)
            except RuntimeError:
                if status not in _DONE:
                    raise
                text = ""  # they are gone with the node that it ran on
        written, told, end_of = split_output(text)
        data = written.encode("utf-8", "replace")
        state, reason = (CREATING if status == "PENDING" else INITIALISING), ""
        if status in _DONE:
            end_of = _end(
                end_of, status, str(info.message or ""), info.end_time, dict(info.metadata or {})
            )
            state, reason = str(end_of["state"]), str(end_of["reason"])
        return Look(
            state=state,
            reason=reason,
            ended=end_of if status in _DONE else None,
            processes={},
            progress=_slice_data(told, progress),
            progress_size=len(told),
            log=_slice_data(data, log),
            log_size=len(data),
        )

    def cancel(self, folder: str, grace: float | None) -> Look:
        """Let Ray stop a job, and wait until it has; see :class:`Place`."""
        with self._open_client() as client:
            client.stop_job(folder)
        limit = time.monotonic() + _PATIENCE
        while (look := self.look(folder)).ended is None and time.monotonic() < limit:
            time.sleep(_PAUSE)
        return look

    def resume(self, job: str, folder: str, work: JobSpec, attempt: int) -> None:
        """Submit a job again; see :class:`Place`."""
        self._submit(job, folder, work, attempt)

    def _submit(self, job: str, name: str, work: JobSpec, attempt: int) -> None:
        task = {
            "id": job,
            "attempt": attempt,
            "file": work.file.name,
            "command": work.build_command(SENT, REPORTS, again=attempt > 1),
            "directory": str(work.directory.absolute()),
            "environment": reveal_variables(work.environment),
            "outputs": list(work.outputs),
            "grace": min(work.grace, _GRACE),
            "afterwards": None,
        }
        with create_temporary_folder() as sent:
            (sent / NAME).write_bytes(build_agent())
            (sent / TASK).write_text(json.dumps(task), "utf-8")
            for path, inside in to_send([work.file, *work.send]):
                if path.is_dir():
                    (sent / inside).mkdir(exist_ok=True)
                else:
                    shutil.copyfile(path, sent / inside)
            with self._open_client() as client:
                client.submit_job(
                    entrypoint=f"{shlex.quote(work.python)} -E {NAME} carry .",
                    submission_id=name,
                    runtime_env={"working_dir": str(sent)},
                    metadata={"nnpipe_attempt": str(attempt)},
                    entrypoint_num_cpus=work.cpus or None,
                )

    @contextmanager
    def _open_client(self) -> Iterator[Any]:
        try:
            from ray.job_submission import JobSubmissionClient
        except ImportError:
            raise MissingDependency(
                f"{self.address}: jobs on Ray need Ray: pip install 'nnpipe[ray]'"
            ) from None
        try:
            yield JobSubmissionClient(self.server)
        except (RuntimeError, ValueError, OSError) as error:
            said = format_one_line(error)
            # errors of the package requests are OSErrors
            kind = Unreached if isinstance(error, OSError) else JobError
            raise kind(f"{self.address}: {said}") from None


def _end(
    told: Mapping[str, Any] | None,
    status: str,
    message: str,
    at: float | None,
    metadata: Mapping[str, str],
) -> dict[str, Any]:
    """Return the record of a job's end, even if its supervisor could not report all of it."""
    attempt = metadata.get("nnpipe_attempt", "")
    found: dict[str, Any] = {
        "status": None,
        "outputs": [],
        "attempt": int(attempt) if attempt.isdigit() else 1,
    }
    found |= {"at": time.time() if at is None else at / 1000}
    if told is not None:
        found |= end_record(told)
        if status != "STOPPED" or found["state"] != FAILED:
            return found
    if status == "STOPPED":  # its processes were asked to end by Ray itself
        return found | {"state": CANCELLED, "reason": ""}
    reason = " ".join(message.split())[:300] or "nobody knows how it ended"
    return found | {"state": FAILED, "reason": f"Ray: {reason}"}


def _slice_data(data: bytes, begin: int) -> bytes:
    begin = max(0, len(data) + begin) if begin < 0 else begin
    return data[begin : begin + _MOST]
