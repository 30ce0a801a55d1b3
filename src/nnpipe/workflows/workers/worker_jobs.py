"""Workers as jobs: started at their places, watched, and started again when they die.

A worker that is killed loses nothing but its attempt at a trial, whose lease is ended as soon as
the death is seen. Those on this machine end when the process that started them is killed, those on
other machines go on; the same command finds them again by their names.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnpipe.core.closing import Closing
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.secret import Variables
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.jobs import COMPLETED, JobRecord
from nnpipe.jobs.job_spec import JobSpec
from nnpipe.jobs.jobs import cancel, refresh, resume, submit
from nnpipe.jobs.local import HERE
from nnpipe.jobs.place import EndedWhileStarting, JobError
from nnpipe.jobs.place_address import create_place
from nnpipe.searching.trial_store import LeaseLost, TrialLease, TrialStore
from nnpipe.workflows.workers.worker_options import WorkerPlace
from nnpipe.workflows.workers.worker_process import USER_ERROR

log = logging.getLogger("nnpipe")

_EVERY, _EVERY_AFAR = 0.5, 5.0  # seconds between two looks at a worker here, and elsewhere
_MOST_DEATHS = 10  # of one worker without any progress of the whole
_GRACE = 5.0
_MOST_ATTEMPTS = 6  # of a trial whose workers die
_SHOWN = 4096  # bytes of a log's end, in which the error stands


@dataclass(frozen=True)
class WorkerProgram:
    """What each worker runs.

    Parameters
    ----------
    script
        The Python script.
    send
        Further files and folders, which are beside the script on other machines.
    environment
        Returns the environment variables of a worker by its name; the values may be secrets.
    python
        The interpreter on other machines.
    """

    script: Path
    send: Sequence[Path]
    environment: Callable[[str, bool], Variables]
    python: str = "python3"


@dataclass
class _Worker:
    name: str
    address: str
    job: JobRecord | None = None
    looked: float = float("-inf")
    deaths: int = 0


@dataclass
class WorkerJobs(Closing):
    """The workers of one search or sweep; used in a ``with`` block, whose end ends them.

    Parameters
    ----------
    database
        Records the jobs.
    title
        The beginning of their names.
    places
        Where they run.
    program
        What they run.
    folder
        Where the folders of jobs on this machine are.
    died
        Is called with the name of a worker that is known to be dead, before it is started again.
    """

    database: RunDatabase
    title: str
    places: Sequence[WorkerPlace]
    program: WorkerProgram
    folder: Path
    died: Callable[[str], None]
    _workers: list[_Worker] = field(default_factory=list)

    def start(self) -> None:
        """Start all workers that do not run already, from an earlier start of the same command.

        Raises
        ------
        NNPipeError
            If one cannot be started.
        """
        self._workers = [
            _Worker(name, place.address) for place in self.places for name in place.names()
        ]
        for worker in self._workers:
            known = self.database.jobs.find(f"{self.title}: {worker.name}", limit=1)
            job = known[0] if known and known[0].folder else None
            if job is not None:
                with contextlib.suppress(JobError):  # its place may answer later
                    job = refresh(self.database, job, collect=False)
            if job is not None and not job.ended:
                log.info("worker %s still runs", worker.name)
                worker.job = job
                continue
            self.died(worker.name)
            self._submit(worker)

    def look(self, progress: bool) -> bool:
        """Start dead workers again; return whether some still run.

        Parameters
        ----------
        progress
            Whether anything was completed since the last look.

        Raises
        ------
        ConfigError
            If a worker met an error that the user can mend, or dies again and again.
        """
        for worker in self._workers:
            if progress:
                worker.deaths = 0
            every = _EVERY if worker.address == HERE else _EVERY_AFAR
            if worker.job is None or time.monotonic() < worker.looked + every:
                continue
            worker.looked = time.monotonic()
            try:
                worker.job = refresh(self.database, worker.job, collect=False)
            # its machine may answer later; until then its lease may expire
            except NNPipeError as error:
                log.warning("worker %s: %s", worker.name, error)
                continue
            if worker.job.ended and worker.job.state != COMPLETED:
                self._restart_worker(worker, worker.job)
        return any(worker.job is not None and not worker.job.ended for worker in self._workers)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            job, worker.job = worker.job, None
            if job is None or job.ended:
                continue
            try:
                cancel(self.database, job, _GRACE)
            except NNPipeError as error:
                now = self.database.jobs.get(job.id)
                if not now.ended:
                    log.warning("worker %s could not be ended: %s", worker.name, error)

    def _restart_worker(self, worker: _Worker, job: JobRecord) -> None:
        self.died(worker.name)
        ended = job.details.get("ended", {})
        if ended.get("status") == USER_ERROR:  # another attempt would end alike
            raise ConfigError(
                f"worker {worker.name}: {self._read_last_line(job) or job.run.reason}"
            )
        worker.deaths += 1
        if worker.deaths > _MOST_DEATHS:
            raise ConfigError(
                f"worker {worker.name} ended {worker.deaths} times before anything was completed, "
                f"the last time: {job.run.reason}; {self._read_last_line(job)}"
            )
        log.warning("worker %s ended (%s) and is started again", worker.name, job.run.reason)
        try:
            worker.job = resume(
                self.database, job, self.program.environment(worker.name, worker.address == HERE)
            )
        except NNPipeError as error:
            log.warning("worker %s: %s", worker.name, error)
            worker.job = self.database.jobs.get(job.id)

    def _submit(self, worker: _Worker) -> None:
        here = worker.address == HERE
        spec = JobSpec(
            file=self.program.script,
            directory=Path("/"),
            send=() if here else self.program.send,
            grace=_GRACE,
            environment=self.program.environment(worker.name, here),
            cpus=1.0,
            **({} if here else {"python": self.program.python}),
        )
        place = create_place(worker.address, self.folder)
        name = f"{self.title}: {worker.name}"
        try:
            worker.job = submit(self.database, spec, place, name=name)
        except EndedWhileStarting:
            # it is started again like any that has ended
            (worker.job,) = self.database.jobs.find(name, limit=1)

    def _read_last_line(self, job: JobRecord) -> str:
        try:
            written = (
                create_place(job.place).look(job.folder, -1, -_SHOWN).log.decode("utf-8", "replace")
            )
        except NNPipeError:
            return ""
        lines = [line.strip() for line in written.splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""


def end_leases(store: TrialStore, worker: str) -> None:
    """End the leases of a dead worker; a trial whose workers died again and again has failed."""
    for trial in store.list_unended():
        if trial.worker == worker and trial.state == "running" and trial.fence >= _MOST_ATTEMPTS:
            with contextlib.suppress(LeaseLost):  # somebody else has it already
                lease = TrialLease(trial, worker, trial.fence, 0.0)
                store.fail(lease, f"its worker died in each of {trial.fence} attempts")
    store.release(worker)
