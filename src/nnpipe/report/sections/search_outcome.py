"""The section on what a search found: the best trial or the Pareto front, and how the search went."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnpipe.report.document import Block, Cell, Paragraph, Plot, Section, Table, Tile, Tiles
from nnpipe.report.formatting import NOTHING, count, duration, share
from nnpipe.report.inputs.search_file import SearchFile, TrialEntry
from nnpipe.report.inputs.search_view import SearchView
from nnpipe.report.point_charts import ChartAxis, PointGroup, PointLine, Points
from nnpipe.report.sections.search_curves import curves_of
from nnpipe.report.sections.search_front import front_blocks
from nnpipe.report.sections.search_text import number_text, parameter_text, range_text

BLUE, VERMILLION, GREEN, PURPLE = 0, 1, 2, 3


def search_outcome(view: SearchView) -> Section:
    """Return the section."""
    found = view.found
    blocks: list[Block] = [Tiles(tuple(_tiles(view))), *_warnings(found)]
    if len(found.objectives) == 1 and view.finished:
        blocks.append(_best_table(view))
    else:
        blocks += front_blocks(view)
    pictures = [_history(view, objective) for objective in found.objectives] + [curves_of(view)]
    blocks += [picture for picture in pictures if picture is not None]
    return Section("What was found", tuple(blocks))


def best_trial(view: SearchView, objective: str) -> TrialEntry | None:
    """Return the finished trial with the best value, the first of equals."""
    sign = -1.0 if view.found.objectives[objective] == "maximize" else 1.0
    return min(view.finished, key=lambda trial: (sign * trial.values[objective], trial.number), default=None)


def _tiles(view: SearchView) -> Iterator[Tile]:
    found = view.found
    for objective in list(found.objectives)[:3]:
        best = best_trial(view, objective)
        way = "the least" if found.objectives[objective] == "minimize" else "the greatest"
        told = NOTHING if best is None else number_text(best.values[objective])
        yield Tile(f"Best {objective}", told, "no trial finished" if best is None else f"{way}, trial {best.number}")
    if len(found.objectives) > 1:
        sure = sum(chance >= 0.5 for _, chance in view.front)
        yield Tile("On the Pareto front", count(sure), f"of {count(len(view.finished))} finished trials")
    states = {state: len(found.of_state(state)) for state in ("pruned", "failed", "running", "waiting")}
    others = ", ".join(f"{count(number)} {state}" for state, number in states.items() if number)
    yield Tile("Finished trials", count(len(view.finished)), others)
    times = [trial.seconds for trial in found.trials if trial.seconds is not None]
    if times:
        middle = float(np.median(times))
        yield Tile("Time of all trials", duration(1e9 * sum(times)), f"{duration(1e9 * middle)} in the median")
    taken_over = sum(bool(trial.origin) for trial in found.trials)
    if taken_over:
        yield Tile("Taken over", count(taken_over), "from earlier runs")


def _warnings(found: SearchFile) -> Iterator[Block]:
    ended = [trial for trial in found.trials if trial.state in ("finished", "pruned", "failed")]
    failed = found.of_state("failed")
    if not found.finished():
        yield Paragraph("No trial finished.", "warning")
    elif len(failed) > len(ended) / 4:
        yield Paragraph(
            f"{share(len(failed) / len(ended), 0)} of the trials failed; why is told at the table of trials. "
            "What is said of parameters holds for the others.",
            "warning",
        )


def _best_table(view: SearchView) -> Table:
    """Return the configurations of the best trials, one a column."""
    (objective,) = view.found.objectives
    sign = -1.0 if view.found.objectives[objective] == "maximize" else 1.0
    order = sorted(view.points, key=lambda trial: (sign * trial.values[objective], trial.number))[:3]
    rows: list[tuple[str | Cell, ...]] = [(objective, *(_value_cell(objective, trial) for trial in order))]
    for axis in view.found.axes:
        cells = (parameter_text(trial, axis.name) for trial in order)
        rows.append((axis.name, *cells))
    return Table(
        ("", *(f"Trial {trial.number}" for trial in order)), tuple(rows),
        caption="The best configurations" if len(order) > 1 else "The best configuration",
    )  # fmt: skip


def _value_cell(objective: str, trial: TrialEntry) -> Cell:
    return Cell(number_text(trial.values[objective]), None, range_text(trial, objective))


def _history(view: SearchView, objective: str) -> Plot | None:
    if len(view.finished) < 2:
        return None
    found = view.found
    values = view.values(objective, view.finished)
    numbers = np.array([trial.number for trial in view.finished], np.float64)
    down = found.objectives[objective] == "minimize"
    so_far = np.minimum.accumulate(values) if down else np.maximum.accumulate(values)
    better = np.flatnonzero(np.append(True, np.diff(so_far) != 0))
    last = float(found.trials[-1].number)
    steps = np.repeat(better, 2)
    line_x, line_y = np.append(numbers[steps][1:], last), so_far[steps]
    groups = [
        PointGroup("finished", np.array([t.number for t in view.shown], np.float64),
                   view.values(objective, view.shown), BLUE, 0.5),
    ]  # fmt: skip
    pruned = [trial for trial in found.of_state("pruned") if objective in trial.values][-1000:]
    if pruned:
        places = np.array([trial.number for trial in pruned], np.float64)
        groups.insert(0, PointGroup("pruned, last value", places, view.values(objective, pruned), PURPLE, 0.6, 3))
    axis = view.value_axis(objective)
    failed = np.array([trial.number for trial in found.of_state("failed")][-1000:], np.float64)
    if len(failed):
        edge = axis.high if down else axis.low
        groups.append(PointGroup("failed", failed, np.full(len(failed), edge), 4, 0.9, 7))
    beyond = view.beyond(objective)
    told = f" {count(beyond)} worse ones are drawn at the edge." if beyond else ""
    best = float(so_far[-1])
    return Plot(
        Points(
            ChartAxis("trial", 0.0, max(last, 1.0)), axis, tuple(groups),
            (PointLine("best so far", line_x, line_y, VERMILLION),),
        ),
        f"history-{_slug(view, objective)}",
        f"{objective} of each trial, and the best so far.{told}{view.told_shown}",
        f"The best {objective} went from {number_text(float(so_far[0]))} at first to {number_text(best)}, which trial "
        f"{int(numbers[better[-1]])} reached.",
    )  # fmt: skip


def _slug(view: SearchView, objective: str) -> str:
    return f"objective-{list(view.found.objectives).index(objective) + 1}"
