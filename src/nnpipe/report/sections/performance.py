"""The performance section: inference times, load, and the use of CPU, memory and GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.core.errors import ConfigError
from nnpipe.measuring.early_stopping import EarlyStoppingEstimate, compute_early_stopping_estimate
from nnpipe.measuring.max_rate import LatencyBound, describe
from nnpipe.measuring.punctuality import LATE_NS, Punctuality
from nnpipe.measuring.quantities import find_quantity
from nnpipe.measuring.run_figures import (
    COUNTERS,
    compute_count_figure,
    compute_energy_figure,
    describe_energy_source,
    get_board_bytes,
    get_counter,
)
from nnpipe.measuring.series import Series
from nnpipe.measuring.statistics import Percentile, Summary
from nnpipe.report.charts import Areas, Histogram, Lines
from nnpipe.report.document import Block, Cell, Paragraph, Plot, Section, Table
from nnpipe.report.drawing.axes import compute_column_means, reduce_to_columns
from nnpipe.report.formatting import (
    NOTHING,
    Scale,
    clean,
    format_abbreviated_count,
    format_count,
    format_duration,
    format_number,
    format_share,
)
from nnpipe.report.inputs.candidate import TIMES, Candidate, select_known_values
from nnpipe.report.quantity_text import format_figure, format_warning_kinds
from nnpipe.report.sections.pace import build_pace_blocks
from nnpipe.report.sections.validity_warnings import MOST_OPEN


def build_energy_blocks(candidate: Candidate) -> list[Block]:
    """Return a paragraph on the energy, or on why it is not known; an empty list if it was not
    asked for.
    """
    found = compute_energy_figure(candidate.run)
    if found is None:
        return []
    if found.value is None:
        return [Paragraph(f"Energy is not known: {clean(found.reason, 500)}.", "note")]
    series = candidate.run.series["energy"]
    seconds = float(np.sum(series["duration_ns"])) / 1e9
    watts = float(np.sum(series["joules"])) / seconds if seconds > 0 else 0.0
    idle = (
        ""
        if "idle power" in describe_energy_source(candidate.run)
        else "; the idle power is included"
    )
    return [
        Paragraph(
            f"An inference takes {format_figure(find_quantity('energy'), found)}, as measured by "
            f"{clean(describe_energy_source(candidate.run), 400)}{idle}. "
            f"{format_count(found.count)} calls in runs of their own took "
            f"{format_duration(1e9 * seconds)}, at {format_number(watts)} W in all."
        )
    ]


_VERDICTS = {
    "kept": "kept, at 99\u00a0% confidence",
    "broken": "broken",
    "open": "not shown: too few queries",
}


def build_load_blocks(candidate: Candidate) -> list[Block]:
    """Return a table of the load and its schedule, and the audits; an empty list without a load
    and audits.
    """
    load = candidate.run.timing.get("load")
    blocks = (
        [_build_load_table(candidate, load)]
        if isinstance(load, Mapping) and len(candidate.inference)
        else []
    )
    return [*blocks, *_build_audit_blocks(candidate)]


def _build_load_table(candidate: Candidate, load: Mapping[str, Any]) -> Block:
    inference = candidate.inference
    busy_ns = _read_positive_number(load.get("busy_ns"))
    rate = len(inference) / (busy_ns / 1e9) if busy_ns else None
    rows = [
        ("scenario", clean(load.get("scenario", ""), 40)),
        ("samples in a query", _count_text(load.get("samples_per_query"))),
        ("queries a second asked for", format_number(_read_positive_number(load.get("rate")), 4)),
        ("queries a second answered", format_number(rate, 4)),
        ("ended by", clean(load.get("ended", ""), 40)),
        ("due and not sent when it ended", _count_text(load.get("unanswered"))),
    ]
    punctuality = Punctuality.from_series(inference)
    if punctuality is not None:
        rows += [
            ("had to wait for others", format_share(punctuality.queued / punctuality.queries, 1)),
            (
                f"sent more than {format_duration(LATE_NS)} late",
                f"{format_count(punctuality.late)} "
                f"({format_share(punctuality.late / punctuality.queries, 1)})",
            ),
            (
                "lateness: median, p99, worst",
                ", ".join(map(format_duration, _list_lateness(punctuality))),
            ),
        ]
    rows += _format_latency_bound(candidate, load)
    cells = tuple((name, Cell(value, 0.0)) for name, value in rows if value not in ("", "–"))
    caption = "The load; a latency lasts from when its query was " + (
        "due" if punctuality is not None else "sent"
    )
    if load.get("scenario") == "offline":
        caption = "The load; a time lasts from the answer before"
    return Table(("Quantity", "Value"), cells, caption=caption)


def _list_lateness(found: Punctuality) -> tuple[float, ...]:
    return found.median_ns, found.p99_ns, found.worst_ns


def _format_latency_bound(candidate: Candidate, load: Mapping[str, Any]) -> list[tuple[str, str]]:
    search = load.get("search")
    found = (
        [("highest rate", clean(search.get("reason", ""), 200))]
        if isinstance(search, Mapping)
        else []
    )
    text = load.get("max_latency")
    if not isinstance(text, str):
        return found
    try:
        bound = LatencyBound.parse(text[:40])
    except ConfigError:
        return found
    verdict = _VERDICTS[bound.evaluate(candidate.inference["latency_ns"])]
    return [*found, (clean(describe(bound), 60), verdict)]


def _build_audit_blocks(candidate: Candidate) -> list[Block]:
    found: list[Block] = []
    for name, audit in candidate.run.audits.items():
        if not isinstance(audit, Mapping):
            continue
        verdict, reason = clean(audit.get("verdict", ""), 40), clean(audit.get("reason", ""), 300)
        text = f"Audit of {clean(name, 40)}: {verdict}. {reason}."
        found.append(Paragraph(text, "warning" if verdict == "failed" else "note"))
    return found


def _read_positive_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e18:
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def _count_text(value: object) -> str:
    return (
        format_count(value)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**15
        else ""
    )


_BINS = 60
_FAR = 5  # ratio of the slowest call to the median from which the axis is logarithmic
_CPU = {"cpu_percent": "process", "machine_cpu_percent": "machine"}
_WHOLE = {"process": " (100\u00a0% is one core)", "machine": " (100\u00a0% is all cores)"}
_CURVES: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("cpu", "CPU", _CPU),
    ("process-memory", "Memory of the process", {"process_bytes": ""}),
    ("machine-memory", "Memory of the machine", {"memory_bytes": ""}),
    ("gpu", "GPU", {"gpu_percent": ""}),
    ("gpu-memory", "Memory of the GPU", {"gpu_bytes": ""}),
)


def build_performance_section(candidates: Sequence[Candidate]) -> Section:
    """Return the section; for a candidate without timed calls it holds a note that says so."""
    if len(candidates) == 1:
        return Section("Performance", _build_blocks(candidates[0], ""))
    folded = len(candidates) > MOST_OPEN
    parts = [
        Section(c.name, _build_blocks(c, f"{c.number + 1}-"), folded, _format_note(c))
        for c in candidates
    ]
    return Section("Performance", tuple(parts))


def _format_note(candidate: Candidate) -> str:
    if candidate.latency is None:
        return ""
    doubts = format_warning_kinds(candidate.doubts)
    return f"median {format_duration(candidate.latency.median)}" + (
        f"; doubts: {doubts}" if candidate.doubts else ""
    )


def _build_blocks(candidate: Candidate, prefix: str) -> tuple[Block, ...]:
    if candidate.latency is None:
        return (Paragraph("No inference was timed in this run.", "note"),)
    scale = Scale.from_times([candidate.latency.median])
    circumstances = _build_circumstances_table(candidate)
    blocks: list[Block] = [
        *_build_statistics_tables(candidate, candidate.latency, scale),
        *build_load_blocks(candidate),
        *build_pace_blocks(candidate),
        *build_energy_blocks(candidate),
        circumstances,
        _plot_over_time(candidate, candidate.latency, scale, prefix),
        _plot_distribution(candidate, candidate.latency, scale, prefix),
    ]
    if all(name in candidate.inference for name in TIMES):
        blocks.insert(blocks.index(circumstances) + 1, _build_shares_table(candidate))
        blocks.append(_plot_shares(candidate, scale, prefix))
    return (*blocks, *_build_resource_blocks(candidate, prefix))


def _build_statistics_tables(
    candidate: Candidate, latency: Summary, scale: Scale
) -> Iterator[Table]:
    effective = latency.percentile(0.5).effective
    caption = f"{len(latency):,} timed calls"
    if effective < 0.5 * len(latency):
        caption += f"; for the median they tell as much as {effective:,.0f} independent ones"
    yield _build_times_table(candidate.timed.title, latency, scale, caption)
    if candidate.steady is not None:
        left = f"Without the first {candidate.warm_up:,} calls, which look like warm-up"
        yield _build_times_table(
            candidate.timed.title,
            candidate.steady,
            scale,
            f"{left}: {len(candidate.steady):,} calls",
        )


def _build_times_table(title: str, latency: Summary, scale: Scale, caption: str) -> Table:
    rows = [_format_percentile_row(found, scale) for found in latency.percentiles]
    rows += [
        *(
            _format_bound_row(compute_early_stopping_estimate(latency.ordered, share), scale)
            for share in (0.9, 0.99)
        ),
        (
            "mean",
            Cell(scale.text(latency.mean), latency.mean),
            scale.format_interval(latency.mean_interval),
        ),
        ("standard deviation", Cell(scale.text(latency.deviation), latency.deviation), ""),
        ("fastest", Cell(scale.text(latency.least), latency.least), ""),
        ("slowest", Cell(scale.text(latency.greatest), latency.greatest), ""),
    ]
    return Table(
        (_format_capitalized(title), scale.unit, "95\u00a0% interval"), tuple(rows), caption=caption
    )


def _format_percentile_row(found: Percentile, scale: Scale) -> tuple[str, Cell, str]:
    if found.value is None or found.interval is None:
        return found.name, Cell(NOTHING), f"needs {found.needed:,} calls"
    return (
        found.name,
        Cell(scale.text(found.value), found.value),
        scale.format_interval(found.interval),
    )


def _format_bound_row(found: EarlyStoppingEstimate, scale: Scale) -> tuple[str, Cell, str]:
    name = f"p{100 * found.share:g} is at most"
    if found.value is None:
        return name, Cell(NOTHING), f"needs {found.needed:,} calls"
    return (
        name,
        Cell(scale.text(found.value), found.value),
        "MLPerf's early stopping, 99\u00a0% sure",
    )


def _build_circumstances_table(candidate: Candidate) -> Table:
    timing = candidate.run.timing
    samples = (
        int(np.sum(candidate.inference["samples"])) if "samples" in candidate.inference else None
    )
    rows = (
        ("import of the runtime's packages", format_duration(candidate.import_ns)),
        ("load time", format_duration(candidate.load_ns)),
        ("first inference", format_duration(candidate.first_ns)),
        (
            "round trip, median",
            format_duration(candidate.round_trip.median if candidate.round_trip else None),
        ),
        ("warm-up calls", _format_integer(timing.get("warmup"))),
        ("samples in a call", _format_integer(timing.get("batch_size"))),
        ("samples in all", format_count(samples)),
        ("samples a second of inference", format_number(candidate.throughput, 4)),
    )
    # The value only marks the column as one of numbers; this table is not sorted.
    cells = tuple((name, Cell(value, 0.0)) for name, value in rows if value != NOTHING)
    return Table(("Quantity", "Value"), cells, caption="Before and around the timed calls")


def _format_capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _format_integer(value: object) -> str:
    return format_count(value) if isinstance(value, int) and abs(value) < 10**15 else NOTHING


def _plot_over_time(candidate: Candidate, latency: Summary, scale: Scale, prefix: str) -> Plot:
    start = candidate.inference["start_ns"]
    clock = Scale.from_times([float(np.ptp(start))])
    line = reduce_to_columns("", start / clock.divisor, candidate.times / scale.divisor)
    far = latency.greatest > _FAR * latency.median > 0 and latency.least > 0
    title = candidate.timed.title
    caption = f"{_format_capitalized(title)} over the measurement"
    if line.low is not None:
        caption += ": median (line), and from fastest to slowest (band)"
    return Plot(
        Lines(f"time, {clock.unit}", f"{title}, {scale.unit}", (line,), log_y=bool(far)),
        f"{prefix}inference-time",
        caption,
        f"{_format_capitalized(title)} of {candidate.name} over "
        f"{format_duration(float(np.ptp(start)))}: median {format_duration(latency.median)}, from "
        f"{format_duration(latency.least)} to {format_duration(latency.greatest)}.",
    )


def _plot_distribution(candidate: Candidate, latency: Summary, scale: Scale, prefix: str) -> Plot:
    low, high = latency.least, _compute_upper_edge(latency)
    beyond = len(latency) - int(np.searchsorted(latency.ordered, high, "right"))
    shown = latency.ordered[: len(latency) - beyond]
    counts, edges = np.histogram(
        shown, _compute_bin_count(len(shown)), (low, max(high, low * (1 + 1e-6), low + 1))
    )
    caption = f"How often each {candidate.timed.title} occurred"
    if beyond:
        caption += f"; of {len(latency):,} calls {beyond:,} were slower than what is shown"
    marks = tuple(
        (found.name, found.value / scale.divisor)
        for found in latency.percentiles
        if found.value is not None and found.value <= edges[-1]
    )
    return Plot(
        Histogram(
            f"{candidate.timed.title}, {scale.unit}", "calls", edges / scale.divisor, counts, marks
        ),
        f"{prefix}inference-time-distribution",
        caption,
        f"Histogram of the {candidate.timed.title} of {candidate.name}: half of the calls took "
        f"between {format_duration(latency.quantile(0.25))} and "
        f"{format_duration(latency.quantile(0.75))}.",
    )


def _compute_upper_edge(latency: Summary) -> float:
    """Return the upper end of a histogram, which is lowered so that a few slow calls do not
    flatten the rest.
    """
    lower, upper, most = (latency.quantile(part) for part in (0.25, 0.75, 0.9))
    return min(latency.greatest, max(most, upper + 6 * (upper - lower)))


def _compute_bin_count(samples: int) -> int:
    return int(min(_BINS, max(5, np.sqrt(samples))))


def _build_shares_table(candidate: Candidate) -> Table:
    medians = {name: float(np.median(candidate.inference[name])) for name in TIMES}
    total = sum(float(np.mean(candidate.inference[name])) for name in TIMES) or 1.0
    scale = Scale.from_times(medians.values())
    rows = []
    for name, what in zip(TIMES, ("host", "wire", "target"), strict=True):
        values = candidate.inference[name]
        mean = float(np.mean(values))
        rows.append(
            (
                what,
                Cell(scale.text(medians[name])),
                Cell(scale.text(mean)),
                Cell(format_share(mean / total, 1)),
            )
        )
    header = ("Where the time goes", f"median, {scale.unit}", f"mean, {scale.unit}", "share")
    return Table(header, tuple(rows), caption="Time on the host, on the wire, and on the target")


def _plot_shares(candidate: Candidate, scale: Scale, prefix: str) -> Plot:
    layers = tuple(candidate.inference[name] / scale.divisor for name in reversed(TIMES))
    start = candidate.inference["start_ns"]
    clock = Scale.from_times([float(np.ptp(start))])
    x, means = compute_column_means(start / clock.divisor, layers)
    labels = ("target", "wire", "host")
    return Plot(
        Areas(
            f"time, {clock.unit}",
            f"time of a call, {scale.unit}",
            x,
            tuple(zip(labels, means, strict=True)),
        ),
        f"{prefix}host-wire-target",
        "What each call spent on the target, on the wire and on the host",
        f"Stacked times of {candidate.name}: "
        + ", ".join(
            f"{label} {np.mean(mean):.3g} {scale.unit}"
            for label, mean in zip(labels, means, strict=True)
        )
        + " on average.",
    )


def _build_resource_blocks(candidate: Candidate, prefix: str) -> list[Block]:
    if candidate.target is None:
        return _build_machine_blocks(candidate, candidate.resources, prefix, "")
    target = _build_machine_blocks(
        candidate, candidate.target, f"{prefix}target-", ", on the target"
    )
    return [
        *target,
        *_build_machine_blocks(
            candidate, candidate.resources, prefix, ", on the host, where the model does not run"
        ),
    ]


def _build_machine_blocks(
    candidate: Candidate, resources: Series, prefix: str, where: str
) -> list[Block]:
    if not len(resources):
        return [Paragraph(f"CPU, memory and GPU were not sampled in this run{where}.", "note")]
    figures = [_plot_resource(candidate, resources, prefix, where, *each) for each in _CURVES]
    blocks: list[Block] = [figure for figure in figures if figure is not None]
    if "gpu_percent" not in resources and "gpu_bytes" not in resources:
        blocks.append(Paragraph(f"No GPU was measured{where}.", "note"))
    return blocks


def _plot_resource(
    candidate: Candidate,
    resources: Series,
    prefix: str,
    where: str,
    name: str,
    title: str,
    columns: Mapping[str, str],
) -> Plot | None:
    observed = {label: select_known_values(resources, column) for column, label in columns.items()}
    observed = {label: curve for label, curve in observed.items() if len(curve[0])}
    if not observed:
        return None
    percent = next(iter(columns)).endswith("percent")
    scale = (
        Scale("%", 1.0)
        if percent
        else Scale.from_sizes([max(float(v.max()) for _, v in observed.values())])
    )
    clock = Scale.from_times([max(float(np.ptp(time)) for time, _ in observed.values())])
    lines, figures = [], []
    for label, (time, values) in observed.items():
        lines.append(reduce_to_columns(label, time / clock.divisor, values / scale.divisor))
        mean, least, greatest = (scale.text(float(f(values))) for f in (np.mean, np.min, np.max))
        found = f"{mean}\u00a0{scale.unit} on average, from {least} to {greatest}\u00a0{scale.unit}"
        figures.append(f"{label} {found}{_WHOLE[label]}" if label else found)
    text = f"{title}{where}: {'; '.join(figures)}"
    label = title.split(" of ")[0]
    return Plot(
        Lines(
            f"time, {clock.unit}",
            f"{label if label in ('CPU', 'GPU') else 'memory'}, {scale.unit}",
            tuple(lines),
            top=100.0 if name == "gpu" else 0.0,
            flat=True,
        ),
        f"{prefix}{name}",
        text,
        f"{candidate.name} over the measurement: {text}.",
    )


_SIZES = ("flash", "ram", "arena", "data", "stack")
_HEADINGS = {"data": "Data", "stack": "Stack, most used"}
_CAPTION = (
    "In bytes. Flash is code, constants and initial values, as built for the core. RAM is arena, "
    "data and the stack that runs have used; the prediction adds the frames of the deepest chain "
    "of calls. The firmware is not included."
)


def build_board_section(candidates: Sequence[Candidate]) -> Section | None:
    """Return a table of what candidates need on their boards; None if none ran on one."""
    there = [(each, get_board_bytes(each.run)) for each in candidates if get_board_bytes(each.run)]
    if not there:
        return None
    counters = [
        name for name in COUNTERS if any(get_counter(each.run) == name for each, _ in there)
    ]
    header = (
        "Candidate",
        "Board",
        *(_HEADINGS.get(name) or find_quantity(name).heading for name in _SIZES),
        "Stack, predicted",
        *(find_quantity(name).heading for name in counters),
    )
    rows = []
    for each, sizes in there:
        predicted = _get_board_facts(each).get("stack_predicted_bytes")
        figures = [compute_count_figure(each.run, name).value for name in counters]
        rows.append(
            (
                Cell(each.name, float(each.number), each.made_of),
                Cell(_format_board(each)),
                *(_format_bytes_cell(sizes.get(f"{name}_bytes")) for name in _SIZES),
                _format_bytes_cell(predicted),
                *(Cell(format_abbreviated_count(value), value) for value in figures),
            )
        )
    return Section("On the board", (Table(header, tuple(rows), sortable=True, caption=_CAPTION),))


def _get_board_facts(candidate: Candidate) -> dict[str, object]:
    session = candidate.run.timing.get("session")
    about = session.get("target") if isinstance(session, dict) else None
    return about if isinstance(about, dict) else {}


def _format_board(candidate: Candidate) -> str:
    told = [_get_board_facts(candidate).get(key) for key in ("board", "core")]
    return ", ".join(clean(each, 60) for each in told if isinstance(each, str)) or NOTHING


def _format_bytes_cell(value: object) -> Cell:
    return Cell(format_count(value), float(value)) if type(value) is int else Cell(NOTHING)
