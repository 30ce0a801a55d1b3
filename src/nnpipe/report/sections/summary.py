"""The first section of a report: the most important figures, and a table that compares the
candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from nnpipe.core.quality_metric import QualityMetric
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.quantities import (
    Quantity,
    difference_of,
    find_quantity,
    format_in_sentence,
    quality_of,
)
from nnpipe.measuring.run_figures import (
    BOARD_FIGURES,
    COUNTERS,
    compute_count_figure,
    compute_energy_figure,
    describe_energy_source,
    get_board_figure,
)
from nnpipe.measuring.series import LATENCY, ON_TARGET, ROUND_TRIP
from nnpipe.report.document import Block, Cell, Paragraph, Section, Table, Tile, Tiles
from nnpipe.report.formatting import (
    NOTHING,
    Scale,
    format_abbreviated_count,
    format_count,
    format_number,
    format_share,
)
from nnpipe.report.inputs.candidate import (
    Candidate,
    compare_candidate_quality,
    find_leading_quality,
    format_quality,
    have_same_samples,
)
from nnpipe.report.inputs.pareto_front import ParetoStanding, compute_pareto_standings
from nnpipe.report.inputs.quality import Quality
from nnpipe.report.quantity_text import (
    format_figure_interval,
    format_metric_difference,
    format_quantity,
    format_warning_kinds,
)
from nnpipe.report.sections.overview import build_overview
from nnpipe.report.sections.validity_warnings import build_warning_blocks
from nnpipe.report.sections.verdict import (
    build_departure_blocks,
    build_verdict_blocks,
    describe_size,
    describe_source_agreement,
)
from nnpipe.report.writers.json_figures import collect_cost_figures


def iter_headline_figures(candidate: Candidate) -> Iterator[tuple[Quantity, Figure]]:
    """Yield the figures of speed, quality and cost that are known, or whose absence has a
    reason.
    """
    found, timed, judged = collect_cost_figures(candidate), candidate.timed.name, candidate.quality
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
            yield find_quantity(name), known


def build_headline_table(candidate: Candidate) -> Table:
    """Return a table of the most important figures, with the agreement and the doubts below.

    Metrics of quality behind the first one have no interval here, since these may take long.
    """
    rows, judged = [], candidate.quality
    for q, known in iter_headline_figures(candidate):
        text = format_figure_interval(q, known) or known.reason
        if q.name == "size":
            text = text or describe_size(candidate)
        rows.append((q.title, Cell(format_quantity(q, known.value), known.value), text))
        if judged is None or q.name != judged.metric.name:
            continue
        for metric in judged.task.metrics[1:]:
            if not math.isnan(value := metric.compute(judged.evaluation)):
                why = judged.evaluation.describe_nonfinite() if math.isinf(value) else ""
                rows.append(
                    (metric.title, Cell(format_quantity(quality_of(metric), value), value), why)
                )
    if candidate.verdict:
        rows.append(
            (
                "Agreement with the source",
                Cell(candidate.verdict),
                describe_source_agreement(candidate),
            )
        )
    if candidate.latency is not None:
        rows.append(("Doubts", Cell(format_warning_kinds(candidate.doubts)), ""))
    calls = (
        f"{format_count(len(candidate.latency))} timed calls"
        if candidate.latency is not None
        else NOTHING
    )
    return Table(("Figure", "Value", "95\u00a0% interval"), tuple(rows), caption=calls)


_Column = tuple[str, list[Cell]]


def build_summary_section(candidates: Sequence[Candidate], *, judged: bool = False) -> Section:
    """Return the section: the figures of a single candidate, or a comparison of several.

    If the candidates are ``judged`` already, as by a sweep, there is no second verdict, because it
    might differ.
    """
    if len(candidates) == 1:
        return Section("Summary", _build_single_blocks(candidates[0]))
    found = {} if judged else compute_pareto_standings(candidates)
    blocks: list[Block] = [
        *([] if judged else build_verdict_blocks(candidates, found)),
        *build_departure_blocks(candidates),
        *build_warning_blocks(candidates),
    ]
    return Section(
        "Comparison",
        (
            *blocks,
            _build_table(candidates, found),
            *build_overview(candidates, found, judged=judged),
        ),
    )


def _build_single_blocks(candidate: Candidate) -> tuple[Block, ...]:
    tiles = []
    for each, known in iter_headline_figures(candidate):
        range_ = format_figure_interval(each, known)
        tiles.append(
            Tile(
                each.title,
                format_quantity(each, known.value),
                f"95\u00a0% interval {range_}" if range_ else known.reason,
            )
        )
    if candidate.verdict:
        tiles.append(
            Tile(
                "Agreement with the source", candidate.verdict, describe_source_agreement(candidate)
            )
        )
    if candidate.latency is not None:
        tiles.append(
            Tile(
                "Doubts", format_warning_kinds(candidate.doubts), "reasons to distrust the figures"
            )
        )
    blocks: list[Block] = [Paragraph(f"{candidate.name}: {candidate.made_of}")]
    if tiles:
        blocks.append(Tiles(tuple(tiles)))
    return (*blocks, *build_departure_blocks([candidate]), *build_warning_blocks([candidate]))


def _build_table(candidates: Sequence[Candidate], found: Mapping[int, ParetoStanding]) -> Table:
    loads = Scale.from_times([c.load_ns for c in candidates])
    firsts = Scale.from_times([c.first_ns for c in candidates])
    sizes = Scale.from_sizes([c.size for c in candidates])
    memory = Scale.from_sizes([c.peak_memory for c in candidates])
    joules = [compute_energy_figure(c.run) for c in candidates]
    energies = Scale.from_energies([figure.value if figure else None for figure in joules])
    leading = find_leading_quality(candidates)
    heading, gap = (
        ("", "")
        if leading is None
        else (leading.metric.heading, difference_of(leading.metric).heading)
    )
    others = () if leading is None else leading.task.metrics[1:]
    timed = [
        _build_time_columns(name, candidates)
        for name in dict.fromkeys(c.timed.name for c in candidates)
    ]
    # The most important columns come first, because a narrow screen shows only the first ones.
    columns = [
        ("Candidate", [Cell(c.name, float(c.number), c.made_of) for c in candidates]),
        *(column for columns, _ in timed for column in columns),
        (heading, [_format_quality_cell(c, leading) for c in candidates]),
        (gap, [_format_difference_cell(candidates[0], c) for c in candidates]),
        (
            f"Size, {sizes.unit}",
            [Cell(sizes.text(c.size), c.size, describe_size(c)) for c in candidates],
        ),
        ("Front", [_format_front_cell(found.get(c.number)) for c in candidates]),
        ("As its source", [_as_source(c) for c in candidates]),
        ("Doubts", [_format_warnings_cell(c) for c in candidates]),
        *(column for _, columns in timed for column in columns),
        ("Samples/s", [_format_throughput_cell(c) for c in candidates]),
        (
            "Calls",
            [Cell(format_count(len(c.latency)) if c.latency else NOTHING) for c in candidates],
        ),
        (f"Load, {loads.unit}", [Cell(loads.text(c.load_ns), c.load_ns) for c in candidates]),
        (f"First, {firsts.unit}", [Cell(firsts.text(c.first_ns), c.first_ns) for c in candidates]),
        (
            f"Memory, {memory.unit}",
            [Cell(memory.text(c.peak_memory), c.peak_memory) for c in candidates],
        ),
        (f"Energy, {energies.unit}", [_format_energy_cell(figure, energies) for figure in joules]),
        *(
            (find_quantity(name).heading, [_format_counter_cell(c, name) for c in candidates])
            for name in COUNTERS
        ),
        *(_build_board_column(name, candidates) for name in ("flash", "ram")),
        *(
            (metric.heading, [_format_metric_cell(c, metric, leading) for c in candidates])
            for metric in others
        ),
        ("Same as first", [_format_agreement_cell(candidates[0], c) for c in candidates]),
    ]
    # Columns without any known value are left out.
    columns = [column for column in columns if any(cell.text != NOTHING for cell in column[1])]
    unranked = {"Candidate", "Calls", gap, "Same as first", "Front", "As its source", "Doubts"}
    # what one sensor sees, another may not
    if len({describe_energy_source(c.run) for c in candidates} - {""}) > 1:
        unranked.add(f"Energy, {energies.unit}")
    highest = {"Samples/s"}
    if leading is not None:
        highest |= {metric.heading for metric in leading.task.metrics if not metric.less_is_better}
        if not have_same_samples(candidates):
            unranked |= {metric.heading for metric in leading.task.metrics}
    cells = [
        column if name in unranked else _mark_best(column, name not in highest)
        for name, column in columns
    ]
    names = tuple(name for name, _ in columns)
    return Table(
        names,
        tuple(zip(*cells, strict=True)),
        sortable=True,
        minor=names[names.index("Doubts") + 1 :] if "Doubts" in names else (),
        caption=_format_caption(candidates, leading),
    )


def _format_counter_cell(candidate: Candidate, counter: str) -> Cell:
    figure = compute_count_figure(candidate.run, counter)
    return Cell(format_abbreviated_count(figure.value), figure.value)


def _build_board_column(name: str, candidates: Sequence[Candidate]) -> _Column:
    values = [get_board_figure(c.run, name).value for c in candidates]
    scale = Scale.from_sizes(values)
    return f"{find_quantity(name).heading}, {scale.unit}", [
        Cell(scale.text(value), value) for value in values
    ]


def _build_time_columns(
    name: str, candidates: Sequence[Candidate]
) -> tuple[list[_Column], list[_Column]]:
    """Return the columns for one kind of time: first the most important ones, then the others."""
    of = [c if c.timed.name == name else None for c in candidates]
    times = Scale.from_times([c.latency.median if c and c.latency else None for c in of])
    trips = Scale.from_times([c.round_trip.median if c and c.round_trip else None for c in of])
    median, p90, mean = (
        find_quantity(f"{name}_{part}").heading for part in ("median", "p90", "mean")
    )
    round_trip = find_quantity("round_trip_median").heading
    return [
        (f"{median}, {times.unit}", [_format_percentile_cell(c, 0.5, times) for c in of]),
        (f"{p90}, {times.unit}", [_format_percentile_cell(c, 0.9, times) for c in of]),
        (f"{round_trip}, {trips.unit}", [_format_round_trip_cell(c, trips) for c in of]),
    ], [(f"{mean}, {times.unit}", [_format_mean_cell(c, times) for c in of])]


def _format_caption(candidates: Sequence[Candidate], leading: Quality | None) -> str:
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
            difference_of(leading.metric).heading,
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
            f"both median time and {format_in_sentence(leading.metric.title)};"
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


def _mark_best(column: list[Cell], lowest: bool) -> list[Cell]:
    known = [cell for cell in column if cell.value is not None]
    if len({cell.text for cell in known}) < 2:
        return column
    best = (min if lowest else max)(known, key=lambda cell: cell.value or 0.0)
    # Cells with the same text as the best one are also marked as best.
    return [replace(cell, best=cell.text == best.text) for cell in column]


def _format_percentile_cell(candidate: Candidate | None, wanted: float, scale: Scale) -> Cell:
    if candidate is None or candidate.latency is None:
        return Cell(NOTHING)
    found = candidate.latency.percentile(wanted)
    if found.value is None or found.interval is None:
        return Cell(NOTHING, None, f"needs {found.needed:,} calls")
    return Cell(scale.text(found.value), found.value, scale.format_interval(found.interval))


def _format_round_trip_cell(candidate: Candidate | None, scale: Scale) -> Cell:
    if candidate is None or candidate.round_trip is None:
        return Cell(NOTHING)
    median = candidate.round_trip.median
    return Cell(
        scale.text(median),
        median,
        scale.format_interval(candidate.round_trip.percentile(0.5).interval),
    )


def _format_mean_cell(candidate: Candidate | None, scale: Scale) -> Cell:
    if candidate is None or candidate.latency is None:
        return Cell(NOTHING)
    latency = candidate.latency
    return Cell(
        scale.text(latency.mean), latency.mean, scale.format_interval(latency.mean_interval)
    )


def _format_energy_cell(figure: Figure | None, scale: Scale) -> Cell:
    if figure is None or figure.value is None:
        return Cell(NOTHING, None, "" if figure is None else figure.reason)
    range_ = (
        f"{scale.text(figure.low)} to {scale.text(figure.high)}"
        if math.isfinite(figure.high)
        else ""
    )
    return Cell(scale.text(figure.value), figure.value, range_)


def _format_throughput_cell(candidate: Candidate) -> Cell:
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
        note = f"{format_number(slow)} to {format_number(fast)}"
    return Cell(format_number(candidate.throughput), candidate.throughput, note)


def _format_warnings_cell(candidate: Candidate) -> Cell:
    kinds = dict.fromkeys(doubt.kind for doubt in candidate.doubts)
    return Cell(", ".join(kinds) or ("none" if candidate.latency is not None else NOTHING))


def _format_quality_cell(candidate: Candidate, leading: Quality | None) -> Cell:
    quality = candidate.quality
    if quality is None or leading is None or quality.metric.name != leading.metric.name:
        return Cell(NOTHING)
    return Cell(
        format_quality(candidate),
        quality.value,
        format_figure_interval(quality.quantity, quality.figure),
    )


def _format_metric_cell(
    candidate: Candidate, metric: QualityMetric, leading: Quality | None
) -> Cell:
    quality = candidate.quality
    if quality is None or leading is None or quality.task.name != leading.task.name:
        return Cell(NOTHING)
    figure = quality.get_figure(metric)
    if figure.value is None or not math.isfinite(figure.value):
        return Cell(NOTHING)
    of = find_quantity(metric.name)
    return Cell(format_quantity(of, figure.value), figure.value, format_figure_interval(of, figure))


def _format_difference_cell(first: Candidate, other: Candidate) -> Cell:
    pair = compare_candidate_quality(first, other) if other is not first else None
    if pair is None or first.quality is None:
        return Cell(NOTHING)
    metric, gap = first.quality.metric, pair.gap
    note = (
        f"{format_metric_difference(metric, gap.low)} to "
        f"{format_metric_difference(metric, gap.high)}"
    )
    return Cell(format_metric_difference(metric, gap.value), gap.value, note)


def _format_agreement_cell(first: Candidate, other: Candidate) -> Cell:
    pair = compare_candidate_quality(first, other) if other is not first else None
    agreement = None if pair is None else pair.agreement
    return Cell(format_share(agreement), agreement)


def _format_front_cell(found: ParetoStanding | None) -> Cell:
    return Cell(NOTHING) if found is None else Cell(format_share(found.share, 0), found.share)


def _as_source(candidate: Candidate) -> Cell:
    return Cell(candidate.verdict or NOTHING, None, describe_source_agreement(candidate))
