"""The picture of the intermediate values of trials, and of those that were pruned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnpipe.report.document import Plot
from nnpipe.report.formatting import count
from nnpipe.report.inputs.search_file import TrialEntry
from nnpipe.report.inputs.search_view import SearchView
from nnpipe.report.point_charts import ChartAxis, PointLine, Points

_CURVES, _STEPS = 150, 60  # greatest number of curves of a kind, and of points of each
_PURPLE, _BLUE, _VERMILLION = 3, 0, 1
_EDGES = (0.02, 0.98)  # quantiles between which curves are shown whole


def curves_of(view: SearchView) -> Plot | None:
    """Return the picture; ``None`` unless trials reported several values."""
    reported = [trial for trial in view.found.trials if len(trial.reports) > 1]
    if not reported:
        return None
    objective = next(iter(view.found.objectives))
    best = {t.number for t in view.shown if view.best(objective, [t])[0]} if view.finished else set()
    kinds: list[tuple[str, list[TrialEntry], int, float]] = [
        ("pruned", [t for t in reported if t.state == "pruned"], _PURPLE, 0.45),
        ("finished", [t for t in reported if t.state == "finished" and t.number not in best], _BLUE, 0.45),
        ("best tenth", [t for t in reported if t.number in best], _VERMILLION, 0.9),
    ]
    values = np.array([value for trial in reported for _, value in trial.reports], np.float64)
    low, high = np.quantile(values, _EDGES).tolist()
    if view.finished and view.found.objectives[objective] == "maximize":
        high = float(values.max())
    elif view.finished:
        low = float(values.min())
    last = max(trial.reports[-1][0] for trial in reported)
    first = min(trial.reports[0][0] for trial in reported)
    lines = tuple(
        _line(label, trial, colour, strength) for label, trials, colour, strength in kinds for trial in _evenly(trials)
    )
    steps = [trial.reports[-1][0] for trial in kinds[0][1]]
    half = f", half of them by step {int(np.median(steps)):,}" if steps else ""
    shown = "" if len(lines) == len(reported) else f" Shown are {count(len(lines))} of {count(len(reported))} trials."
    return Plot(
        Points(ChartAxis("step", float(first), float(max(last, first + 1))), ChartAxis("value", low, high), (), lines),
        "curves",
        f"The values that trials reported while they ran.{shown}",
        f"Curves of {count(len(reported))} trials over up to {last:,} steps; {count(len(steps))} were pruned{half}.",
    )


def _line(label: str, trial: TrialEntry, colour: int, strength: float) -> PointLine:
    reports = trial.reports
    if len(reports) > _STEPS:
        reports = tuple(reports[place] for place in np.linspace(0, len(reports) - 1, _STEPS).astype(int).tolist())
    table = np.array(reports, np.float64)
    return PointLine(label, table[:, 0], table[:, 1], colour, strength, width=1.0)


def _evenly(trials: Sequence[TrialEntry]) -> list[TrialEntry]:
    if len(trials) <= _CURVES:
        return list(trials)
    return [trials[place] for place in np.linspace(0, len(trials) - 1, _CURVES).astype(int).tolist()]
