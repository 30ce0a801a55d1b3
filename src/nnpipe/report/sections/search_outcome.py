"""The section on what a search found: the best trial or the Pareto front, and how the search
went.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from nnpipe.report.charts import ChartAxis, Floats, PointGroup, PointLine, Points
from nnpipe.report.document import Block, Cell, Paragraph, Plot, Section, Table, Tile, Tiles
from nnpipe.report.formatting import NOTHING, format_count, format_duration, format_share
from nnpipe.report.inputs.search_file import SearchFile, SearchView, TrialEntry, format_choice


def format_trial_number(value: float) -> str:
    """Return a value of an objective or a parameter as text."""
    return f"{value:,.5g}".replace("-", "−")


def format_trial_interval(trial: TrialEntry, objective: str) -> str:
    """Return the interval of a value as text; empty if there is none."""
    return " to ".join(format_trial_number(end) for end in trial.intervals.get(objective, ()))


def format_parameter(trial: TrialEntry, name: str) -> str:
    """Return the value of a parameter in a trial as text."""
    if name not in trial.configuration:
        return NOTHING
    value = trial.configuration[name]
    return format_trial_number(value) if isinstance(value, float) else format_choice(value)


def format_configuration(trial: TrialEntry) -> str:
    """Return all parameters of a trial as text."""
    return ", ".join(f"{name} {format_parameter(trial, name)}" for name in trial.configuration)


_ROWS, _TIPS, _PICTURES = 40, 200, 3


def build_front_blocks(view: SearchView) -> Iterator[Block]:
    """Yield the pictures and the table."""
    if not view.front:
        return
    names = list(view.found.objectives)
    for first, second in list(combinations(names, 2))[:_PICTURES]:
        yield _plot_front(view, first, second)
    yield _build_front_table(view)


def _build_front_table(view: SearchView) -> Table:
    names = list(view.found.objectives)
    uncertain = any(trial.intervals for trial, _ in view.front)
    rows = []
    for trial, chance in view.front[:_ROWS]:
        chances = (Cell(format_share(chance, 0), chance),) if uncertain else ()
        values = (
            Cell(
                format_trial_number(trial.values[name]),
                trial.values[name],
                format_trial_interval(trial, name),
            )
            for name in names
        )
        rows.append(
            (
                Cell(f"Trial {trial.number}", float(trial.number)),
                *chances,
                *values,
                format_configuration(trial),
            )
        )
    ways = ", ".join(
        f"{name} ({'less' if way == 'minimize' else 'more'} is better)"
        for name, way in view.found.objectives.items()
    )
    more = len(view.front) - len(rows)
    return Table(
        ("Trial", *(("On the front",) if uncertain else ()), *names, "Configuration"),
        tuple(rows),
        sortable=True,
        minor=("Configuration",),
        caption=f"No other trial is at least as good in {ways}."
        + (
            " How often, when values are drawn from their intervals, is their share."
            if uncertain
            else ""
        )
        + (f" {format_count(more)} more are in the table of trials." if more > 0 else ""),
    )


def _plot_front(view: SearchView, first: str, second: str) -> Plot:
    front = [trial for trial, chance in view.front if chance >= 0.5][:_TIPS]
    numbers = {trial.number for trial in front}
    beaten = [trial for trial in view.shown if trial.number not in numbers]
    groups = (
        PointGroup("beaten", view.values(first, beaten), view.values(second, beaten), 0, 0.4),
        PointGroup(
            "on the front",
            view.values(first, front),
            view.values(second, front),
            1,
            tips=tuple(_format_tooltip(trial, first, second) for trial in front),
            x_ends=_list_intervals(front, first),
            y_ends=_list_intervals(front, second),
        ),
    )
    lines = (
        (_create_front_line(view, front, first, second),)
        if len(view.found.objectives) == 2 and len(front) > 1
        else ()
    )
    ways = {"minimize": "less", "maximize": "more"}
    better = " and ".join(f"{ways[view.found.objectives[name]]} {name}" for name in (first, second))
    best = sorted(front, key=lambda trial: trial.values[first])
    ends = "; ".join(
        f"{first} {format_trial_number(trial.values[first])} with {second} "
        f"{format_trial_number(trial.values[second])}"
        for trial in best[:: max(1, len(best) - 1)]
    )
    places = list(view.found.objectives)
    return Plot(
        Points(view.create_value_axis(first), view.create_value_axis(second), groups, lines),
        f"front-{places.index(first) + 1}-{places.index(second) + 1}",
        f"{second} against {first}; {better} is better. Bars are intervals.{view.told_shown}"
        if any(trial.intervals for trial in front)
        else f"{second} against {first}; {better} is better.{view.told_shown}",
        f"{format_count(len(front))} trials on the Pareto front, from {ends}.",
    )


def _create_front_line(
    view: SearchView, front: Sequence[TrialEntry], first: str, second: str
) -> PointLine:
    """Return the line that no trial is beyond."""
    signs = [-1.0 if view.found.objectives[name] == "maximize" else 1.0 for name in (first, second)]
    x, y = signs[0] * view.values(first, front), signs[1] * view.values(second, front)
    order = np.lexsort((y, x))
    x, y = x[order], np.minimum.accumulate(y[order])
    corners_x, corners_y = np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]
    return PointLine("", signs[0] * corners_x, signs[1] * corners_y, 1, 0.8, dashed=True)


def _list_intervals(trials: Sequence[TrialEntry], name: str) -> Floats | None:
    if not any(name in trial.intervals for trial in trials):
        return None
    return np.array(
        [trial.intervals.get(name, (trial.values[name],) * 2) for trial in trials], np.float64
    )


def _format_tooltip(trial: TrialEntry, first: str, second: str) -> str:
    values = (f"{name} {format_trial_number(trial.values[name])}" for name in (first, second))
    return f"trial {trial.number}: {', '.join(values)}"


_CURVES, _STEPS = 150, 60  # greatest number of curves of a kind, and of points of each
_PURPLE, _BLUE, _VERMILLION = 3, 0, 1
_EDGES = (0.02, 0.98)  # quantiles between which curves are shown whole


def plot_learning_curves(view: SearchView) -> Plot | None:
    """Return the picture; ``None`` unless trials reported several values."""
    reported = [trial for trial in view.found.trials if len(trial.reports) > 1]
    if not reported:
        return None
    objective = next(iter(view.found.objectives))
    best = (
        {t.number for t in view.shown if view.best(objective, [t])[0]} if view.finished else set()
    )
    kinds: list[tuple[str, list[TrialEntry], int, float]] = [
        ("pruned", [t for t in reported if t.state == "pruned"], _PURPLE, 0.45),
        (
            "finished",
            [t for t in reported if t.state == "finished" and t.number not in best],
            _BLUE,
            0.45,
        ),
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
        _create_curve(label, trial, colour, strength)
        for label, trials, colour, strength in kinds
        for trial in _select_evenly(trials)
    )
    steps = [trial.reports[-1][0] for trial in kinds[0][1]]
    half = f", half of them by step {int(np.median(steps)):,}" if steps else ""
    shown = (
        ""
        if len(lines) == len(reported)
        else f" Shown are {format_count(len(lines))} of {format_count(len(reported))} trials."
    )
    return Plot(
        Points(
            ChartAxis("step", float(first), float(max(last, first + 1))),
            ChartAxis("value", low, high),
            (),
            lines,
        ),
        "curves",
        f"The values that trials reported while they ran.{shown}",
        f"Curves of {format_count(len(reported))} trials over up to {last:,} steps; "
        f"{format_count(len(steps))} were pruned{half}.",
    )


def _create_curve(label: str, trial: TrialEntry, colour: int, strength: float) -> PointLine:
    reports = trial.reports
    if len(reports) > _STEPS:
        reports = tuple(
            reports[place]
            for place in np.linspace(0, len(reports) - 1, _STEPS).astype(int).tolist()
        )
    table = np.array(reports, np.float64)
    return PointLine(label, table[:, 0], table[:, 1], colour, strength, width=1.0)


def _select_evenly(trials: Sequence[TrialEntry]) -> list[TrialEntry]:
    if len(trials) <= _CURVES:
        return list(trials)
    return [
        trials[place] for place in np.linspace(0, len(trials) - 1, _CURVES).astype(int).tolist()
    ]


BLUE, VERMILLION, GREEN, PURPLE = 0, 1, 2, 3


def build_search_outcome_section(view: SearchView) -> Section:
    """Return the section."""
    found = view.found
    blocks: list[Block] = [Tiles(tuple(_build_tiles(view))), *_build_warnings(found)]
    if len(found.objectives) == 1 and view.finished:
        blocks.append(_build_best_table(view))
    else:
        blocks += build_front_blocks(view)
    pictures = [_plot_history(view, objective) for objective in found.objectives] + [
        plot_learning_curves(view)
    ]
    blocks += [picture for picture in pictures if picture is not None]
    return Section("What was found", tuple(blocks))


def find_best_trial(view: SearchView, objective: str) -> TrialEntry | None:
    """Return the finished trial with the best value, the first of equals."""
    sign = -1.0 if view.found.objectives[objective] == "maximize" else 1.0
    return min(
        view.finished,
        key=lambda trial: (sign * trial.values[objective], trial.number),
        default=None,
    )


def _build_tiles(view: SearchView) -> Iterator[Tile]:
    found = view.found
    for objective in list(found.objectives)[:3]:
        best = find_best_trial(view, objective)
        way = "the least" if found.objectives[objective] == "minimize" else "the greatest"
        told = NOTHING if best is None else format_trial_number(best.values[objective])
        yield Tile(
            f"Best {objective}",
            told,
            "no trial finished" if best is None else f"{way}, trial {best.number}",
        )
    if len(found.objectives) > 1:
        sure = sum(chance >= 0.5 for _, chance in view.front)
        yield Tile(
            "On the Pareto front",
            format_count(sure),
            f"of {format_count(len(view.finished))} finished trials",
        )
    states = {
        state: len(found.select_state(state))
        for state in ("pruned", "failed", "running", "waiting")
    }
    others = ", ".join(
        f"{format_count(number)} {state}" for state, number in states.items() if number
    )
    yield Tile("Finished trials", format_count(len(view.finished)), others)
    times = [trial.seconds for trial in found.trials if trial.seconds is not None]
    if times:
        middle = float(np.median(times))
        yield Tile(
            "Time of all trials",
            format_duration(1e9 * sum(times)),
            f"{format_duration(1e9 * middle)} in the median",
        )
    taken_over = sum(bool(trial.origin) for trial in found.trials)
    if taken_over:
        yield Tile("Taken over", format_count(taken_over), "from earlier runs")


def _build_warnings(found: SearchFile) -> Iterator[Block]:
    ended = [trial for trial in found.trials if trial.state in ("finished", "pruned", "failed")]
    failed = found.select_state("failed")
    if not found.select_finished():
        yield Paragraph("No trial finished.", "warning")
    elif len(failed) > len(ended) / 4:
        yield Paragraph(
            f"{format_share(len(failed) / len(ended), 0)} of the trials failed; why is told at the "
            f"table of trials. "
            "What is said of parameters holds for the others.",
            "warning",
        )


def _build_best_table(view: SearchView) -> Table:
    """Return the configurations of the best trials, one a column."""
    (objective,) = view.found.objectives
    sign = -1.0 if view.found.objectives[objective] == "maximize" else 1.0
    order = sorted(view.points, key=lambda trial: (sign * trial.values[objective], trial.number))[
        :3
    ]
    rows: list[tuple[str | Cell, ...]] = [
        (objective, *(_format_value_cell(objective, trial) for trial in order))
    ]
    for axis in view.found.axes:
        cells = (format_parameter(trial, axis.name) for trial in order)
        rows.append((axis.name, *cells))
    return Table(
        ("", *(f"Trial {trial.number}" for trial in order)),
        tuple(rows),
        caption="The best configurations" if len(order) > 1 else "The best configuration",
    )


def _format_value_cell(objective: str, trial: TrialEntry) -> Cell:
    return Cell(
        format_trial_number(trial.values[objective]), None, format_trial_interval(trial, objective)
    )


def _plot_history(view: SearchView, objective: str) -> Plot | None:
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
        PointGroup(
            "finished",
            np.array([t.number for t in view.shown], np.float64),
            view.values(objective, view.shown),
            BLUE,
            0.5,
        ),
    ]
    pruned = [trial for trial in found.select_state("pruned") if objective in trial.values][-1000:]
    if pruned:
        places = np.array([trial.number for trial in pruned], np.float64)
        groups.insert(
            0,
            PointGroup(
                "pruned, last value", places, view.values(objective, pruned), PURPLE, 0.6, 3
            ),
        )
    axis = view.create_value_axis(objective)
    failed = np.array([trial.number for trial in found.select_state("failed")][-1000:], np.float64)
    if len(failed):
        edge = axis.high if down else axis.low
        groups.append(PointGroup("failed", failed, np.full(len(failed), edge), 4, 0.9, 7))
    beyond = view.count_beyond_axis(objective)
    told = f" {format_count(beyond)} worse ones are drawn at the edge." if beyond else ""
    best = float(so_far[-1])
    return Plot(
        Points(
            ChartAxis("trial", 0.0, max(last, 1.0)),
            axis,
            tuple(groups),
            (PointLine("best so far", line_x, line_y, VERMILLION),),
        ),
        f"history-{_format_slug(view, objective)}",
        f"{objective} of each trial, and the best so far.{told}{view.told_shown}",
        f"The best {objective} went from {format_trial_number(float(so_far[0]))} at first to "
        f"{format_trial_number(best)}, which trial {int(numbers[better[-1]])} reached.",
    )


def _format_slug(view: SearchView, objective: str) -> str:
    return f"objective-{list(view.found.objectives).index(objective) + 1}"


_MOST_TRIAL_ROWS, _COLUMNS, _OPEN = 1000, 12, 6
_EXAMPLES = 5


def build_search_trials_section(view: SearchView) -> Section:
    """Return the section on the trials: all of them in a table, and why some failed."""
    return Section("Trials", (*_build_failure_blocks(view), _build_trials_table(view)))


def build_search_method_section(view: SearchView) -> Section:
    """Return the section on what was searched, and how."""
    facts = tuple(view.found.facts)
    blocks: list[Block] = [
        Table(
            ("Parameter", "Values"),
            tuple((axis.name, axis.told) for axis in view.found.axes),
            caption="The space",
        )
    ]
    if facts:
        blocks.append(Table(("What", "How"), facts, caption="The search"))
    return Section("How it was searched", tuple(blocks))


def _build_failure_blocks(view: SearchView) -> Iterator[Block]:
    groups: dict[str, list[int]] = defaultdict(list)
    for trial in view.found.select_state("failed"):
        groups[trial.message or "without a message"].append(trial.number)
    if not groups:
        return
    order = sorted(groups.items(), key=lambda item: -len(item[1]))
    rows = []
    for message, numbers in order[:100]:
        examples = ", ".join(str(number) for number in numbers[:_EXAMPLES])
        more = " and more" if len(numbers) > _EXAMPLES else ""
        rows.append(
            (message, Cell(format_count(len(numbers)), float(len(numbers))), f"{examples}{more}")
        )
    yield Table(
        ("Why trials failed", "How many", "Trials"),
        tuple(rows),
        sortable=True,
        caption="Reasons of failures",
        folded=len(rows) > _OPEN,
    )


def _build_trials_table(view: SearchView) -> Table | Paragraph:
    found = view.found
    if not found.trials:
        return Paragraph("There are no trials yet.", "note")
    objectives = list(found.objectives)
    axes = list(view.axes(objectives[0]))[:_COLUMNS]
    order = _sort_trials(view)
    shown = order[:_MOST_TRIAL_ROWS]
    noted = any(trial.message or trial.origin for trial in shown)
    rows = []
    for trial in shown:
        seconds = (
            Cell(NOTHING)
            if trial.seconds is None
            else Cell(format_duration(1e9 * trial.seconds), trial.seconds)
        )
        rows.append(
            (
                Cell(f"Trial {trial.number}", float(trial.number)),
                *(_format_parameter_cell(trial, name) for name in objectives),
                trial.state,
                *(
                    Cell(format_parameter(trial, axis.name), _get_sort_key(trial, axis.name))
                    for axis in axes
                ),
                seconds,
                *(
                    (trial.message or (f"from {trial.origin}" if trial.origin else ""),)
                    if noted
                    else ()
                ),
            )
        )
    names = [axis.name for axis in axes]
    header = (
        "Trial",
        *objectives,
        "State",
        *_format_distinct_headings(names, objectives),
        "Time",
        *(("Note",) if noted else ()),
    )
    parts = [
        f"All {format_count(len(order))} trials"
        if len(shown) == len(order)
        else f"{format_count(len(shown))} of {format_count(len(order))} trials",
        ", the best first" if len(objectives) == 1 else ", the Pareto front first",
        "; then those that were pruned, with their last values, and those that failed.",
        f" The {len(axes)} most important of {len(found.axes)} parameters."
        if len(axes) < len(found.axes)
        else "",
    ]
    return Table(
        header,
        tuple(rows),
        sortable=True,
        caption="".join(parts),
        minor=(*_format_distinct_headings(names, objectives)[4:], "Time"),
    )


def _format_distinct_headings(names: list[str], objectives: list[str]) -> list[str]:
    """Return headings of parameters that differ from those of objectives."""
    taken = {*objectives, "Trial", "State", "Time", "Note"}
    return [f"parameter {name}" if name in taken else name for name in names]


def _format_parameter_cell(trial: TrialEntry, name: str) -> Cell:
    if name not in trial.values:
        return Cell(NOTHING)
    return Cell(
        format_trial_number(trial.values[name]),
        trial.values[name],
        format_trial_interval(trial, name),
    )


def _get_sort_key(trial: TrialEntry, name: str) -> float | None:
    value = trial.configuration.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _sort_trials(view: SearchView) -> list[TrialEntry]:
    """Return the trials: finished ones by value or the front first, then pruned, failed and
    unfinished ones.

    If there are more than the table holds, a tenth of it is kept for those that did not finish.
    """
    objective, *others = view.found.objectives
    sign = -1.0 if view.found.objectives[objective] == "maximize" else 1.0
    front = {trial.number for trial, _ in view.front} if others else set()
    finished = sorted(
        view.finished,
        key=lambda trial: (trial.number not in front, sign * trial.values[objective], trial.number),
    )
    known = {trial.number for trial in finished}
    states = ("pruned", "failed", "finished", "running", "waiting")
    rest = sorted(
        (t for t in view.found.trials if t.number not in known), key=lambda t: states.index(t.state)
    )
    if len(finished) + len(rest) <= _MOST_TRIAL_ROWS:
        return [*finished, *rest]
    room = max(_MOST_TRIAL_ROWS - len(rest), _MOST_TRIAL_ROWS * 9 // 10)
    return [*finished[:room], *rest, *finished[room:]]
