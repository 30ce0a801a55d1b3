"""What is common to searches whose trials are models that are compiled and measured."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from nnpipe.searching.trial import SearchTrial
from nnpipe.workflows.search.choice import SearchChoice
from nnpipe.workflows.search.subjects import SearchSubject
from nnpipe.workflows.sweep.sweep import SweepResult


class MeasuredSubject(SearchSubject):
    """A model whose settings are searched.

    Trials are measured a little.  At the end of the search, the best of them are measured in full as the points of a
    sweep: constraints are judged on intervals, the chosen one is measured again, and gets a certificate.

    Attributes
    ----------
    choice
        What trials are judged by.
    """

    choice: SearchChoice

    def first(self) -> Sequence[Mapping[str, Any]]:
        """Return the configurations to begin with; by default the sampler chooses all."""
        return ()

    def close(self) -> None:
        """End what trials have started; nothing by default."""

    @abstractmethod
    def finals(
        self, trials: Sequence[SearchTrial], arguments: Mapping[int, Mapping[str, Any]], seed: int,
        command: Sequence[str],
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
        """
