"""The section on a sweep: the chosen candidate, why the others do not qualify, and a table of
all candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from nnpipe.measuring.constraints import Figure, MetricConstraint
from nnpipe.measuring.quantities import Quantity, find_quantity
from nnpipe.report import document
from nnpipe.report.charts import ChartPoint as Place
from nnpipe.report.charts import Scatter
from nnpipe.report.document import Block, Cell, Paragraph, Section, Table, Tile, Tiles
from nnpipe.report.formatting import (
    NOTHING,
    Scale,
    format_count,
    format_share,
)
from nnpipe.report.inputs.sweep_file import Remeasurement, SweepCandidate, SweepFile
from nnpipe.report.quantity_text import format_figure, format_figure_interval, format_quantity
from nnpipe.report.sections.validity_warnings import group_reasons

# The scale of a column by the kind of its metric, and what a value is multiplied by to be in the
# unit of the scale.
SCALES = {
    "time": (1e9, Scale.from_times),
    "bytes": (1.0, Scale.from_sizes),
    "energy": (1.0, Scale.from_energies),
}


_DECADE = 8.0  # from this ratio on the axis is logarithmic, so that small values stay apart


def get_inline_title(metric: Quantity) -> str:
    """Return the title of a metric for use inside a sentence."""
    title = metric.title
    return title if title[:1].islower() or title[1:2].isupper() else title[0].lower() + title[1:]


def plot_sweep_objectives(found: SweepFile) -> Iterator[document.Plot]:
    """Yield plots of a quality objective against up to two cost objectives."""
    costs = [m for m in found.objectives if m.less_is_better and not m.metric]
    gains = [m for m in found.objectives if m.metric or not m.less_is_better]
    for gain in gains[:1]:
        for cost in costs[:2]:
            figure = _plot_objectives(found, cost, gain)
            if figure is not None:
                yield figure


def _plot_objectives(found: SweepFile, cost: Quantity, gain: Quantity) -> document.Plot | None:
    known = [
        (n, p, p.figures.get(cost.name), p.figures.get(gain.name))
        for n, p in enumerate(found.points)
    ]
    both = [
        (n, p, x, y)
        for n, p, x, y in known
        if x is not None and y is not None and None not in (x.value, y.value)
    ]
    # If all are equally good, there is nothing to choose between and no picture.
    if len(both) < 2 or len({y.value for _, _, _, y in both}) == 1:
        return None
    values = [x.value for _, _, x, _ in both if x.value is not None]
    to_x, x_unit = _select_factor(cost, values)
    to_y, y_label = _select_sign(gain)
    places = tuple(
        Place(
            point.title,
            to_x * (x.value or 0.0),
            to_y * (y.value or 0.0),
            _scale_interval(x, to_x),
            _scale_interval(y, to_y),
            number,
            point.on_front,
            f"{point.title}: {get_inline_title(cost)} {format_figure(cost, x)}, "
            f"{get_inline_title(gain)} {format_figure(gain, y)}; "
            + (
                f"stopped at {format_share(point.share, 0)}"
                if point.stopped
                else f"on the front in {format_share(point.front_share, 0)} of draws"
            ),
        )
        for number, point, x, y in both
    )
    least = min(values)
    best = ", ".join(place.label for place in places if place.on_front)
    return document.Plot(
        Scatter(
            f"{get_inline_title(cost)}, {x_unit}",
            y_label,
            places,
            least > 0 and max(values) / least > _DECADE,
            front=True,
        ),
        f"sweep-{gain.name}-against-{cost.name}".replace("_", "-").replace(".", "-"),
        f"{gain.title} against {get_inline_title(cost)}; up and to the left is better. Bars are "
        f"intervals, the broken line is "
        "what no candidate is beyond; pale ones are off the front of all objectives together",
        f"{gain.title} against {get_inline_title(cost)} of {len(places):,} candidates. On the "
        f"front: {best}.",
    )


def _select_factor(metric: Quantity, values: Sequence[float]) -> tuple[float, str]:
    factor, scale_of = SCALES.get(metric.kind, SCALES["bytes"])
    scale = scale_of([factor * value for value in values])
    return factor / scale.divisor, scale.unit


def _select_sign(metric: Quantity) -> tuple[float, str]:
    sign, label = (
        (-1.0, f"−{get_inline_title(metric)}")
        if metric.less_is_better
        else (1.0, get_inline_title(metric))
    )
    if metric.compared:
        label = f"change of {get_inline_title(find_quantity(metric.metric))}"
    if metric.kind == "share":
        return 100 * sign, f"{label}, {'points' if metric.compared else '%'}"
    return sign, f"{label}, /s" if metric.kind == "rate" else label


def _scale_interval(known: Figure, factor: float) -> tuple[float, float]:
    value = known.value or 0.0
    low, high = (end if math.isfinite(end) else value for end in (known.low, known.high))
    return min(factor * low, factor * high), max(factor * low, factor * high)


def build_sweep_section(found: SweepFile) -> Section:
    """Return the section."""
    return Section(
        "What to ship",
        (
            Tiles(tuple(_build_tiles(found))),
            *_build_verdict_blocks(found),
            _build_candidate_table(found),
            *plot_sweep_objectives(found),
            *_build_stopped_blocks(found),
            *_build_violation_table(found),
            *_build_failure_tables(found),
        ),
    )


def select_sweep_candidates(found: SweepFile, most: int) -> tuple[SweepCandidate, ...]:
    """Return the most important candidates: the chosen one, then qualified ones and those most
    surely on the front.
    """
    order = sorted(
        found.points,
        key=lambda p: (p.title != found.chosen, not p.qualifies, -p.front_share, p.title),
    )
    return tuple(order[:most])


def _build_tiles(found: SweepFile) -> Iterator[Tile]:
    chosen = _find_chosen(found)
    if chosen is not None:
        known = _get_claimed_figures(found, chosen).get(found.choose.name)
        where = f" on {found.cheapest}, the cheapest device" if found.cheapest else ""
        note = (
            f"best of those that qualify{where}: {found.choose.title} "
            f"{format_figure(found.choose, known)}"
        )
        yield Tile(
            "Ship", chosen.title, note + (", measured again" if found.again is not None else "")
        )
        if found.again is not None:
            yield Tile(
                "Doubts about it",
                _format_warning_kinds(found.again.doubts),
                "from when it was measured again",
            )
    else:
        yield Tile(
            "Ship",
            "none",
            "no candidate qualifies" if found.constraints else "nothing was confirmed",
        )
    if found.constraints:
        texts = "; ".join(constraint.text for constraint in found.constraints)
        yield Tile("Qualify", f"{len(found.qualified):,} of {len(found.points):,}", texts)
    best = sum(point.on_front for point in found.points)
    yield Tile(
        "On the Pareto front",
        f"{best:,}",
        "in " + ", ".join(get_inline_title(metric) for metric in found.objectives),
    )


def _get_claimed_figures(found: SweepFile, chosen: SweepCandidate) -> Mapping[str, Figure]:
    """Return the figures that are claimed for the chosen candidate: of its second measurement,
    if there is one.
    """
    return chosen.figures if found.again is None else found.again.figures


def _format_warning_kinds(doubts: Sequence[tuple[str, str]]) -> str:
    return ", ".join(dict.fromkeys(kind for kind, _ in doubts)) or "none"


def _build_verdict_blocks(found: SweepFile) -> Iterator[Block]:
    chosen, sure = _find_chosen(found), format_share(found.confidence, 0)
    if chosen is not None:
        held = "; ".join(constraint.text for constraint in found.constraints)
        claims = (
            f" {held}: each holds on its whole interval, all of them together with {sure} "
            f"confidence."
            if held
            else ""
        )
        yield Paragraph(
            f"{chosen.title} is the one to ship, by {get_inline_title(found.choose)}. It was "
            f"measured a second time, and what is claimed of it stands on that.{claims}"
        )
        if found.again is not None:
            reasons = "; ".join(f"{kind}: {reason}" for kind, reason in found.again.doubts)
            if reasons:
                yield Paragraph(
                    f"There is reason to distrust what is claimed of it: {reasons}.", "warning"
                )
            yield _build_certificate_table(found, chosen, found.again)
        level = found.ties
        if level:
            yield Paragraph(
                f"Not to be told from it in {get_inline_title(found.choose)}: {', '.join(level)}. "
                "nnpipe compare measures such finalists side by side.",
                "note",
            )
    elif found.constraints and not found.qualified:
        yield Paragraph(
            "No candidate qualifies: for each, some constraint fails or cannot be told on its "
            "whole interval.",
            "warning",
        )
    yield from group_reasons(
        list(found.refuted.items()),
        lambda title: f"{title} came first, but did not hold when it was measured again: ",
        "candidates came first, but did not hold when they were measured again.",
        "warning",
    )


def _build_certificate_table(
    found: SweepFile, chosen: SweepCandidate, again: Remeasurement
) -> Table:
    """Return a table of the certified figures beside those that the choice was based on."""
    rows = []
    for metric in found.metrics:
        bounds = "; ".join(
            c.text.removeprefix(metric.name).strip()
            for c in found.constraints
            if c.metric == metric
        )
        now, before = again.figures.get(metric.name), chosen.figures.get(metric.name)
        cells = (_format_figure_cell(metric, now), _format_figure_cell(metric, before))
        rows.append((metric.title, *cells, bounds or NOTHING))
    return Table(
        ("Figure", "Certified", "When it was chosen", "Wanted"),
        tuple(rows),
        caption=(
            f"What is claimed of it. Certified is what came out when it was measured again. "
            f"{_describe_intervals(found)}"
        ),
    )


def _describe_intervals(found: SweepFile) -> str:
    together = f", so that all constraints hold together with {format_share(found.confidence, 0)}"
    level = 100 * found.level
    return f"Ranges are {level:.4g}\u00a0% intervals{together * (found.level != found.confidence)}."


def _format_figure_cell(metric: Quantity, known: Figure | None) -> Cell:
    if known is None or known.value is None:
        return Cell(NOTHING)
    return Cell(
        format_quantity(metric, known.value), known.value, format_figure_interval(metric, known)
    )


def _find_chosen(found: SweepFile) -> SweepCandidate | None:
    return next((point for point in found.points if point.title == found.chosen), None)


def _build_candidate_table(found: SweepFile) -> Table:
    order = sorted(
        found.points,
        key=lambda p: (p.title != found.chosen, not p.qualifies, -p.front_share, p.title),
    )
    columns = [("Candidate", [Cell(point.title) for point in order])]
    columns += [_build_metric_column(metric, order) for metric in found.metrics]
    columns.append(("Front", [_format_front_cell(point) for point in order]))
    if found.constraints or found.spent:
        columns.append(("Verdict", [Cell(_describe_verdict(found, point)) for point in order]))
    columns.append(("Doubts", [Cell(_format_warning_kinds(point.doubts)) for point in order]))
    again = (
        " (the second measurement of the chosen one stands above)"
        if found.again is not None
        else ""
    )
    return Table(
        tuple(name for name, _ in columns),
        tuple(zip(*(cells for _, cells in columns), strict=True)),
        sortable=True,
        minor=tuple(columns[1 + place][0] for place in range(3, len(found.metrics))),
        caption=f"All candidates as they were first measured{again}: the chosen one first, then "
        f"those most surely on the front. {_describe_intervals(found)} Front is the share of draws "
        f"from the figures' uncertainty in which no other "
        f"candidate{' of the same device' * bool(found.devices)} is at least as good in "
        f"{', '.join(get_inline_title(m) for m in found.objectives)}. In the sweep's file "
        + ", ".join(f"{m.name} is {m.title}" for m in found.metrics if m.name != m.heading.lower())
        + ".",
    )


def _build_metric_column(
    metric: Quantity, points: Sequence[SweepCandidate]
) -> tuple[str, list[Cell]]:
    """Return the heading and the cells of a column; times and sizes have a common unit, which
    the heading names.
    """
    known = [point.figures.get(metric.name) or Figure.unknown("") for point in points]
    if metric.kind not in SCALES:
        return metric.heading, [_format_figure_cell(metric, each) for each in known]
    factor, scale_of = SCALES[metric.kind]
    values = [None if each.value is None else factor * each.value for each in known]
    scale = scale_of(values)
    cells = []
    for each, value in zip(known, values, strict=True):
        range_ = ""
        if format_figure_interval(metric, each):
            range_ = f"{scale.text(factor * each.low)} to {scale.text(factor * each.high)}"
        cells.append(Cell(scale.text(value), each.value, range_))
    return f"{metric.heading}, {scale.unit}", cells


def _format_front_cell(point: SweepCandidate) -> Cell:
    return (
        Cell(NOTHING)
        if point.stopped
        else Cell(format_share(point.front_share, 0), point.front_share)
    )


def _describe_verdict(found: SweepFile, point: SweepCandidate) -> str:
    if point.title == found.chosen:
        return "chosen"
    if point.title in found.refuted:
        return "refuted when measured again"
    if point.stopped:
        return f"stopped at {format_share(point.share, 0)}"
    if point.qualifies:
        return "qualifies"
    for verdict, words in (
        ("fails", "fails "),
        ("not known", "not known: "),
        ("cannot be told", "undecided: "),
    ):
        headings = [
            c.metric.heading for c in found.constraints if _check_claim(c, point) == verdict
        ]
        if headings:
            return words + ", ".join(headings)
    return "barred: " + _format_warning_kinds(point.doubts)


def _check_claim(constraint: MetricConstraint, point: SweepCandidate) -> str:
    known, holds = point.figures.get(constraint.metric.name), point.claims.get(constraint.text)
    if known is None or known.value is None:
        return "not known"
    if holds is None:
        return "cannot be told"
    return "holds" if holds else "fails"


def _build_violation_table(found: SweepFile) -> Iterator[Block]:
    rows = [
        (
            point.title,
            constraint.text,
            _check_claim(constraint, point),
            format_figure(constraint.metric, point.figures.get(constraint.metric.name)),
        )
        for point in found.points
        if not point.stopped
        for constraint in found.constraints
        if point.claims.get(constraint.text) is not True
    ]
    if rows:
        header = ("Candidate", "Constraint", "Verdict", "Measured")
        yield Table(
            header,
            tuple(rows),
            sortable=True,
            caption="What kills each that does not qualify",
            folded=True,
        )


def _build_stopped_blocks(found: SweepFile) -> Iterator[Block]:
    rows = [
        (point.title, format_share(point.share, 0), point.stopped)
        for point in found.points
        if point.stopped
    ]
    if found.spent:
        yield Paragraph(found.spent)
    if rows:
        header = ("Candidate", "Measured", "Why no further")
        yield Table(
            header,
            tuple(rows),
            sortable=True,
            caption=(
                "Candidates that could not change the result any more, or for which the budget was "
                "too small"
            ),
            folded=True,
        )


def _build_failure_tables(found: SweepFile) -> Iterator[Block]:
    for reasons, caption in (
        (found.failed, "could not be measured"),
        (found.impossible, "cannot be: their parts do not fit together"),
    ):
        if reasons:
            said = f"{format_count(len(reasons))} combination{'s' * (len(reasons) != 1)} {caption}"
            yield Table(
                ("Combination", "Reason"),
                tuple(reasons.items()),
                caption=said,
                folded=True,
                sortable=True,
            )
