"""The Pareto front of a search with several objectives, as a table and pictures, with its uncertainty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from nnpipe.report.charts import Floats
from nnpipe.report.document import Block, Cell, Plot, Table
from nnpipe.report.formatting import count, share
from nnpipe.report.inputs.search_file import TrialEntry
from nnpipe.report.inputs.search_view import SearchView
from nnpipe.report.point_charts import PointGroup, PointLine, Points
from nnpipe.report.sections.search_text import configuration_text, number_text, range_text

_ROWS, _TIPS, _PICTURES = 40, 200, 3


def front_blocks(view: SearchView) -> Iterator[Block]:
    """Yield the pictures and the table."""
    if not view.front:
        return
    names = list(view.found.objectives)
    for first, second in list(combinations(names, 2))[:_PICTURES]:
        yield _picture(view, first, second)
    yield _table(view)


def _table(view: SearchView) -> Table:
    names = list(view.found.objectives)
    uncertain = any(trial.intervals for trial, _ in view.front)
    rows = []
    for trial, chance in view.front[:_ROWS]:
        chances = (Cell(share(chance, 0), chance),) if uncertain else ()
        values = (Cell(number_text(trial.values[name]), trial.values[name], range_text(trial, name)) for name in names)
        rows.append((Cell(f"Trial {trial.number}", float(trial.number)), *chances, *values, configuration_text(trial)))
    ways = ", ".join(f"{name} ({'less' if way == 'minimize' else 'more'} is better)" for name, way in
                     view.found.objectives.items())  # fmt: skip
    more = len(view.front) - len(rows)
    return Table(
        ("Trial", *(("On the front",) if uncertain else ()), *names, "Configuration"), tuple(rows), sortable=True,
        minor=("Configuration",),
        caption=f"No other trial is at least as good in {ways}."
        + (" How often, when values are drawn from their intervals, is their share." if uncertain else "")
        + (f" {count(more)} more are in the table of trials." if more > 0 else ""),
    )  # fmt: skip


def _picture(view: SearchView, first: str, second: str) -> Plot:
    front = [trial for trial, chance in view.front if chance >= 0.5][:_TIPS]
    numbers = {trial.number for trial in front}
    beaten = [trial for trial in view.shown if trial.number not in numbers]
    groups = (
        PointGroup("beaten", view.values(first, beaten), view.values(second, beaten), 0, 0.4),
        PointGroup(
            "on the front", view.values(first, front), view.values(second, front), 1,
            tips=tuple(_tip(trial, first, second) for trial in front),
            x_ends=_ends(front, first), y_ends=_ends(front, second),
        ),
    )  # fmt: skip
    lines = (_stairs(view, front, first, second),) if len(view.found.objectives) == 2 and len(front) > 1 else ()
    ways = {"minimize": "less", "maximize": "more"}
    better = " and ".join(f"{ways[view.found.objectives[name]]} {name}" for name in (first, second))
    best = sorted(front, key=lambda trial: trial.values[first])
    ends = "; ".join(
        f"{first} {number_text(trial.values[first])} with {second} {number_text(trial.values[second])}"
        for trial in best[:: max(1, len(best) - 1)]
    )
    places = list(view.found.objectives)
    return Plot(
        Points(view.value_axis(first), view.value_axis(second), groups, lines),
        f"front-{places.index(first) + 1}-{places.index(second) + 1}",
        f"{second} against {first}; {better} is better. Bars are intervals.{view.told_shown}"
        if any(trial.intervals for trial in front)
        else f"{second} against {first}; {better} is better.{view.told_shown}",
        f"{count(len(front))} trials on the Pareto front, from {ends}.",
    )  # fmt: skip


def _stairs(view: SearchView, front: Sequence[TrialEntry], first: str, second: str) -> PointLine:
    """Return the line that no trial is beyond."""
    signs = [-1.0 if view.found.objectives[name] == "maximize" else 1.0 for name in (first, second)]
    x, y = signs[0] * view.values(first, front), signs[1] * view.values(second, front)
    order = np.lexsort((y, x))
    x, y = x[order], np.minimum.accumulate(y[order])
    corners_x, corners_y = np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]
    return PointLine("", signs[0] * corners_x, signs[1] * corners_y, 1, 0.8, dashed=True)


def _ends(trials: Sequence[TrialEntry], name: str) -> Floats | None:
    if not any(name in trial.intervals for trial in trials):
        return None
    return np.array([trial.intervals.get(name, (trial.values[name],) * 2) for trial in trials], np.float64)


def _tip(trial: TrialEntry, first: str, second: str) -> str:
    values = (f"{name} {number_text(trial.values[name])}" for name in (first, second))
    return f"trial {trial.number}: {', '.join(values)}"
