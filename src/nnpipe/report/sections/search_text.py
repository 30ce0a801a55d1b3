"""Values of trials as text, the same in all sections on a search."""

from __future__ import annotations

from nnpipe.report.formatting import NOTHING
from nnpipe.report.inputs.search_file import TrialEntry, choice_text


def number_text(value: float) -> str:
    """Return a value of an objective or a parameter as text."""
    return f"{value:,.5g}".replace("-", "−")


def range_text(trial: TrialEntry, objective: str) -> str:
    """Return the interval of a value as text; empty if there is none."""
    return " to ".join(number_text(end) for end in trial.intervals.get(objective, ()))


def parameter_text(trial: TrialEntry, name: str) -> str:
    """Return the value of a parameter in a trial as text."""
    if name not in trial.configuration:
        return NOTHING
    value = trial.configuration[name]
    return number_text(value) if isinstance(value, float) else choice_text(value)


def configuration_text(trial: TrialEntry) -> str:
    """Return all parameters of a trial as text."""
    return ", ".join(f"{name} {parameter_text(trial, name)}" for name in trial.configuration)
