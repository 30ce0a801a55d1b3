"""The section on a sweep: what to ship and why, what kills each of the others, and all of them in one table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from nnpipe.measure.constraints import Constraint, Figure, Metric
from nnpipe.report import document
from nnpipe.report.charts import Point as Place
from nnpipe.report.charts import Scatter
from nnpipe.report.document import Block, Cell, Paragraph, Section, Table, Tile, Tiles
from nnpipe.report.gathering import gathered
from nnpipe.report.sweepfile import Found, Point
from nnpipe.report.wording import NOTHING, Scale, count, digits, duration, points, share, size

_DECADE = 8.0  # from this ratio on, a linear axis would squeeze the least together


def sweep_section(found: Found) -> Section:
    """Make the section."""
    return Section(
        "What to ship",
        (
            Tiles(tuple(_tiles(found))),
            *_verdict(found),
            _table(found),
            *_pictures(found),
            *_killed(found),
            *_left_out(found),
        ),
    )


def most_telling(found: Found, most: int) -> tuple[Point, ...]:
    """Give the points that are worth to be shown one by one: the chosen one, then those most surely on the front."""
    order = sorted(found.points, key=lambda p: (p.title != found.chosen, not p.qualifies, -p.front_share, p.title))
    return tuple(order[:most])


def written(metric: Metric, value: float | None) -> str:
    """Write a metric's value, which is in seconds, bytes, shares or per second, with the unit that suits it."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if metric.kind == "time":
        return duration(1e9 * value)
    if metric.kind == "bytes":
        return size(value)
    if metric.name == "accuracy_loss":
        return f"{points(value)} points"
    return share(value) if metric.kind == "share" else f"{digits(value)} /s"


def _tiles(found: Found) -> Iterator[Tile]:
    chosen = _chosen(found)
    if chosen is not None:
        name = found.choose.name
        yield Tile("Ship", chosen.title, f"best of those that qualify in {name}: {_ranged(found.choose, chosen)}")
    else:
        yield Tile("Ship", "none", "no candidate qualifies" if found.constraints else "nothing was confirmed")
    if found.constraints:
        told = "; ".join(constraint.text for constraint in found.constraints)
        yield Tile("Qualify", f"{len(found.qualified):,} of {len(found.points):,}", told)
    best = sum(point.on_front for point in found.points)
    yield Tile("On the Pareto front", f"{best:,}", "in " + ", ".join(metric.name for metric in found.objectives))


def _verdict(found: Found) -> Iterator[Block]:
    chosen, sure = _chosen(found), share(found.confidence, 0)
    if chosen is not None:
        held = "; ".join(constraint.text for constraint in found.constraints)
        claims = (
            f" {held}: each holds on its whole interval, all of them together with {sure} confidence." if held else ""
        )
        yield Paragraph(
            f"{chosen.title} is the one to ship, by {found.choose.name}. It was measured a second time, "
            f"and what is claimed of it stands on that.{claims}"
        )
        level = _level_with(found, chosen)
        if level:
            yield Paragraph(
                f"Not to be told from it in {found.choose.name}: {', '.join(level)}. "
                "nnpipe compare measures such finalists side by side.",
                "note",
            )
    elif found.constraints and not found.qualified:
        yield Paragraph(
            "No candidate qualifies: for each, some constraint fails or cannot be told on its whole interval.",
            "warning",
        )
    yield from gathered(
        list(found.refuted.items()),
        lambda title: f"{title} came first, but did not hold when it was measured again: ",
        "candidates came first, but did not hold when they were measured again.",
        "warning",
    )


def _level_with(found: Found, chosen: Point) -> list[str]:
    mine = chosen.figures.get(found.choose.name, Figure.unknown(""))
    return [
        point.title
        for point in found.qualified
        if point is not chosen
        and (theirs := point.figures.get(found.choose.name)) is not None
        and theirs.value is not None
        and theirs.low <= mine.high
        and mine.low <= theirs.high
    ]


def _chosen(found: Found) -> Point | None:
    return next((point for point in found.points if point.title == found.chosen), None)


def _table(found: Found) -> Table:
    order = sorted(found.points, key=lambda p: (p.title != found.chosen, not p.qualifies, -p.front_share, p.title))
    columns = [("Candidate", [Cell(point.title) for point in order])]
    columns += [(metric.name, [_cell(metric, point) for point in order]) for metric in found.metrics]
    columns.append(("Front", [Cell(share(point.front_share, 0), point.front_share) for point in order]))
    if found.constraints:
        columns.append(("Verdict", [Cell(_judged(found, point)) for point in order]))
    return Table(
        tuple(name for name, _ in columns),
        tuple(zip(*(cells for _, cells in columns), strict=True)),
        sortable=True,
        minor=tuple(metric.name for metric in found.metrics[3:]),
        caption="All candidates that were measured, the chosen one first, then those most surely on the front. "
        f"Ranges are {share(found.confidence, 0)} intervals; front is the share of draws from the figures' uncertainty "
        f"in which no other candidate is at least as good in {', '.join(m.name for m in found.objectives)}.",
    )


def _cell(metric: Metric, point: Point) -> Cell:
    known = point.figures.get(metric.name)
    if known is None or known.value is None:
        return Cell(NOTHING)
    return Cell(written(metric, known.value), known.value, _range(metric, known))


def _range(metric: Metric, known: Figure) -> str:
    if known.low == known.high or not (math.isfinite(known.low) and math.isfinite(known.high)):
        return ""
    return f"{written(metric, known.low)} to {written(metric, known.high)}"


def _ranged(metric: Metric, point: Point) -> str:
    known = point.figures.get(metric.name)
    if known is None or known.value is None:
        return NOTHING if known is None else known.reason or NOTHING
    range_ = _range(metric, known)
    return written(metric, known.value) + (f" ({range_})" if range_ else "")


def _judged(found: Found, point: Point) -> str:
    if point.title == found.chosen:
        return "chosen"
    if point.title in found.refuted:
        return "refuted when measured again"
    if point.qualifies:
        return "qualifies"
    fails = [c.metric.name for c in found.constraints if _fails(c, point)]
    if fails:
        return "fails " + ", ".join(fails)
    return "undecided: " + ", ".join(c.metric.name for c in found.constraints if point.claims.get(c.text) is None)


def _fails(constraint: Constraint, point: Point) -> bool:
    known = point.figures.get(constraint.metric.name)
    return point.claims.get(constraint.text) is False or known is None or known.value is None


def _killed(found: Found) -> Iterator[Block]:
    rows = [
        (
            point.title,
            constraint.text,
            "fails" if _fails(constraint, point) else "cannot be told",
            _ranged(constraint.metric, point),
        )
        for point in found.points
        for constraint in found.constraints
        if point.claims.get(constraint.text) is not True
    ]
    if rows:
        header = ("Candidate", "Constraint", "Verdict", "Measured")
        yield Table(header, tuple(rows), sortable=True, caption="What kills each that does not qualify", folded=True)


def _left_out(found: Found) -> Iterator[Block]:
    for reasons, caption in (
        (found.failed, "could not be measured"),
        (found.impossible, "cannot be: their parts do not fit together"),
    ):
        if reasons:
            said = f"{count(len(reasons))} combination{'s' * (len(reasons) != 1)} {caption}"
            yield Table(("Combination", "Reason"), tuple(reasons.items()), caption=said, folded=True, sortable=True)


def _pictures(found: Found) -> Iterator[document.Figure]:
    """Draw what quality costs: each objective of which more is better against each of which less is."""
    costs = [m for m in found.objectives if m.less_is_better and m.name != "accuracy_loss"]
    gains = [m for m in found.objectives if not m.less_is_better or m.name == "accuracy_loss"]
    for gain in gains[:1]:
        for cost in costs[:2]:
            figure = _picture(found, cost, gain)
            if figure is not None:
                yield figure


def _picture(found: Found, cost: Metric, gain: Metric) -> document.Figure | None:
    known = [(n, p, p.figures.get(cost.name), p.figures.get(gain.name)) for n, p in enumerate(found.points)]
    both = [(n, p, x, y) for n, p, x, y in known if x is not None and y is not None and None not in (x.value, y.value)]
    if len(both) < 2:
        return None
    values = [x.value for _, _, x, _ in both if x.value is not None]
    to_x, x_unit = _scaled(cost, values)
    to_y, y_label = _upward(gain)
    places = tuple(
        Place(
            point.title,
            to_x * (x.value or 0.0),
            to_y * (y.value or 0.0),
            _ends(x, to_x),
            _ends(y, to_y),
            number,
            point.on_front,
            f"{point.title}: {cost.name} {_ranged(cost, point)}, {gain.name} {_ranged(gain, point)}; "
            f"on the front in {share(point.front_share, 0)} of draws",
        )
        for number, point, x, y in both
    )
    least = min(values)
    best = ", ".join(place.label for place in places if place.on_front)
    return document.Figure(
        Scatter(f"{cost.name}, {x_unit}", y_label, places, least > 0 and max(values) / least > _DECADE, front=True),
        f"sweep-{gain.name}-against-{cost.name}".replace("_", "-").replace(".", "-"),
        f"{gain.name} against {cost.name}; up and to the left is better. Bars are intervals, the broken line is what "
        "no candidate is beyond; pale ones are off the front of all objectives together",
        f"{gain.name} against {cost.name} of {len(places):,} candidates. On the front: {best}.",
    )


def _scaled(metric: Metric, values: Sequence[float]) -> tuple[float, str]:
    if metric.kind == "time":
        scale = Scale.of_times([1e9 * value for value in values])
        return 1e9 / scale.divisor, scale.unit
    scale = Scale.of_sizes(values)
    return 1 / scale.divisor, scale.unit


def _upward(metric: Metric) -> tuple[float, str]:
    if metric.name == "accuracy_loss":
        return -100.0, "change of accuracy, points"
    return (100.0, f"{metric.name}, %") if metric.kind == "share" else (1.0, f"{metric.name}, /s")


def _ends(known: Figure, factor: float) -> tuple[float, float]:
    value = known.value or 0.0
    low, high = (end if math.isfinite(end) else value for end in (known.low, known.high))
    return min(factor * low, factor * high), max(factor * low, factor * high)
