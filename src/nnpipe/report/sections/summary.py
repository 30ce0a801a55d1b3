"""The first section of a report: the most important figures, and a table that compares the
candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from nnpipe.core.quality_metric import QualityMetric
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.quantities import Quantity, difference, in_sentence, quality, quantity
from nnpipe.measuring.run_figures import (
    BOARD_FIGURES,
    COUNTERS,
    board_figure,
    counted_figure,
    energy_figure,
    energy_source,
)
from nnpipe.measuring.series import LATENCY, ON_TARGET, ROUND_TRIP
from nnpipe.report.document import Block, Cell, Paragraph, Section, Table, Tile, Tiles
from nnpipe.report.formatting import NOTHING, Scale, count, counted, digits, share
from nnpipe.report.inputs.candidate import (
    Candidate,
    leading_quality,
    on_the_same_samples,
    pairing,
    quality_text,
)
from nnpipe.report.inputs.pareto_front import Standing, standings
from nnpipe.report.inputs.quality import Quality
from nnpipe.report.quantity_text import difference_text, interval, kinds, written
from nnpipe.report.sections.doubts import doubts
from nnpipe.report.sections.overview import overview
from nnpipe.report.sections.verdict import as_source, departures, size_of, verdict
from nnpipe.report.writers.json_figures import costs_of


def headline_figures(candidate: Candidate) -> Iterator[tuple[Quantity, Figure]]:
    """Yield the figures of speed, quality and cost that are known, or whose absence has a
    reason.
    """
    found, timed, judged = costs_of(candidate), candidate.timed.name, candidate.quality
    if judged is not None:
        found[judged.metric.name] = judged.figure
    first = () if judged is None else (judged.metric.name,)
    others = (
        "round_trip_median",
        "paced_median",
        "throughput",
        *first,
        "size",
        "memory",
        *COUNTERS,
        *BOARD_FIGURES,
        "energy",
    )
    for name in dict.fromkeys((f"{timed}_median", f"{timed}_p90", *others)):
        known = found.get(name)
        if known is not None and (known.value is not None or known.reason):
            yield quantity(name), known


def headline(candidate: Candidate) -> Table:
    """Return a table of the most important figures, with the agreement and the doubts below.

    Metrics of quality behind the first one have no interval here, since these may take long.
    """
    rows, judged = [], candidate.quality
    for q, known in headline_figures(candidate):
        text = interval(q, known) or known.reason
        if q.name == "size":
            text = text or size_of(candidate)
        rows.append((q.title, Cell(written(q, known.value), known.value), text))
        if judged is None or q.name != judged.metric.name:
            continue
        for metric in judged.task.metrics[1:]:
            if not math.isnan(value := metric.of(judged.evaluation)):
                why = judged.evaluation.not_finite_words() if math.isinf(value) else ""
                rows.append((metric.title, Cell(written(quality(metric), value), value), why))
    if candidate.verdict:
        rows.append(("Agreement with the source", Cell(candidate.verdict), as_source(candidate)))
    if candidate.latency is not None:
        rows.append(("Doubts", Cell(kinds(candidate.doubts)), ""))
    calls = (
        f"{count(len(candidate.latency))} timed calls" if candidate.latency is not None else NOTHING
    )
    return Table(("Figure", "Value", "95\u00a0% interval"), tuple(rows), caption=calls)


_Column = tuple[str, list[Cell]]


def summary(candidates: Sequence[Candidate], *, judged: bool = False) -> Section:
    """Return the section: the figures of a single candidate, or a comparison of several.

    If the candidates are ``judged`` already, as by a sweep, there is no second verdict, because it
    might differ.
    """
    if len(candidates) == 1:
        return Section("Summary", _alone(candidates[0]))
    found = {} if judged else standings(candidates)
    blocks: list[Block] = [
        *([] if judged else verdict(candidates, found)),
        *departures(candidates),
        *doubts(candidates),
    ]
    return Section(
        "Comparison",
        (*blocks, _table(candidates, found), *overview(candidates, found, judged=judged)),
    )


def _alone(candidate: Candidate) -> tuple[Block, ...]:
    tiles = []
    for each, known in headline_figures(candidate):
        range_ = interval(each, known)
        tiles.append(
            Tile(
                each.title,
                written(each, known.value),
                f"95\u00a0% interval {range_}" if range_ else known.reason,
            )
        )
    if candidate.verdict:
        tiles.append(Tile("Agreement with the source", candidate.verdict, as_source(candidate)))
    if candidate.latency is not None:
        tiles.append(Tile("Doubts", kinds(candidate.doubts), "reasons to distrust the figures"))
    blocks: list[Block] = [Paragraph(f"{candidate.name}: {candidate.made_of}")]
    if tiles:
        blocks.append(Tiles(tuple(tiles)))
    return (*blocks, *departures([candidate]), *doubts([candidate]))


def _table(candidates: Sequence[Candidate], found: Mapping[int, Standing]) -> Table:
    loads = Scale.of_times([c.load_ns for c in candidates])
    firsts = Scale.of_times([c.first_ns for c in candidates])
    sizes = Scale.of_sizes([c.size for c in candidates])
    memory = Scale.of_sizes([c.peak_memory for c in candidates])
    joules = [energy_figure(c.run) for c in candidates]
    energies = Scale.of_energies([figure.value if figure else None for figure in joules])
    leading = leading_quality(candidates)
    heading, gap = (
        ("", "")
        if leading is None
        else (leading.metric.heading, difference(leading.metric).heading)
    )
    others = () if leading is None else leading.task.metrics[1:]
    timed = [_timed(name, candidates) for name in dict.fromkeys(c.timed.name for c in candidates)]
    # The most important columns come first, because a narrow screen shows only the first ones.
    columns = [
        ("Candidate", [Cell(c.name, float(c.number), c.made_of) for c in candidates]),
        *(column for columns, _ in timed for column in columns),
        (heading, [_quality(c, leading) for c in candidates]),
        (gap, [_difference(candidates[0], c) for c in candidates]),
        (f"Size, {sizes.unit}", [Cell(sizes.text(c.size), c.size, size_of(c)) for c in candidates]),
        ("Front", [_front(found.get(c.number)) for c in candidates]),
        ("As its source", [_as_source(c) for c in candidates]),
        ("Doubts", [_doubts(c) for c in candidates]),
        *(column for _, columns in timed for column in columns),
        ("Samples/s", [_throughput(c) for c in candidates]),
        ("Calls", [Cell(count(len(c.latency)) if c.latency else NOTHING) for c in candidates]),
        (f"Load, {loads.unit}", [Cell(loads.text(c.load_ns), c.load_ns) for c in candidates]),
        (f"First, {firsts.unit}", [Cell(firsts.text(c.first_ns), c.first_ns) for c in candidates]),
        (
            f"Memory, {memory.unit}",
            [Cell(memory.text(c.peak_memory), c.peak_memory) for c in candidates],
        ),
        (f"Energy, {energies.unit}", [_energy(figure, energies) for figure in joules]),
        *((quantity(name).heading, [_counted(c, name) for c in candidates]) for name in COUNTERS),
        *(_board(name, candidates) for name in ("flash", "ram")),
        *((metric.heading, [_other(c, metric, leading) for c in candidates]) for metric in others),
        ("Same as first", [_agreement(candidates[0], c) for c in candidates]),
    ]
    # Columns without any known value are left out.
    columns = [column for column in columns if any(cell.text != NOTHING for cell in column[1])]
    unranked = {"Candidate", "Calls", gap, "Same as first", "Front", "As its source", "Doubts"}
    # what one sensor sees, another may not
    if len({energy_source(c.run) for c in candidates} - {""}) > 1:
        unranked.add(f"Energy, {energies.unit}")
    highest = {"Samples/s"}
    if leading is not None:
        highest |= {metric.heading for metric in leading.task.metrics if not metric.less_is_better}
        if not on_the_same_samples(candidates):
            unranked |= {metric.heading for metric in leading.task.metrics}
    cells = [
        column if name in unranked else _best_marked(column, name not in highest)
        for name, column in columns
    ]
    names = tuple(name for name, _ in columns)
    return Table(
        names,
        tuple(zip(*cells, strict=True)),
        sortable=True,
        minor=names[names.index("Doubts") + 1 :] if "Doubts" in names else (),
        caption=_explained(candidates, leading),
    )


def _counted(candidate: Candidate, counter: str) -> Cell:
    figure = counted_figure(candidate.run, counter)
    return Cell(counted(figure.value), figure.value)


def _board(name: str, candidates: Sequence[Candidate]) -> _Column:
    values = [board_figure(c.run, name).value for c in candidates]
    scale = Scale.of_sizes(values)
    return f"{quantity(name).heading}, {scale.unit}", [
        Cell(scale.text(value), value) for value in values
    ]


def _timed(name: str, candidates: Sequence[Candidate]) -> tuple[list[_Column], list[_Column]]:
    """Return the columns for one kind of time: first the most important ones, then the others."""
    of = [c if c.timed.name == name else None for c in candidates]
    times = Scale.of_times([c.latency.median if c and c.latency else None for c in of])
    trips = Scale.of_times([c.round_trip.median if c and c.round_trip else None for c in of])
    median, p90, mean = (quantity(f"{name}_{part}").heading for part in ("median", "p90", "mean"))
    round_trip = quantity("round_trip_median").heading
    return [
        (f"{median}, {times.unit}", [_percentile(c, 0.5, times) for c in of]),
        (f"{p90}, {times.unit}", [_percentile(c, 0.9, times) for c in of]),
        (f"{round_trip}, {trips.unit}", [_round_trip(c, trips) for c in of]),
    ], [(f"{mean}, {times.unit}", [_mean(c, times) for c in of])]


def _explained(candidates: Sequence[Candidate], leading: Quality | None) -> str:
    """Return the caption that explains the columns of the table."""
    parts = []
    kinds = [c.timed for c in candidates if c.latency is not None]
    for timed in {timed.name: timed for timed in kinds}.values():
        name = (
            "Times" if timed.name == LATENCY.name else f"{timed.title[0].upper()}{timed.title[1:]}"
        )
        clock = (
            ", on a target by its own clock"
            if timed.name == LATENCY.name and ON_TARGET in kinds
            else ""
        )
        parts.append(f"{name}: {timed.meaning}{clock}.")
    if any(c.round_trip is not None for c in candidates):
        parts.append(f"Round trip: {ROUND_TRIP.meaning}.")
    parts.append("Ranges are 95\u00a0% intervals.")
    if leading is not None:
        gap, unit = (
            difference(leading.metric).heading,
            " (in percentage points)" if leading.metric.kind == "share" else "",
        )
        same = leading.task.agreement(leading.evaluation, leading.evaluation) is not None
        compared = (
            f"{gap}{unit} and same as first (the same prediction, right or wrong) are"
            if same
            else f"{gap}{unit} is"
        )
        parts.append(
            f"{compared} against the first candidate; front is how surely no other beats it in "
            f"both median time and {in_sentence(leading.metric.title)};"
        )
    source = (
        "as its source tells whether a compiled model gives what the one gives that it was made "
        "from;"
    )
    parts.append(
        f"{source if leading else source.capitalize()} doubts are reasons to distrust the times. "
        "The best of a column is bold."
    )
    return " ".join(parts)


def _best_marked(column: list[Cell], lowest: bool) -> list[Cell]:
    known = [cell for cell in column if cell.value is not None]
    if len({cell.text for cell in known}) < 2:
        return column
    best = (min if lowest else max)(known, key=lambda cell: cell.value or 0.0)
    # Cells with the same text as the best one are also marked as best.
    return [replace(cell, best=cell.text == best.text) for cell in column]


def _percentile(candidate: Candidate | None, wanted: float, scale: Scale) -> Cell:
    if candidate is None or candidate.latency is None:
        return Cell(NOTHING)
    found = candidate.latency.percentile(wanted)
    if found.value is None or found.interval is None:
        return Cell(NOTHING, None, f"needs {found.needed:,} calls")
    return Cell(scale.text(found.value), found.value, scale.range(found.interval))


def _round_trip(candidate: Candidate | None, scale: Scale) -> Cell:
    if candidate is None or candidate.round_trip is None:
        return Cell(NOTHING)
    median = candidate.round_trip.median
    return Cell(
        scale.text(median), median, scale.range(candidate.round_trip.percentile(0.5).interval)
    )


def _mean(candidate: Candidate | None, scale: Scale) -> Cell:
    if candidate is None or candidate.latency is None:
        return Cell(NOTHING)
    latency = candidate.latency
    return Cell(scale.text(latency.mean), latency.mean, scale.range(latency.mean_interval))


def _energy(figure: Figure | None, scale: Scale) -> Cell:
    if figure is None or figure.value is None:
        return Cell(NOTHING, None, "" if figure is None else figure.reason)
    range_ = (
        f"{scale.text(figure.low)} to {scale.text(figure.high)}"
        if math.isfinite(figure.high)
        else ""
    )
    return Cell(scale.text(figure.value), figure.value, range_)


def _throughput(candidate: Candidate) -> Cell:
    interval = candidate.latency.mean_interval if candidate.latency is not None else None
    note = ""
    if (
        candidate.latency is not None
        and candidate.throughput is not None
        and interval is not None
        and interval[0] > 0
    ):
        # The throughput is inverse to the mean time, so its interval follows from that of the mean.
        slow, fast = (
            candidate.throughput * candidate.latency.mean / end for end in reversed(interval)
        )
        note = f"{digits(slow)} to {digits(fast)}"
    return Cell(digits(candidate.throughput), candidate.throughput, note)


def _doubts(candidate: Candidate) -> Cell:
    kinds = dict.fromkeys(doubt.kind for doubt in candidate.doubts)
    return Cell(", ".join(kinds) or ("none" if candidate.latency is not None else NOTHING))


def _quality(candidate: Candidate, leading: Quality | None) -> Cell:
    quality = candidate.quality
    if quality is None or leading is None or quality.metric.name != leading.metric.name:
        return Cell(NOTHING)
    return Cell(quality_text(candidate), quality.value, interval(quality.quantity, quality.figure))


def _other(candidate: Candidate, metric: QualityMetric, leading: Quality | None) -> Cell:
    quality = candidate.quality
    if quality is None or leading is None or quality.task.name != leading.task.name:
        return Cell(NOTHING)
    figure = quality.figure_of(metric)
    if figure.value is None or not math.isfinite(figure.value):
        return Cell(NOTHING)
    of = quantity(metric.name)
    return Cell(written(of, figure.value), figure.value, interval(of, figure))


def _difference(first: Candidate, other: Candidate) -> Cell:
    pair = pairing(first, other) if other is not first else None
    if pair is None or first.quality is None:
        return Cell(NOTHING)
    metric, gap = first.quality.metric, pair.gap
    note = f"{difference_text(metric, gap.low)} to {difference_text(metric, gap.high)}"
    return Cell(difference_text(metric, gap.value), gap.value, note)


def _agreement(first: Candidate, other: Candidate) -> Cell:
    pair = pairing(first, other) if other is not first else None
    agreement = None if pair is None else pair.agreement
    return Cell(share(agreement), agreement)


def _front(found: Standing | None) -> Cell:
    return Cell(NOTHING) if found is None else Cell(share(found.share, 0), found.share)


def _as_source(candidate: Candidate) -> Cell:
    return Cell(candidate.verdict or NOTHING, None, as_source(candidate))
