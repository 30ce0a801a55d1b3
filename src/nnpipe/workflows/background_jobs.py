"""Jobs of a run database: submitted, looked at, cancelled and resumed, one call each."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.jobs import JobRecord
from nnpipe.jobs.job_spec import JobSpec
from nnpipe.jobs.jobs import cancel, refresh, resume, submit
from nnpipe.jobs.local import HERE
from nnpipe.jobs.place_address import place_at
from nnpipe.workflows.pipeline.compile import read_pipeline


@dataclass(frozen=True)
class JobsResult:
    """The jobs that a call was about, and why it could not do its work for some of them.

    Parameters
    ----------
    jobs
        The jobs as they stand now; as they were last seen where a machine cannot be reached.
    faults
        What went wrong, by the identity of the job.
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
    environment: Mapping[str, str] | None = None,
    python: str | None = None,
    grace: float | None = None,
    storage: str | None = None,
) -> JobRecord:
    """Start a script, a pipeline file or an experiment file as a job, and record it.

    Parameters
    ----------
    database
        Where it is recorded.
    file
        The Python script, or the file that ``nnpipe run`` or ``nnpipe experiment`` takes.
    arguments
        What follows it on the command line.
    outputs
        Files that it must write to count as completed.  A pipeline's is its report unless others are named.
    without_output
        Whether its exit status alone tells.
    place
        ``here``, ``ssh://USER@HOST:PORT`` or ``ray+http://HOST:PORT``.
    folder
        Where the folders of jobs are made on this machine; by default beside the file of the database.
    name
        What it is called; by default the file's name.
    directory
        Where it runs, or its outputs come to; by default the current folder.
    send
        Further files and folders that it needs on another machine.
    environment
        Further variables; the database holds their names alone.
    python
        The interpreter; by default this one, on another machine ``python3``.
    grace
        Seconds between asking its processes to end and killing them; 10 by default.
    storage
        Where script, progress and outputs are published: a folder or ``s3://BUCKET/PREFIX``.

    Returns
    -------
    JobRecord
        How it stands now.

    Raises
    ------
    ConfigError
        If there is no such file, or nothing shows whether it worked.
    NNPipeError
        If it cannot be started; it is recorded as failed then.
    """
    check_call(submit_job, locals())
    work = JobSpec(
        file=Path(file), arguments=arguments, outputs=outputs, send=[Path(each) for each in send],
        directory=Path.cwd() if directory is None else Path(directory), environment=environment or {},
        python=_interpreter(place, python), grace=10.0 if grace is None else grace, storage=storage,
    )  # fmt: skip
    work.check()
    if not outputs and not without_output:
        if not work.is_pipeline:
            raise ConfigError(
                "submit: which file shows that it worked? name it with --output FILE (several, if you like); "
                "with --no-output its exit status alone tells"
            )
        report = read_pipeline(work.file, work.arguments).output / "report.rst"  # written last
        work = dataclasses.replace(work, outputs=[str(report)])
    root = _beside(database) if folder is None else Path(folder)
    return submit(database, work, place_at(place, root), name=name)


def list_jobs(
    database: RunDatabase, jobs: Sequence[str] = (), *, name: str | None = None, limit: int = 50
) -> JobsResult:
    """Look at jobs and write down how they stand.

    Parameters
    ----------
    database
        Where they are recorded.
    jobs
        Identities, beginnings of identities, or names, each for the newest job of that name; by default the newest.
    name
        Only jobs of this name, where none are listed.
    limit
        How many at most, where none are listed.

    Returns
    -------
    JobsResult
        The jobs; a machine that cannot be reached is among the faults and does not hide the others.

    Raises
    ------
    ConfigError
        If there is no such job.
    """
    check_call(list_jobs, locals())
    chosen = [database.jobs.get(job) for job in jobs] if jobs else database.jobs.find(name, limit=limit)
    found, faults = [], {}
    for job in chosen:
        try:
            found.append(refresh(database, job, settling=False))
        except NNPipeError as error:
            found.append(job)
            faults[job.id] = error
    return JobsResult(tuple(found), faults)


def cancel_jobs(database: RunDatabase, jobs: Sequence[str], *, grace: float | None = None) -> JobsResult:
    """End jobs with all processes that they started.

    Parameters
    ----------
    database
        Where they are recorded.
    jobs
        Identities, beginnings of identities, or names, each for the newest job of that name.
    grace
        Seconds between asking their processes to end and killing them; by default what each was submitted with.

    Returns
    -------
    JobsResult
        The jobs that have ended; why one could not be ended is among the faults and spares none of the others.

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


def resume_job(database: RunDatabase, job: str, environment: Mapping[str, str] | None = None) -> tuple[JobRecord, bool]:
    """Start a job that failed or was cancelled once more, in the same folder.

    Parameters
    ----------
    database
        Where it is recorded.
    job
        Its identity, the beginning of one, or a name, which stands for the newest job of that name.
    environment
        Variables that are new, or that its place does not keep.

    Returns
    -------
    tuple of JobRecord and bool
        How it stands now, and whether it goes on where it stopped: False for a script without ``--resume``.

    Raises
    ------
    ConfigError
        If it is in another state, was never started, or lacks a variable that it was submitted with.
    """
    check_call(resume_job, locals())
    found = database.jobs.get(job)
    goes_on = JobSpec.from_json(found.details["work"]).can_resume
    return resume(database, found, environment), goes_on


def _interpreter(place: str, python: str | None) -> str:
    if place != HERE:
        return python or "python3"
    chosen = python or sys.executable
    return str(Path(chosen).absolute()) if os.sep in chosen else chosen


def _beside(database: RunDatabase) -> Path | None:
    address, _ = database.opened_by
    return None if "://" in address else Path(f"{address}.jobs")
