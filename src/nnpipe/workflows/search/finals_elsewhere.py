"""The final measurements of a search on a machine of the kind that it names, and their way back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.errors import NNPipeError
from nnpipe.searching.space import SearchSpace
from nnpipe.searching.trial import SearchTrial, TrialResult
from nnpipe.searching.trial_store import TrialStore
from nnpipe.storage.content import get_files, put_files
from nnpipe.storage.storage import Storage
from nnpipe.workflows.journal import digest_of
from nnpipe.workflows.search.measured_subject import MeasuredSubject
from nnpipe.workflows.sweep.sweep_result import SweepResult

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

    def work(self, trials: Sequence[SearchTrial], attempt: int) -> dict[str, Any]:
        """Return the piece of work for these trials; those after a failure have other numbers."""
        finished = [[trial.number, trial.files] for trial in trials if trial.state == "finished"]
        return {FINALS: digest_of([dict(self.settings), finished]), "attempt": attempt}

    def measured(
        self, trials: Sequence[SearchTrial], storage: Storage | None, only_known: bool = False
    ) -> SweepResult | None:
        """Measure the best trials here, with the files of those that were carried out on other machines.

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
        return self.subject.finals(trials, arguments, self.seed, self.command, only_known=only_known)

    def sent(self, trials: Sequence[SearchTrial], storage: Storage) -> TrialResult:
        """Measure the best trials here, and send what :meth:`received` needs."""
        if self.measured(trials, storage) is None:
            return TrialResult({})
        folder = self.subject.final_output
        paths = [path for name in _SENT for path in (folder / name).rglob("[!.]*") if path.is_file()]
        return TrialResult({}, files=put_files(storage, named(paths, folder)))

    def received(self, trials: Sequence[SearchTrial], store: TrialStore, storage: Storage) -> SweepResult | None:
        """Return the result that a machine of the kind has sent.

        Raises
        ------
        NNPipeError
            If it failed there.
        """
        wanted = self.work(trials, 0)[FINALS]
        found = [
            trial for trial in store.trials() if trial.ended and (trial.configuration or {}).get(FINALS) == wanted
        ]  # fmt: skip
        if not found:
            raise NNPipeError("the workers ended before the best trials were measured in full; repeat the command")
        last = found[-1]
        if last.state != "finished":
            raise NNPipeError(f"measuring the best trials in full: {last.message}")
        if not last.files:
            return None
        get_files(storage, last.files, self.subject.final_output)
        return self.measured(trials, storage, only_known=True)


def failures(trials: Iterable[SearchTrial]) -> int:
    """Return how many final measurements have failed."""
    return sum(trial.state == "failed" and FINALS in (trial.configuration or {}) for trial in trials)


def fetch_kept(trials: Sequence[SearchTrial], storage: Storage, output: Path) -> None:
    """Fetch the files of finished trials that were carried out on other machines."""
    for trial in trials:
        if trial.state == "finished" and trial.files:
            get_files(storage, trial.files, output)


def named(paths: Iterable[Path], folder: Path) -> dict[str, Path]:
    """Return files by their names relative to a folder."""
    return {path.relative_to(folder).as_posix(): path for path in paths}
