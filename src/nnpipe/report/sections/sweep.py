"""The section on a sweep: the chosen candidate, why the others do not qualify, and a table of all candidates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nnpipe.measuring.constraints import Figure, MetricConstraint
from nnpipe.measuring.quantities import Quantity
from nnpipe.report.document import Block, Cell, Paragraph, Section, Table, Tile, Tiles
from nnpipe.report.formatting import NOTHING, count, share
from nnpipe.report.inputs.sweep_file import Again, Found, SweepCandidate
from nnpipe.report.quantity_text import interval, ranged, written
from nnpipe.report.sections.grouping import grouped_reasons
from nnpipe.report.sections.sweep_pictures import SCALES, named, sweep_pictures


def sweep_section(found: Found) -> Section:
    """Return the section."""
    return Section(
        "What to ship",
        (
            Tiles(tuple(_tiles(found))),
            *_verdict(found),
            _table(found),
            *sweep_pictures(found),
            *_stopped(found),
            *_killed(found),
            *_left_out(found),
        ),
    )


def most_telling(found: Found, most: int) -> tuple[SweepCandidate, ...]:
    """Return the most important candidates: the chosen one, then qualified ones and those most surely on the front."""
    order = sorted(found.points, key=lambda p: (p.title != found.chosen, not p.qualifies, -p.front_share, p.title))
    return tuple(order[:most])


def _tiles(found: Found) -> Iterator[Tile]:
    chosen = _chosen(found)
    if chosen is not None:
        known = _shipped(found, chosen).get(found.choose.name)
        where = f" on {found.cheapest}, the cheapest device" if found.cheapest else ""
        note = f"best of those that qualify{where}: {found.choose.title} {ranged(found.choose, known)}"
        yield Tile("Ship", chosen.title, note + (", measured again" if found.again is not None else ""))
        if found.again is not None:
            yield Tile("Doubts about it", _doubt_kinds(found.again.doubts), "from when it was measured again")
    else:
        yield Tile("Ship", "none", "no candidate qualifies" if found.constraints else "nothing was confirmed")
    if found.constraints:
        texts = "; ".join(constraint.text for constraint in found.constraints)
        yield Tile("Qualify", f"{len(found.qualified):,} of {len(found.points):,}", texts)
    best = sum(point.on_front for point in found.points)
    yield Tile("On the Pareto front", f"{best:,}", "in " + ", ".join(named(metric) for metric in found.objectives))


def _shipped(found: Found, chosen: SweepCandidate) -> Mapping[str, Figure]:
    """Return the figures that are claimed for the chosen candidate: of its second measurement, if there is one."""
    return chosen.figures if found.again is None else found.again.figures


def _doubt_kinds(doubts: Sequence[tuple[str, str]]) -> str:
    return ", ".join(dict.fromkeys(kind for kind, _ in doubts)) or "none"


def _verdict(found: Found) -> Iterator[Block]:
    chosen, sure = _chosen(found), share(found.confidence, 0)
    if chosen is not None:
        held = "; ".join(constraint.text for constraint in found.constraints)
        claims = (
            f" {held}: each holds on its whole interval, all of them together with {sure} confidence." if held else ""
        )
        yield Paragraph(
            f"{chosen.title} is the one to ship, by {named(found.choose)}. It was measured a second time, "
            f"and what is claimed of it stands on that.{claims}"
        )
        if found.again is not None:
            reasons = "; ".join(f"{kind}: {reason}" for kind, reason in found.again.doubts)
            if reasons:
                yield Paragraph(f"There is reason to distrust what is claimed of it: {reasons}.", "warning")
            yield _claimed(found, chosen, found.again)
        level = _level_with(found, chosen)
        if level:
            yield Paragraph(
                f"Not to be told from it in {named(found.choose)}: {', '.join(level)}. "
                "nnpipe compare measures such finalists side by side.",
                "note",
            )
    elif found.constraints and not found.qualified:
        yield Paragraph(
            "No candidate qualifies: for each, some constraint fails or cannot be told on its whole interval.",
            "warning",
        )
    yield from grouped_reasons(
        list(found.refuted.items()),
        lambda title: f"{title} came first, but did not hold when it was measured again: ",
        "candidates came first, but did not hold when they were measured again.",
        "warning",
    )


def _claimed(found: Found, chosen: SweepCandidate, again: Again) -> Table:
    """Return a table of the certified figures beside those that the choice was based on."""
    rows = []
    for metric in found.metrics:
        bounds = "; ".join(c.text.removeprefix(metric.name).strip() for c in found.constraints if c.metric == metric)
        now, before = again.figures.get(metric.name), chosen.figures.get(metric.name)
        cells = (_figure_cell(metric, now), _figure_cell(metric, before))
        rows.append((metric.title, *cells, bounds or NOTHING))
    return Table(
        ("Figure", "Certified", "When it was chosen", "Wanted"),
        tuple(rows),
        caption=f"What is claimed of it. Certified is what came out when it was measured again. {_intervals(found)}",
    )


def _intervals(found: Found) -> str:
    together = f", so that all constraints hold together with {share(found.confidence, 0)}"
    level = 100 * found.level
    return f"Ranges are {level:.4g}\u00a0% intervals{together * (found.level != found.confidence)}."


def _figure_cell(metric: Quantity, known: Figure | None) -> Cell:
    if known is None or known.value is None:
        return Cell(NOTHING)
    return Cell(written(metric, known.value), known.value, interval(metric, known))


def _level_with(found: Found, chosen: SweepCandidate) -> list[str]:
    mine = chosen.figures.get(found.choose.name, Figure.unknown(""))
    return [
        point.title
        for point in found.qualified
        if point is not chosen
        and point.device == chosen.device
        and (theirs := point.figures.get(found.choose.name)) is not None
        and theirs.value is not None
        and theirs.low <= mine.high
        and mine.low <= theirs.high
    ]


def _chosen(found: Found) -> SweepCandidate | None:
    return next((point for point in found.points if point.title == found.chosen), None)


def _table(found: Found) -> Table:
    order = sorted(found.points, key=lambda p: (p.title != found.chosen, not p.qualifies, -p.front_share, p.title))
    columns = [("Candidate", [Cell(point.title) for point in order])]
    columns += [_column(metric, order) for metric in found.metrics]
    columns.append(("Front", [_front_cell(point) for point in order]))
    if found.constraints or found.spent:
        columns.append(("Verdict", [Cell(_judged(found, point)) for point in order]))
    columns.append(("Doubts", [Cell(_doubt_kinds(point.doubts)) for point in order]))
    again = " (the second measurement of the chosen one stands above)" if found.again is not None else ""
    return Table(
        tuple(name for name, _ in columns),
        tuple(zip(*(cells for _, cells in columns), strict=True)),
        sortable=True,
        minor=tuple(columns[1 + place][0] for place in range(3, len(found.metrics))),
        caption=f"All candidates as they were first measured{again}: the chosen one first, then those most surely on "
        f"the front. {_intervals(found)} Front is the share of draws from the figures' uncertainty in which no other "
        f"candidate{' of the same device' * bool(found.devices)} is at least as good in "
        f"{', '.join(named(m) for m in found.objectives)}. In the sweep's file "
        + ", ".join(f"{m.name} is {m.title}" for m in found.metrics if m.name != m.heading.lower())
        + ".",
    )


def _column(metric: Quantity, points: Sequence[SweepCandidate]) -> tuple[str, list[Cell]]:
    """Return the heading and the cells of a column; times and sizes have a common unit, which the heading names."""
    known = [point.figures.get(metric.name) or Figure.unknown("") for point in points]
    if metric.kind not in SCALES:
        return metric.heading, [_figure_cell(metric, each) for each in known]
    factor, scale_of = SCALES[metric.kind]
    values = [None if each.value is None else factor * each.value for each in known]
    scale = scale_of(values)
    cells = []
    for each, value in zip(known, values, strict=True):
        range_ = ""
        if interval(metric, each):
            range_ = f"{scale.text(factor * each.low)} to {scale.text(factor * each.high)}"
        cells.append(Cell(scale.text(value), each.value, range_))
    return f"{metric.heading}, {scale.unit}", cells


def _front_cell(point: SweepCandidate) -> Cell:
    return Cell(NOTHING) if point.stopped else Cell(share(point.front_share, 0), point.front_share)


def _judged(found: Found, point: SweepCandidate) -> str:
    if point.title == found.chosen:
        return "chosen"
    if point.title in found.refuted:
        return "refuted when measured again"
    if point.stopped:
        return f"stopped at {share(point.share, 0)}"
    if point.qualifies:
        return "qualifies"
    for verdict, words in (("fails", "fails "), ("not known", "not known: "), ("cannot be told", "undecided: ")):
        headings = [c.metric.heading for c in found.constraints if _claim_verdict(c, point) == verdict]
        if headings:
            return words + ", ".join(headings)
    return "barred: " + _doubt_kinds(point.doubts)


def _claim_verdict(constraint: MetricConstraint, point: SweepCandidate) -> str:
    known, holds = point.figures.get(constraint.metric.name), point.claims.get(constraint.text)
    if known is None or known.value is None:
        return "not known"
    if holds is None:
        return "cannot be told"
    return "holds" if holds else "fails"


def _killed(found: Found) -> Iterator[Block]:
    rows = [
        (
            point.title,
            constraint.text,
            _claim_verdict(constraint, point),
            ranged(constraint.metric, point.figures.get(constraint.metric.name)),
        )
        for point in found.points
        if not point.stopped
        for constraint in found.constraints
        if point.claims.get(constraint.text) is not True
    ]
    if rows:
        header = ("Candidate", "Constraint", "Verdict", "Measured")
        yield Table(header, tuple(rows), sortable=True, caption="What kills each that does not qualify", folded=True)


def _stopped(found: Found) -> Iterator[Block]:
    rows = [(point.title, share(point.share, 0), point.stopped) for point in found.points if point.stopped]
    if found.spent:
        yield Paragraph(found.spent)
    if rows:
        header = ("Candidate", "Measured", "Why no further")
        yield Table(
            header,
            tuple(rows),
            sortable=True,
            caption="Candidates that could not change the result any more, or for which the budget was too small",
            folded=True,
        )


def _left_out(found: Found) -> Iterator[Block]:
    for reasons, caption in (
        (found.failed, "could not be measured"),
        (found.impossible, "cannot be: their parts do not fit together"),
    ):
        if reasons:
            said = f"{count(len(reasons))} combination{'s' * (len(reasons) != 1)} {caption}"
            yield Table(("Combination", "Reason"), tuple(reasons.items()), caption=said, folded=True, sortable=True)
