"""The first section: what came out, in a few figures and one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nnpipe.report.candidate import Candidate
from nnpipe.report.charts import Bar, Bars, Point, Scatter, Spread, Spreads
from nnpipe.report.comparison import on_the_same_samples, pairing
from nnpipe.report.conditions import doubts
from nnpipe.report.document import Block, Cell, Figure, Paragraph, Section, Table, Tile, Tiles
from nnpipe.report.verdict import as_source, departures, verdict
from nnpipe.report.wording import NOTHING, Scale, count, digits, duration, points, share, size

_BINS = 48
_DECADE = 8  # from this ratio on, a linear axis would squeeze the fast ones together


def summary(candidates: Sequence[Candidate]) -> Section:
    """Make the section: for one candidate its figures, for several a comparison."""
    if len(candidates) == 1:
        return Section("Summary", _alone(candidates[0]))
    blocks: list[Block] = [*verdict(candidates), *departures(candidates), *doubts(candidates), _table(candidates)]
    return Section("Comparison", (*blocks, *_figures(candidates)))


def _alone(candidate: Candidate) -> tuple[Block, ...]:
    tiles = []
    latency, quality = candidate.latency, candidate.quality
    if latency is not None:
        found = latency.percentile(0.9)
        note = f"p90 {duration(found.value)}" if found.value is not None else f"of {len(latency):,} calls"
        tiles.append(Tile("Median inference time", duration(latency.median), note))
        tiles.append(Tile("Throughput", f"{digits(candidate.throughput)} /s", "samples a second of inference"))
    if quality is not None:
        low, high = quality.accuracy_interval
        tiles.append(Tile("Accuracy", share(quality.accuracy), f"95\u00a0% interval {share(low)} to {share(high)}"))
    if candidate.size is not None:
        tiles.append(Tile("Model size", size(candidate.size)))
    if candidate.peak_memory is not None:
        tiles.append(Tile("Process memory", size(candidate.peak_memory), "peak"))
    if candidate.verdict:
        tiles.append(Tile("Agreement with source", candidate.verdict, as_source(candidate)))
    blocks: list[Block] = [Paragraph(f"{candidate.name}: {candidate.made_of}")]
    if tiles:
        blocks.append(Tiles(tuple(tiles)))
    return (*blocks, *departures([candidate]), *doubts([candidate]))


def _table(candidates: Sequence[Candidate]) -> Table:
    times = Scale.of_times([c.latency.median if c.latency else None for c in candidates])
    trips = Scale.of_times([c.round_trip.median if c.round_trip else None for c in candidates])
    loads = Scale.of_times([c.load_ns for c in candidates])
    firsts = Scale.of_times([c.first_ns for c in candidates])
    sizes = Scale.of_sizes([c.size for c in candidates])
    memory = Scale.of_sizes([c.peak_memory for c in candidates])
    columns = [
        ("Candidate", [Cell(c.name, float(c.number), c.made_of) for c in candidates]),
        (f"Size, {sizes.unit}", [Cell(sizes.text(c.size), c.size) for c in candidates]),
        (f"Load, {loads.unit}", [Cell(loads.text(c.load_ns), c.load_ns) for c in candidates]),
        (f"First, {firsts.unit}", [Cell(firsts.text(c.first_ns), c.first_ns) for c in candidates]),
        ("Calls", [Cell(count(len(c.latency)) if c.latency else NOTHING) for c in candidates]),
        (f"Median, {times.unit}", [_percentile(c, 0.5, times) for c in candidates]),
        (f"p90, {times.unit}", [_percentile(c, 0.9, times) for c in candidates]),
        (f"Mean, {times.unit}", [_mean(c, times) for c in candidates]),
        (f"Round trip, {trips.unit}", [_round_trip(c, trips) for c in candidates]),
        ("Samples/s", [_throughput(c) for c in candidates]),
        (f"Memory, {memory.unit}", [Cell(memory.text(c.peak_memory), c.peak_memory) for c in candidates]),
        ("Accuracy", [_accuracy(c) for c in candidates]),
        (f"Top-{_k(candidates)}", [_top(c) for c in candidates]),
        ("Δ accuracy", [_difference(candidates[0], c) for c in candidates]),
        ("Agreement", [_agreement(candidates[0], c) for c in candidates]),
        ("As its source", [_as_source(c) for c in candidates]),
        ("Doubts", [_doubts(c) for c in candidates]),
    ]
    # A column in which nothing is known would only make the rest harder to read.
    columns = [column for column in columns if any(cell.text != NOTHING for cell in column[1])]
    unranked = {"Candidate", "Calls", "Δ accuracy", "Agreement", "As its source", "Doubts"}
    if not on_the_same_samples(candidates):
        unranked |= {"Accuracy", f"Top-{_k(candidates)}"}
    lowest = ("Size", "Load", "First", "Median", "p90", "Mean", "Memory")
    cells = [
        _best_marked(column, name.startswith(lowest)) if name not in unranked else column for name, column in columns
    ]
    return Table(
        tuple(name for name, _ in columns),
        tuple(zip(*cells, strict=True)),
        sortable=True,
        caption="All candidates. Size is the model file's, first is the first inference, memory the process's at its "
        "peak; median, p90 and mean are times of the inference itself, on a target by its own clock (the median round "
        "trip over the line is told apart). Ranges are 95\u00a0% intervals. "
        "Δ accuracy (in percentage points) and agreement (the same class predicted, right or wrong) "
        "are against the first candidate; as its source tells whether a compiled model gives what the one that it was "
        "made from gives on the same samples; doubts are reasons to distrust the times. The best of a column is bold.",
    )


def _best_marked(column: list[Cell], lowest: bool) -> list[Cell]:
    known = [cell for cell in column if cell.value is not None]
    if len({cell.text for cell in known}) < 2:
        return column
    best = (min if lowest else max)(known, key=lambda cell: cell.value or 0.0)
    # Whoever reads the same figure as the best's is as good.
    return [replace(cell, best=cell.text == best.text) for cell in column]


def _percentile(candidate: Candidate, wanted: float, scale: Scale) -> Cell:
    if candidate.latency is None:
        return Cell(NOTHING)
    found = candidate.latency.percentile(wanted)
    if found.value is None or found.interval is None:
        return Cell(NOTHING, None, f"needs {found.needed:,} calls")
    return Cell(scale.text(found.value), found.value, _range(found.interval, scale))


def _range(interval: tuple[float, float] | None, scale: Scale) -> str:
    return "" if interval is None else f"{scale.text(interval[0])} to {scale.text(interval[1])}"


def _round_trip(candidate: Candidate, scale: Scale) -> Cell:
    if candidate.round_trip is None:
        return Cell(NOTHING)
    median = candidate.round_trip.median
    return Cell(scale.text(median), median, _range(candidate.round_trip.percentile(0.5).interval, scale))


def _mean(candidate: Candidate, scale: Scale) -> Cell:
    if candidate.latency is None:
        return Cell(NOTHING)
    latency = candidate.latency
    return Cell(scale.text(latency.mean), latency.mean, _range(latency.mean_interval, scale))


def _throughput(candidate: Candidate) -> Cell:
    interval = candidate.latency.mean_interval if candidate.latency is not None else None
    note = ""
    if candidate.latency is not None and candidate.throughput is not None and interval is not None and interval[0] > 0:
        # What is a second of inference is a second of calls: the interval is that of the mean, turned round.
        slow, fast = (candidate.throughput * candidate.latency.mean / end for end in reversed(interval))
        note = f"{digits(slow)} to {digits(fast)}"
    return Cell(digits(candidate.throughput), candidate.throughput, note)


def _doubts(candidate: Candidate) -> Cell:
    kinds = dict.fromkeys(doubt.kind for doubt in candidate.doubts)
    return Cell(", ".join(kinds) or ("none" if candidate.latency is not None else NOTHING))


def _accuracy(candidate: Candidate) -> Cell:
    if candidate.quality is None:
        return Cell(NOTHING)
    low, high = candidate.quality.accuracy_interval
    note = f"{share(low)[:-2]} to {share(high)}"
    return Cell(share(candidate.quality.accuracy), candidate.quality.accuracy, note)


def _top(candidate: Candidate) -> Cell:
    top = None if candidate.quality is None else candidate.quality.top_k_accuracy
    return Cell(share(top), top)


def _k(candidates: Sequence[Candidate]) -> int:
    return next((c.quality.k for c in candidates if c.quality is not None), 5)


def _difference(first: Candidate, other: Candidate) -> Cell:
    pair = pairing(first, other) if other is not first else None
    if pair is None:
        return Cell(NOTHING)
    note = f"{points(pair.low)} to {points(pair.high)}"
    return Cell(points(pair.difference), pair.difference, note)


def _agreement(first: Candidate, other: Candidate) -> Cell:
    pair = pairing(first, other) if other is not first else None
    return Cell(NOTHING) if pair is None else Cell(share(pair.agreement), pair.agreement)


def _as_source(candidate: Candidate) -> Cell:
    return Cell(candidate.verdict or NOTHING, None, as_source(candidate))


def _figures(candidates: Sequence[Candidate]) -> list[Block]:
    found = [_spreads(candidates), _scatter(candidates), _sizes(candidates)]
    return [figure for figure in found if figure is not None]


def _spreads(candidates: Sequence[Candidate]) -> Figure | None:
    timed = [(c, c.latency) for c in candidates if c.latency is not None]
    if not timed:
        return None
    scale = Scale.of_times([latency.median for _, latency in timed])
    ends = [(latency.quantile(0.005), latency.quantile(0.99)) for _, latency in timed]
    least, greatest = min(low for low, _ in ends), max(high for _, high in ends)
    log = bool(least > 0 and greatest / least > _DECADE)
    rows = []
    for (candidate, latency), (low, high) in zip(timed, ends, strict=True):
        high = max(high, low * 1.001, low + 1)
        edges = np.geomspace(low, high, _BINS + 1) if log else np.linspace(low, high, _BINS + 1)
        counts, _ = np.histogram(latency.ordered, edges)
        quartiles = (latency.quantile(0.25), latency.median, latency.quantile(0.75))
        lower, middle, upper = (value / scale.divisor for value in quartiles)
        rows.append(
            Spread(
                candidate.name,
                edges / scale.divisor,
                counts / max(1, counts.max()),
                (lower, middle, upper),
                candidate.number,
            )
        )
    return Figure(
        Spreads(f"inference time, {scale.unit}", tuple(rows), log),
        "inference-times",
        "Distribution of inference times up to p99: the point is the median, the bar holds the middle half",
        "Distributions of inference times. Medians: "
        + ", ".join(f"{candidate.name} {duration(latency.median)}" for candidate, latency in timed)
        + ".",
    )


def _scatter(candidates: Sequence[Candidate]) -> Figure | None:
    chosen = [(c, c.latency, c.quality) for c in candidates if c.latency is not None and c.quality is not None]
    if len(chosen) < 2:
        return None
    medians = [latency.median for _, latency, _ in chosen]
    scale = Scale.of_times(medians)
    points = []
    for candidate, latency, quality in chosen:
        low, high = quality.accuracy_interval
        points.append(
            Point(
                candidate.name,
                latency.median / scale.divisor,
                100 * quality.accuracy,
                (latency.quantile(0.25) / scale.divisor, latency.quantile(0.75) / scale.divisor),
                (100 * low, 100 * high),
                candidate.number,
            )
        )
    return Figure(
        Scatter(
            f"median inference time, {scale.unit}",
            "accuracy, %",
            tuple(points),
            bool(min(medians) > 0 and max(medians) / min(medians) > _DECADE),
        ),
        "accuracy-against-time",
        "Accuracy against inference time; up and to the left is better. "
        "Bars: 95\u00a0% interval of the accuracy, and the middle half of the times",
        "Accuracy and median inference time: "
        + ", ".join(f"{c.name} {share(q.accuracy)} in {duration(s.median)}" for c, s, q in chosen)
        + ".",
    )


def _sizes(candidates: Sequence[Candidate]) -> Figure | None:
    sized = [(c, c.size) for c in candidates if c.size is not None]
    if len(sized) < 2:
        return None
    scale = Scale.of_sizes([max(value for _, value in sized)])
    bars = tuple(Bar(c.name, value / scale.divisor, size(value), c.number) for c, value in sized)
    return Figure(
        Bars(f"model size, {scale.unit}", bars),
        "model-sizes",
        "Size of the model file",
        "Sizes of the model files: " + ", ".join(f"{c.name} {size(value)}" for c, value in sized) + ".",
    )
