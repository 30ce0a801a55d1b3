"""Submitting, listing, cancelling and resuming jobs of a run database, in one call each."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.secret import Variables
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.jobs import JobRecord
from nnpipe.jobs.job_spec import JobSpec
from nnpipe.jobs.jobs import cancel, refresh, resume, submit
from nnpipe.jobs.local import HERE
from nnpipe.jobs.place_address import create_place
from nnpipe.workflows.pipeline.compile import read_pipeline


@dataclass(frozen=True)
class JobsResult:
    """The jobs of a call, and the errors of those for which it failed.

    Parameters
    ----------
    jobs
        The jobs with their current state; the last known state if a machine cannot be reached.
    faults
        Error messages by the identity of the job.
    """

    jobs: tuple[JobRecord, ...]
    faults: Mapping[str, NNPipeError]


def submit_job(
    database: RunDatabase,
    file: str | Path,
    arguments: Sequence[str] = (),
    *,
    outputs: Sequence[str] = (),
    without_output: bool = False,
    place: str = HERE,
    folder: str | Path | None = None,
    name: str | None = None,
    directory: str | Path | None = None,
    send: Sequence[str | Path] = (),
    environment: Variables | None = None,
    python: str | None = None,
    grace: float | None = None,
    storage: str | None = None,
    cpus: float = 0.0,
) -> JobRecord:
    """Start a script, a pipeline file or an experiment file as a job, and record it.

    Parameters
    ----------
    database
        The database that records the job.
    file
        The Python script, or a file for ``nnpipe run`` or ``nnpipe experiment``.
    arguments
        Its command-line arguments.
    outputs
        Files that it must write to count as completed.  By default, a pipeline must write its
        report.
    without_output
        Whether its exit status alone decides.
    place
        ``here``, ``ssh:HOST``, ``ssh://USER@HOST:PORT`` or ``ray://HEAD:PORT``.
    folder
        The parent folder of the jobs' folders on this machine; by default beside the database's
        file.
    name
        The job's name; by default the file's name.
    directory
        The working directory of the job, or the folder for its outputs; by default the current
        folder.
    send
        Further files and folders to send to another machine.
    environment
        Further environment variables; the database stores only their names.
    python
        The interpreter; by default this one, or ``python3`` on another machine.
    grace
        Seconds between asking its processes to end and killing them; 10 by default.
    storage
        A folder or ``s3://BUCKET/PREFIX`` to which script, progress and outputs are published.
    cpus
        Processors that a Ray cluster reserves for it, on whichever node has them; with 0 it runs on
        the head node.

    Returns
    -------
    JobRecord
        The job with its current state.

    Raises
    ------
    ConfigError
        If the file does not exist, or nothing decides whether the job succeeded.
    NNPipeError
        If the job cannot be started; it is then recorded as failed.
    """
    check_call(submit_job, locals())
    work = JobSpec(
        file=Path(file),
        arguments=arguments,
        outputs=outputs,
        send=[Path(each) for each in send],
        directory=Path.cwd() if directory is None else Path(directory),
        environment=environment or {},
        python=_choose_interpreter(place, python),
        grace=10.0 if grace is None else grace,
        storage=storage,
        cpus=cpus,
    )
    work.check()
    if not outputs and not without_output:
        if not work.is_pipeline:
            raise ConfigError(
                "submit: which file shows that it worked? name it with --output FILE (several, if "
                "you like); with --no-output its exit status alone tells"
            )
        report = read_pipeline(work.file, work.arguments).output / "report.rst"  # written last
        work = dataclasses.replace(work, outputs=[str(report)])
    root = _find_jobs_folder(database) if folder is None else Path(folder)
    return submit(database, work, create_place(place, root), name=name)


def list_jobs(
    database: RunDatabase, jobs: Sequence[str] = (), *, name: str | None = None, limit: int = 50
) -> JobsResult:
    """Return jobs with their current state, and record it.

    Parameters
    ----------
    database
        The database that records the jobs.
    jobs
        Identities, beginnings of identities, or names (each stands for the newest job of that
        name); by default the newest jobs.
    name
        Return only jobs of this name; used if ``jobs`` is empty.
    limit
        The greatest number of jobs; used if ``jobs`` is empty.

    Returns
    -------
    JobsResult
        The jobs; if a machine cannot be reached, this is in ``faults`` and the other jobs are still
        returned.

    Raises
    ------
    ConfigError
        If there is no such job.
    """
    check_call(list_jobs, locals())
    chosen = (
        [database.jobs.get(job) for job in jobs] if jobs else database.jobs.find(name, limit=limit)
    )
    found, faults = [], {}
    for job in chosen:
        try:
            found.append(refresh(database, job, collect=False))
        except NNPipeError as error:
            found.append(job)
            faults[job.id] = error
    return JobsResult(tuple(found), faults)


def cancel_jobs(
    database: RunDatabase, jobs: Sequence[str], *, grace: float | None = None
) -> JobsResult:
    """End jobs and all processes that they started.

    Parameters
    ----------
    database
        The database that records the jobs.
    jobs
        Identities, beginnings of identities, or names (each stands for the newest job of that
        name).
    grace
        Seconds between asking their processes to end and killing them; by default each job's own
        value.

    Returns
    -------
    JobsResult
        The ended jobs; if one could not be ended, the reason is in ``faults`` and the others are
        ended all the same.

    Raises
    ------
    ConfigError
        If there is no such job, or the time is out of range.
    """
    check_call(cancel_jobs, locals())
    if grace is not None and not 0 <= grace <= 3600:
        raise ConfigError(f"grace: expected 0 to 3600 seconds, not {grace:g}")
    ended, faults = [], {}
    for job in [database.jobs.get(job) for job in jobs]:
        try:
            ended.append(cancel(database, job, grace))
        except NNPipeError as error:
            faults[job.id] = error
    return JobsResult(tuple(ended), faults)


def resume_job(
    database: RunDatabase, job: str, environment: Variables | None = None
) -> tuple[JobRecord, bool]:
    """Start a failed or cancelled job again, in the same folder.

    Parameters
    ----------
    database
        The database that records the job.
    job
        The job's identity, the beginning of one, or a name, which stands for the newest job of that
        name.
    environment
        New environment variables, and those that its place does not store.

    Returns
    -------
    tuple of JobRecord and bool
        The job's record, and whether it continues where it stopped: False for a script without
        ``--resume``.

    Raises
    ------
    ConfigError
        If the job is in another state, was never started, or lacks a variable that it was submitted
        with.
    """
    check_call(resume_job, locals())
    found = database.jobs.get(job)
    goes_on = JobSpec.from_json(found.details["work"]).can_resume
    return resume(database, found, environment), goes_on


def _choose_interpreter(place: str, python: str | None) -> str:
    if place != HERE:
        return python or "python3"
    chosen = python or sys.executable
    return str(Path(chosen).absolute()) if os.sep in chosen else chosen


def _find_jobs_folder(database: RunDatabase) -> Path | None:
    address, _ = database.opened_by
    return None if "://" in address else Path(f"{address}.jobs")
