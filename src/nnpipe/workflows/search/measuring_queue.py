"""Work of a search that is measured on machines of the kind that it names: trials made
elsewhere, and the finals.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial_store import (
    LeaseLost,
    SearchTrial,
    TrialLease,
    TrialResult,
    TrialStore,
    build_configuration_key,
)
from nnpipe.storage.storage import Storage, get_files, put_files
from nnpipe.workflows.journal import compute_digest, get_error_message
from nnpipe.workflows.search.measured_subject import MeasuredSubject
from nnpipe.workflows.sweep.sweep_result import SweepResult
from nnpipe.workflows.workers.machine_turns import renew_trial_lease

FINALS = "finals"
"""The key of a piece of work that asks for the final measurements."""

_SENT = ("results", "confirmations", "models", "trained")  # all else follows from these


@dataclass(frozen=True)
class Finals:
    """The final measurements of a search.

    Parameters
    ----------
    subject, space, seed, command
        What is searched, its parameters, the seed, and the command line for the result files.
    settings
        The content of the search file; after a change the measurements are made, or read, again.
    """

    subject: MeasuredSubject
    space: SearchSpace
    seed: int
    command: Sequence[str]
    settings: Mapping[str, Any]

    def build_work(self, trials: Sequence[SearchTrial], attempt: int) -> dict[str, Any]:
        """Return the piece of work for these trials; those after a failure have other numbers."""
        finished = [[trial.number, trial.files] for trial in trials if trial.state == "finished"]
        return {FINALS: compute_digest([dict(self.settings), finished]), "attempt": attempt}

    def measure_finalists(
        self, trials: Sequence[SearchTrial], storage: Storage | None, only_known: bool = False
    ) -> SweepResult | None:
        """Measure the best trials here, with the files of those that were carried out on other
        machines.

        Parameters
        ----------
        trials
            All trials of the search.
        storage
            Holds the files of trials.
        only_known
            Whether all has been measured on another machine, so that the results are only read.
        """
        # The file may have come to exclude configurations that were tried before.
        trials = [trial for trial in trials if self.space.contains(trial.configuration or {})]
        if storage is not None:
            fetch_kept(trials, storage, self.subject.output)
        arguments = {
            trial.number: self.space.arguments(trial.configuration or {})
            for trial in trials
            if trial.state == "finished"
        }
        return self.subject.measure_finalists(
            trials, arguments, self.seed, self.command, only_known=only_known
        )

    def measure_and_send(self, trials: Sequence[SearchTrial], storage: Storage) -> TrialResult:
        """Measure the best trials here, and send what :meth:`receive_result` needs."""
        if self.measure_finalists(trials, storage) is None:
            return TrialResult({})
        folder = self.subject.final_output
        paths = [
            path for name in _SENT for path in (folder / name).rglob("[!.]*") if path.is_file()
        ]
        return TrialResult({}, files=put_files(storage, map_relative_paths(paths, folder)))

    def receive_result(
        self, trials: Sequence[SearchTrial], store: TrialStore, storage: Storage
    ) -> SweepResult | None:
        """Return the result that a machine of the kind has sent.

        Raises
        ------
        NNPipeError
            If it failed there.
        """
        wanted = self.build_work(trials, 0)[FINALS]
        found = [
            trial
            for trial in store.trials()
            if trial.ended and (trial.configuration or {}).get(FINALS) == wanted
        ]
        if not found:
            raise NNPipeError(
                "the workers ended before the best trials were measured in full; repeat the command"
            )
        last = found[-1]
        if last.state != "finished":
            raise NNPipeError(f"measuring the best trials in full: {last.message}")
        if not last.files:
            return None
        get_files(storage, last.files, self.subject.final_output)
        return self.measure_finalists(trials, storage, only_known=True)


def count_failures(trials: Iterable[SearchTrial]) -> int:
    """Return how many final measurements have failed."""
    return sum(
        trial.state == "failed" and FINALS in (trial.configuration or {}) for trial in trials
    )


def fetch_kept(trials: Sequence[SearchTrial], storage: Storage, output: Path) -> None:
    """Fetch the files of finished trials that were carried out on other machines."""
    for trial in trials:
        if trial.state == "finished" and trial.files:
            get_files(storage, trial.files, output)


def map_relative_paths(paths: Iterable[Path], folder: Path) -> dict[str, Path]:
    """Return files by their names relative to a folder."""
    return {path.relative_to(folder).as_posix(): path for path in paths}


log = logging.getLogger("nnpipe")

_PAUSE = 0.5
_PATIENCE = 900.0  # seconds for which work waits while no machine of the kind measures anything

Measure = Callable[[Mapping[str, Any]], TrialResult]
"""Carries out a piece of work."""


class MeasuringQueue:
    """Work that waits for a machine of the kind.

    Parameters
    ----------
    store
        Where it waits: a search of its own, whose values are those of the trials.
    storage
        Passes files from one machine to the other.
    kind
        The kind of the machines that measure.
    """

    def __init__(self, store: DatabaseTrials, storage: Storage, kind: str) -> None:
        self.store, self._storage, self._kind = store, storage, kind

    def prepare_here(
        self, subject: MeasuredSubject, trial: SearchTrial, arguments: Mapping[str, Any]
    ) -> TrialResult:
        """Do for a trial here what any machine can, and return the metrics that another machine
        measures.

        Raises
        ------
        NNPipeError
            If that or the measurement fails, or no machine of the kind measures.
        """
        wanted = {"trial": trial.number, "configuration": dict(trial.configuration or {})}
        for known in self.store.trials():  # of an earlier attempt, whose worker died
            before = known.configuration or {}
            if known.state == "finished" and all(
                before.get(name) == value for name, value in wanted.items()
            ):
                return _build_result(known)
        made = map_relative_paths(subject.prepare_trial(trial, arguments), subject.output)
        work = wanted | {"files": put_files(self._storage, made)}
        ended = self.run_work(work, f"trial {trial.number} is made")
        if ended.state != "finished":
            raise NNPipeError(ended.message)
        return _build_result(ended)

    def run_work(self, work: Mapping[str, Any], until_here: str) -> SearchTrial:
        """Queue a piece of work unless it is known, wait for its end, and return its trial.

        Parameters
        ----------
        work
            The work.
        until_here
            What has been done so far, for the message if no machine of the kind measures.

        Raises
        ------
        ConfigError
            If no machine of the kind measures.
        """
        self.store.enqueue(work)
        key = build_configuration_key(work)
        version, since = 0, time.monotonic()
        while True:
            changes = self.store.list_changes(version)
            version = changes.version
            for trial in changes.trials:
                if (
                    trial.ended
                    and trial.configuration is not None
                    and build_configuration_key(trial.configuration) == key
                ):
                    return trial
            if any(
                trial.state != "waiting" for trial in (*changes.trials, *self.store.list_unended())
            ):
                since = time.monotonic()
            if time.monotonic() > since + _PATIENCE:
                raise ConfigError(
                    f"{until_here}, but no machine of the kind {self._kind!r} has measured "
                    f"anything for {_PATIENCE / 60:g} minutes; give a place that has one, with --on"
                )
            time.sleep(_PAUSE)

    def measure_work(
        self, work: Mapping[str, Any], subject: MeasuredSubject, space: SearchSpace
    ) -> TrialResult:
        """Measure a trial that was made on another machine."""
        get_files(self._storage, work["files"], subject.output)
        trial = SearchTrial(number=work["trial"], configuration=work["configuration"])
        return subject.measure_trial(trial, space.arguments(work["configuration"]))

    @contextmanager
    def run_in_thread(self, measure: Measure, worker: str) -> Iterator[None]:
        """Carry out what waits, in a thread of this process, while the block runs."""
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                lease = self.store.lease(worker, lambda number: None, 0)
                if lease is None:
                    over.wait(_PAUSE)
                else:
                    self._run_lease(measure, lease)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _run_lease(self, measure: Measure, lease: TrialLease) -> None:
        try:
            with renew_trial_lease(self.store, lease):
                try:
                    result = measure(lease.trial.configuration or {})
                except NNPipeError as error:
                    self.store.fail(lease, get_error_message(error)[:500])
                except Exception as error:
                    log.warning("%s", lease.trial.configuration, exc_info=True)
                    self.store.fail(lease, f"{type(error).__name__}: {error}"[:500])
                else:
                    self.store.finish(lease, result)
        except LeaseLost:
            return  # another machine does it


def _build_result(trial: SearchTrial) -> TrialResult:
    return TrialResult(trial.values, trial.intervals, trial.files)
