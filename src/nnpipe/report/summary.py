"""The first section: what came out, in a few figures and one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnpipe.report.candidate import Candidate
from nnpipe.report.comparison import on_the_same_samples, pairing
from nnpipe.report.conditions import doubts
from nnpipe.report.document import Block, Cell, Paragraph, Section, Table, Tile, Tiles
from nnpipe.report.overview import overview
from nnpipe.report.standing import Standing, standings
from nnpipe.report.verdict import as_source, departures, verdict
from nnpipe.report.wording import NOTHING, Scale, count, digits, duration, points, share, size

# What a telephone may leave out at first.
_MINOR = ("Load", "First", "Calls", "Mean", "Round trip", "Memory", "Top-", "Agreement")


def summary(candidates: Sequence[Candidate]) -> Section:
    """Make the section: for one candidate its figures, for several a comparison."""
    if len(candidates) == 1:
        return Section("Summary", _alone(candidates[0]))
    found = standings(candidates)
    blocks: list[Block] = [*verdict(candidates, found), *departures(candidates), *doubts(candidates)]
    return Section("Comparison", (*blocks, _table(candidates, found), *overview(candidates, found)))


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


def _table(candidates: Sequence[Candidate], found: Mapping[int, Standing]) -> Table:
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
        ("Front", [_front(found.get(c.number)) for c in candidates]),
        ("As its source", [_as_source(c) for c in candidates]),
        ("Doubts", [_doubts(c) for c in candidates]),
    ]
    # A column in which nothing is known would only make the rest harder to read.
    columns = [column for column in columns if any(cell.text != NOTHING for cell in column[1])]
    unranked = {"Candidate", "Calls", "Δ accuracy", "Agreement", "Front", "As its source", "Doubts"}
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
        minor=tuple(name for name, _ in columns if name.startswith(_MINOR)),
        caption="All candidates. Size is the model file's, first is the first inference, memory the process's at its "
        "peak; median, p90 and mean are times of the inference itself, on a target by its own clock (the median round "
        "trip over the line is told apart). Ranges are 95\u00a0% intervals. "
        "Δ accuracy (in percentage points) and agreement (the same class predicted, right or wrong) "
        "are against the first candidate; front is how surely no other beats it in both median time and accuracy; "
        "as its source tells whether a compiled model gives what the one that it was "
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


def _front(found: Standing | None) -> Cell:
    return Cell(NOTHING) if found is None else Cell(share(found.share, 0), found.share)


def _as_source(candidate: Candidate) -> Cell:
    return Cell(candidate.verdict or NOTHING, None, as_source(candidate))
