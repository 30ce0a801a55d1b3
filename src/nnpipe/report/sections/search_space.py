"""The section on where good trials of a search lie: parallel coordinates, slices, and pairs of
parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from nnpipe.report.charts import (
    Interval,
    Intervals,
    ParallelAxes,
    ParallelLines,
    PointGroup,
    Points,
)
from nnpipe.report.document import Block, Cell, Paragraph, Plot, Section, Table
from nnpipe.report.formatting import NOTHING, format_count, format_share
from nnpipe.report.inputs.search_file import (
    ImportanceEntry,
    ImportanceRow,
    SearchAxis,
    SearchFile,
    SearchView,
    TrialEntry,
    create_parameter_axis,
    jitter_choices,
)

_PICTURED = 12
_FEW = 30  # trials, below which shares say little

FANOVA_WARNING = (
    "fANOVA's regression trees rank parameters wrongly where trials crowd together, as those of "
    "all samplers but random and grid do. Trust its order only if the other methods agree."
)


def build_importance_section(found: SearchFile) -> Section:
    """Return the section."""
    blocks: list[Block] = []
    for place, (objective, known) in enumerate(found.importance.items()):
        blocks += _build_importance_blocks(
            objective, known, place + 1, many=len(found.importance) > 1
        )
    if not blocks:
        blocks.append(Paragraph("There are too few finished trials to tell.", "note"))
    return Section("What matters", tuple(blocks))


def _build_importance_blocks(
    objective: str, known: ImportanceEntry, number: int, many: bool
) -> Iterator[Block]:
    rows = known.additive or known.ped_anova
    if not rows or known.trials < 2:
        yield Paragraph(f"For {objective}, there are too few finished trials to tell.", "note")
        return
    if known.trials < _FEW:
        yield Paragraph(
            f"For {objective}, {known.trials} finished trials say little: see the intervals.",
            "note",
        )
    if known.remark:
        yield Paragraph(
            f"{objective}: {known.remark}." if many else _format_sentence(known.remark), "warning"
        )
    if known.fanova:
        yield Paragraph(FANOVA_WARNING, "warning")
    if known.additive:
        yield _plot_importance(
            objective,
            known.additive,
            f"importance-{number}",
            "over its whole range, by the additive model",
        )
    yield _plot_importance(
        objective, known.ped_anova, f"importance-best-{number}", "for the best tenth, by PED-ANOVA"
    )
    yield _build_importance_table(objective, known)


def _plot_importance(objective: str, rows: Sequence[ImportanceRow], name: str, what: str) -> Plot:
    shown = rows[:_PICTURED]
    few = (
        f"; the first {len(shown)} of {format_count(len(rows))} parameters"
        if len(shown) < len(rows)
        else ""
    )
    return Plot(
        Intervals(
            f"share of what matters for {objective}, %"[:60],
            tuple(_create_importance_bar(row) for row in shown),
            0.0,
        ),
        name,
        f"What each parameter matters for {objective} {what}, with 95 % intervals{few}",
        f"Importance for {objective}, {what}: "
        + ", ".join(f"{row.name} {format_share(row.share, 0)}" for row in shown)
        + ".",
    )


def _create_importance_bar(row: ImportanceRow) -> Interval:
    return Interval(
        row.name,
        100 * row.share,
        (100 * row.low, 100 * row.high),
        format_share(row.share, 1),
        0,
        row.low > 0,
    )


def _build_importance_table(objective: str, known: ImportanceEntry) -> Table:
    methods = {
        "Additive model": known.additive,
        "PED-ANOVA": known.ped_anova,
        "fANOVA": known.fanova,
    }
    given = {title: {row.name: row for row in rows} for title, rows in methods.items() if rows}
    names = list(dict.fromkeys(name for rows in given.values() for name in rows))
    return Table(
        ("Parameter", *given),
        tuple(
            (name, *(_format_importance_cell(rows.get(name)) for rows in given.values()))
            for name in names
        ),
        sortable=True,
        caption=f"Importance for {objective} from {format_count(known.trials)} finished trials. "
        f"Additive model: the share of "
        "the variance that each parameter alone explains, over its whole range. PED-ANOVA: how "
        "much the best tenth of trials differs from all in the parameter. Both with 95 % "
        "intervals, and usable on trials that crowd together.",
    )


def _format_importance_cell(row: ImportanceRow | None) -> Cell:
    if row is None:
        return Cell(NOTHING)
    note = (
        f"{format_share(row.low, 1)} to {format_share(row.high, 1)}" if row.low < row.high else ""
    )
    return Cell(format_share(row.share, 1), row.share, note)


def _format_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def format_shares(rows: Sequence[ImportanceRow]) -> dict[str, str]:
    """Return the share of each parameter as text, by name."""
    return {row.name: format_share(row.share, 0) for row in rows}


_AXES, _SLICES, _MORE, _PAIRED = 10, 6, 30, 4
_LINES, _BEST_LINES = 400, 100
_TIPS = 60
_OTHERS, _GOOD = 0, 1  # colours


def build_search_space_section(view: SearchView) -> Section | None:
    """Return the section; ``None`` without two finished trials or a parameter that varies."""
    blocks: list[Block] = []
    for number, objective in enumerate(view.found.objectives, 1):
        axes = view.axes(objective)
        if len(view.finished) < 2 or not axes:
            return None
        pictures: list[Block] = [
            _plot_parallel_coordinates(view, objective, axes, number),
            *_plot_slices(view, objective, axes, number),
        ]
        pictures += _plot_pairs(view, objective, axes, number)
        more = _plot_slices(view, objective, axes[_SLICES : _SLICES + _MORE], number, _SLICES)
        if more:
            pictures.append(
                Section(
                    f"Other parameters and {objective}",
                    tuple(more),
                    folded=True,
                    note=format_count(len(more)),
                )
            )
        if len(view.found.objectives) > 1:
            blocks.append(Section(f"For {objective}", tuple(pictures), folded=number > 1))
        else:
            blocks += pictures
    return Section("Where good trials are", tuple(blocks))


def _split_best(
    view: SearchView, objective: str
) -> tuple[tuple[str, npt.NDArray[np.bool_], int, float], ...]:
    best = view.best(objective, view.shown)
    return (("other trials", ~best, _OTHERS, 0.4), ("best tenth", best, _GOOD, 0.9))


def _plot_parallel_coordinates(
    view: SearchView, objective: str, axes: Sequence[SearchAxis], number: int
) -> Plot:
    shown = axes[:_AXES]
    numbers = [trial.number for trial in view.shown]
    columns = [
        jitter_choices(axis, view.get_coordinates(axis, view.shown), numbers) for axis in shown
    ]
    table = np.column_stack([*columns, view.values(objective, view.shown)])
    groups = []
    for label, chosen, colour, strength in _split_best(view, objective):
        rows, most = table[chosen], _BEST_LINES if colour == _GOOD else _LINES
        if len(rows) > most:
            rows = rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
        groups.append(ParallelLines(label, rows, colour, 0.6 * strength))
    left_out = (
        f" The {len(shown)} most important of {len(axes)} parameters."
        if len(shown) < len(axes)
        else ""
    )
    return Plot(
        ParallelAxes(
            (*(create_parameter_axis(axis) for axis in shown), view.create_value_axis(objective)),
            tuple(groups),
        ),
        f"parallel-{number}",
        f"Each line is a trial, across its parameters and its "
        f"{objective}.{left_out}{view.told_shown}",
        f"Lines of {format_count(len(view.shown))} trials across "
        f"{', '.join(axis.name for axis in shown)} "
        f"and {objective}. " + _describe_best(view, objective, shown[:3]),
    )


def _plot_slices(
    view: SearchView, objective: str, axes: Sequence[SearchAxis], number: int, first: int = 0
) -> list[Block]:
    known = view.found.importance.get(objective)
    shares = {} if known is None else format_shares(known.additive or known.ped_anova)
    found: list[Block] = []
    for place, axis in enumerate(axes[: _MORE if first else _SLICES], first + 1):
        matters = f", with {shares[axis.name]} of the importance" if axis.name in shares else ""
        groups = []
        for label, chosen, colour, strength in _split_best(view, objective):
            trials = _select_trials(view.shown, chosen)
            x, y = view.get_coordinates(axis, trials), view.values(objective, trials)
            there = ~np.isnan(x)
            trials = _select_trials(trials, there)
            groups.append(
                PointGroup(
                    label,
                    jitter_choices(axis, x[there], [trial.number for trial in trials]),
                    y[there],
                    colour,
                    strength,
                    tips=_format_tooltips(trials, objective)
                    if colour == _GOOD and len(trials) <= _TIPS
                    else (),
                )
            )
        found.append(
            Plot(
                Points(
                    create_parameter_axis(axis), view.create_value_axis(objective), tuple(groups)
                ),
                f"slice-{number}-{place}",
                f"{objective} by {axis.name}{matters}.{view.told_shown}",
                f"{objective} by {axis.name}. {_describe_best(view, objective, [axis])}",
            )
        )
    return found


def _plot_pairs(
    view: SearchView, objective: str, axes: Sequence[SearchAxis], number: int
) -> list[Plot]:
    found = []
    for one, other in combinations(axes[:_PAIRED], 2):
        groups = []
        for label, chosen, colour, strength in _split_best(view, objective):
            trials = _select_trials(view.shown, chosen)
            x, y = view.get_coordinates(one, trials), view.get_coordinates(other, trials)
            there = ~np.isnan(x) & ~np.isnan(y)
            trials = _select_trials(trials, there)
            # The two places are moved independently, or choices of both would lie on lines.
            turned = [trial.number * 7 + 3 for trial in trials]
            groups.append(
                PointGroup(
                    label,
                    jitter_choices(one, x[there], [trial.number for trial in trials]),
                    jitter_choices(other, y[there], turned),
                    colour,
                    strength,
                )
            )
        places = [view.found.axes.index(axis) + 1 for axis in (one, other)]
        found.append(
            Plot(
                Points(create_parameter_axis(one), create_parameter_axis(other), tuple(groups)),
                f"pair-{number}-{places[0]}-{places[1]}",
                f"{other.name} against {one.name}: where the best tenth in {objective} "
                f"lies.{view.told_shown}",
                f"{other.name} against {one.name}. {_describe_best(view, objective, [one, other])}",
            )
        )
    return found


def _describe_best(view: SearchView, objective: str, axes: Sequence[SearchAxis]) -> str:
    """Return a sentence on where the best tenth lies, for readers who cannot see it."""
    trials = _select_trials(view.finished, view.best(objective, view.finished))
    told = []
    for axis in axes:
        places = view.get_coordinates(axis, trials)
        places = places[~np.isnan(places)]
        if not len(places):
            continue
        if axis.choices:
            counts = np.bincount(places.astype(np.int64), minlength=len(axis.choices))
            most = int(np.argmax(counts))
            told.append(f"{axis.name} {axis.choices[most]} in {counts[most]:,} of {len(places):,}")
        else:
            low, middle, high = np.quantile(places, (0.1, 0.5, 0.9)).tolist()
            told.append(f"{axis.name} mostly {low:.3g} to {high:.3g}, with the median {middle:.3g}")
    return f"The best tenth has {'; '.join(told)}." if told else ""


def _format_tooltips(trials: Sequence[TrialEntry], objective: str) -> tuple[str, ...]:
    return tuple(
        f"trial {trial.number}: {objective} {trial.values[objective]:.5g}" for trial in trials
    )


def _select_trials(
    trials: Sequence[TrialEntry], which: npt.NDArray[np.bool_]
) -> tuple[TrialEntry, ...]:
    return tuple(trial for trial, wanted in zip(trials, which.tolist(), strict=True) if wanted)
