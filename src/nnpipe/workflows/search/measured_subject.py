"""What is common to searches whose trials are models that are compiled and measured."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nnpipe.searching.trial import SearchTrial, TrialResult
from nnpipe.workflows.search.choice import SearchChoice
from nnpipe.workflows.search.subjects import SearchSubject
from nnpipe.workflows.search.trial_report import TrialReport
from nnpipe.workflows.sweep.sweep_result import SweepResult
from nnpipe.workflows.workers.machine_turns import MachineTurns


class MeasuredSubject(SearchSubject):
    """A model whose settings are searched.

    Trials are measured a little.  At the end of the search, the best of them are measured in full as the points of a
    sweep: constraints are judged on intervals, the chosen one is measured again, and gets a certificate.

    Attributes
    ----------
    choice
        What trials are judged by.
    output
        The folder for all files.
    turns
        When this process may compute and measure, if others work on this machine, too.
    elsewhere
        Lets another machine measure a trial, given its arguments, too; what can be done anywhere is done here.
    """

    choice: SearchChoice
    output: Path
    turns: MachineTurns | None = None
    elsewhere: Callable[[SearchTrial, Mapping[str, Any]], TrialResult] | None = None

    def first(self) -> Sequence[Mapping[str, Any]]:
        """Return the configurations to begin with; by default the sampler chooses all."""
        return ()

    def close(self) -> None:
        """End what trials have started; nothing by default."""

    def evaluate(self, trial: SearchTrial, arguments: Mapping[str, Any], report: TrialReport) -> TrialResult:
        """Measure a trial a little, here or on another machine; return all metrics that trials are judged by."""
        return (self.elsewhere or self.measured)(trial, arguments)

    @abstractmethod
    def made(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> tuple[Path, ...]:
        """Do for a trial what can be done on any machine, unless that has been done.

        Returns
        -------
        tuple of Path
            The files in the folder from which :meth:`measured` goes on elsewhere.
        """

    @abstractmethod
    def measured(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> TrialResult:
        """Measure a trial a little on this machine."""

    def kept(self, trial: SearchTrial, arguments: Mapping[str, Any]) -> tuple[Path, ...]:
        """Return the files of a finished trial that :meth:`finals` needs on whatever machine; none by default."""
        return ()

    def check_elsewhere(self) -> None:
        """Raise :class:`~nnpipe.core.errors.ConfigError` if workers on other machines cannot do it; they can."""

    @property
    @abstractmethod
    def final_output(self) -> Path:
        """The folder of the final measurements."""

    @abstractmethod
    def finals(
        self, trials: Sequence[SearchTrial], arguments: Mapping[int, Mapping[str, Any]], seed: int,
        command: Sequence[str], *, only_known: bool = False,
    ) -> SweepResult | None:  # fmt: skip
        """Measure the best trials in full, and return which one to ship; None if no trial is good enough to try.

        Parameters
        ----------
        trials
            All trials.
        arguments
            What the values of finished trials stand for, by number.
        seed
            The seed of the search.
        command
            The command line, for the result files.
        only_known
            Whether all of it has been measured, so that nothing is measured here.
        """
