"""What a searched function tells about a trial while it runs."""

from __future__ import annotations

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.searching.engine import SearchEngine
from nnpipe.searching.objectives import finite
from nnpipe.searching.trial import TrialLease


class TrialPruned(Exception):
    """A trial is not worth going on with; the function that is being searched need not catch this."""


class TrialReport:
    """Takes the intermediate values of a trial: a searched function with the argument ``report`` is given one."""

    def __init__(self, engine: SearchEngine, lease: TrialLease) -> None:
        self._engine, self._lease = engine, lease
        self.last: float | None = None
        """The last value."""
        self.values: dict[int, float] = {}
        """All values by step."""
        self.objectives: tuple[str, ...] = engine.objectives.names
        """The names of the objectives."""

    def __call__(self, step: int, value: float) -> None:
        """Report the objective's value after a number of steps, such as epochs.

        Parameters
        ----------
        step
            How many steps have been done, from 1.
        value
            The value of the objective by which trials are pruned.

        Raises
        ------
        TrialPruned
            If the trial is not worth going on with.
        ConfigError
            If the value is no finite number, or the step is below 1.
        """
        check_call(TrialReport.__call__, {"step": step})
        if step < 1:
            raise ConfigError(f"report: steps count from 1, found {step}")
        self.last = self.values[step] = finite(value, "report")
        if self._engine.report(self._lease, step, self.last):
            raise TrialPruned(f"pruned at step {step}")
