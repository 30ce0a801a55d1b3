"""Submit, check, cancel and resume jobs of a run database."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Mapping
from typing import Any

from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.progress import MOST_METRICS, Reader, Report
from nnpipe.core.secret import Variables
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.jobs import (
    CANCELLED,
    COMPLETED,
    CREATING,
    FAILED,
    IN_PROGRESS,
    INITIALISING,
    NOT_STARTED,
    JobRecord,
)
from nnpipe.experiment.provenance import describe_environment
from nnpipe.jobs.agent.status import MOST, TAIL
from nnpipe.jobs.agent.supervisor import NEVER_STARTED
from nnpipe.jobs.job_spec import JobSpec
from nnpipe.jobs.local import HERE
from nnpipe.jobs.place import ABSENT, JobError, Look, Place, Unreached, Unsure
from nnpipe.jobs.place_address import create_place
from nnpipe.jobs.publishing import call, collect_results, publish_script


def submit(
    database: RunDatabase, work: JobSpec, place: Place, *, name: str | None = None
) -> JobRecord:
    """Start a job and record it.

    Parameters
    ----------
    database
        The database that records the job.
    work
        The specification of the job.
    place
        The place where it runs.
    name
        The job's name, which need not be unique; by default the file's name.

    Raises
    ------
    NNPipeError
        If it cannot be started.  Then it is recorded as failed, unless its specification is
        invalid.
    """
    work.check()
    work = work.with_absolute_paths()
    settings = {"job": {key: value for key, value in work.to_json().items() if key != "variables"}}
    run = database.jobs.create(
        name or work.file.name,
        Configuration(settings),
        place=place.address,
        environment=describe_environment(),
    )
    # Recorded first, so that its place is known while it is being started, and if that is
    # interrupted.
    record = database.jobs.get(run)
    try:
        folder = place.folder(run)
        publish_script(work, record.run.experiment, run)
    except NNPipeError as error:
        database.jobs.record_state(record, FAILED, reason=str(error), settled=True)
        raise
    database.jobs.record_state(record, CREATING, folder=folder, details={"work": work.to_json()})
    try:
        place.start(run, folder, work, call(database, run))
    except NNPipeError as error:
        _record_failure(database, record, error)
        raise
    return _check_started(database, run)


def refresh(database: RunDatabase, job: JobRecord, *, collect: bool = True) -> JobRecord:
    """Check the state of a job and record it; if it has ended, also collect its results, if
    ``collect``.

    Raises
    ------
    JobError
        If the place where it runs cannot be reached.
    NNPipeError
        If its results cannot be collected, for example its outputs fetched; it can be tried again.
    """
    if job.ended and (job.settled or not collect):
        return job
    if not job.folder:
        return _check_unplaced(database, job)
    place = create_place(job.place)
    look = place.look(job.folder)
    if read_last_report(look.progress) is None and look.progress_size > TAIL:
        look = place.look(job.folder, -MOST)  # a very long last line may hide the others
    return record_look(database, job, look, collect=collect)


def record_look(
    database: RunDatabase, job: JobRecord, look: Look, *, collect: bool = True
) -> JobRecord:
    """Record the observed state of a job, and collect its results if it has ended."""
    if look.state == ABSENT:
        if job.state in (NOT_STARTED, CREATING):
            return _check_unplaced(database, job)
        if job.ended and collect and job.place != HERE:
            raise JobError(
                f"{job.place}: the folder {job.folder} is gone, and with it the job's outputs and "
                f"its log"
            )
        if not job.ended:
            database.jobs.record_state(
                job, FAILED, reason=f"its folder {job.folder} is gone", settled=True
            )
        return database.jobs.get(job.id)
    if (
        look.ended is not None
        and look.ended["attempt"] not in (None, job.attempt)
        and not database.jobs.is_abandoned(job)
    ):
        return job  # it is just being resumed
    last = read_last_report(look.progress)
    # A script may report progress before its supervisor has recorded the start.
    state = (
        IN_PROGRESS if look.state in (CREATING, INITIALISING) and last is not None else look.state
    )
    fraction = 1.0 if state == COMPLETED else None if last is None else last.fraction
    figures = _select_changed_metrics(job, last)
    if (
        (state, look.reason, fraction) != (job.state, job.run.reason, job.fraction) or figures
    ) and not job.ended:
        supervisor = look.processes.get("supervisor") or {}
        details: dict[str, Any] = {} if look.ended is None else {"ended": dict(look.ended)}
        database.jobs.record_state(
            job,
            state,
            reason=look.reason,
            fraction=fraction,
            process=_find_local_process(supervisor),
            host=supervisor.get("host"),
            details=details,
            began=_get_start_time(look.processes),
            at=(look.ended or {}).get("at"),
            figures=figures,
        )
    job = database.jobs.get(job.id)
    if collect and job.ended and not job.settled:
        collect_results(database, job)
        job = database.jobs.get(job.id)
    return job


def _select_changed_metrics(job: JobRecord, last: Report | None) -> dict[str, float]:
    """Return the changed metrics, without new names if there are too many already."""
    known, told = job.run.statistics, {} if last is None else last.metrics
    full = len(known) >= MOST_METRICS
    return {
        n: v for n, v in told.items() if (repr(known[n]) != repr(v) if n in known else not full)
    }


def _get_start_time(processes: Mapping[str, Any]) -> float | None:
    """Return the start time of the script in seconds since 1970, by the clock of its machine."""
    at = (processes.get("began") or {}).get("at")
    return float(at) if isinstance(at, (int, float)) and 0 < at < 1e11 else None


def _find_local_process(supervisor: Mapping[str, Any]) -> tuple[int, float] | None:
    """Return the ID and start time of a process of this machine, or None."""
    import psutil

    if supervisor.get("host") != platform.node():
        return None
    try:
        pid = int(supervisor["pid"])
        return pid, psutil.Process(pid).create_time()
    except (psutil.Error, ValueError):
        return None


def read_last_report(data: bytes) -> Report | None:
    """Return the last fraction and the last value of each metric from the end of a progress
    file.
    """
    reports = Reader().feed(data)
    if not reports:
        return None
    fractions = [report.fraction for report in reports if report.fraction is not None]
    metrics: dict[str, float] = {}
    for report in reports:
        metrics |= report.metrics
    return Report(fractions[-1] if fractions else None, metrics)


def cancel(database: RunDatabase, job: JobRecord, grace: float | None = None) -> JobRecord:
    """Cancel a job with all its processes; a cancelled job is left unchanged.

    Raises
    ------
    ConfigError
        If the job has completed or failed.
    JobError
        If the job could not be ended.
    """
    job = refresh(database, job)
    if job.state == CANCELLED:
        return job
    if job.ended:
        raise ConfigError(f"job {job.id[:12]} is {job.state}; there is nothing to cancel")
    if not job.folder:
        raise JobError(f"job {job.id[:12]} is just being started; try again")
    job = record_look(database, job, create_place(job.place).cancel(job.folder, grace))
    if job.state in (NOT_STARTED, CREATING):
        raise JobError(f"job {job.id[:12]} is just being started; try again")
    if not job.ended:
        raise JobError(
            f"job {job.id[:12]} could not be ended: "
            f"{job.run.reason or 'some of its processes go on'}"
        )
    return job


def resume(
    database: RunDatabase, job: JobRecord, environment: Variables | None = None
) -> JobRecord:
    """Resume a failed or cancelled job in the same folder.

    Parameters
    ----------
    database
        The database that records the job.
    job
        The job.
    environment
        New variables, and those that its place does not keep (:attr:`Place.keeps_environment`).

    Raises
    ------
    ConfigError
        If the job is in another state, was never started, or lacks a variable that it had at
        submission.
    """
    job = refresh(database, job)
    if not job.folder:
        raise ConfigError(f"job {job.id[:12]} was never started; submit it again")
    work = JobSpec.from_json(job.details["work"])
    work = dataclasses.replace(work, environment={**work.environment, **(environment or {})})
    work.check()
    place = create_place(job.place)
    missing = (
        []
        if place.keeps_environment
        else [name for name in work.variables if name not in work.environment]
    )
    if missing:
        given = " ".join(f"--env {name}=..." for name in missing)
        raise ConfigError(
            f"{job.place} does not keep the variables of a job; give them again: {given}"
        )
    job = database.jobs.begin_attempt(job)
    folder = place.get_retry_folder(job.id, job.folder, job.attempt)
    database.jobs.record_state(job, CREATING, folder=folder, details={"work": work.to_json()})
    try:
        place.resume(job.id, folder, work, job.attempt)
    except NNPipeError as error:
        _record_failure(database, job, error)
        raise
    return _check_started(database, job.id)


def _check_started(database: RunDatabase, run: str) -> JobRecord:
    """Check the state of a started job; if its place does not answer, the job still counts as
    started.
    """
    job = database.jobs.get(run)
    try:
        return refresh(database, job)
    except Unreached:
        return job


def _record_failure(database: RunDatabase, job: JobRecord, error: NNPipeError) -> None:
    """Record that a job could not be started; if this is uncertain, a later check will decide."""
    if isinstance(error, Unsure):
        database.jobs.record_state(job, CREATING, reason=str(error))
    else:
        database.jobs.record_state(job, FAILED, reason=str(error), settled=True)


def _check_unplaced(database: RunDatabase, job: JobRecord) -> JobRecord:
    """Check whether a job without a folder is still being started."""
    if job.ended or not database.jobs.is_abandoned(job):
        return job
    database.jobs.record_state(job, FAILED, reason=NEVER_STARTED, settled=True)
    return database.jobs.get(job.id)
