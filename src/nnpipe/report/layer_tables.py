"""The times of a network's layers as tables and sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from nnpipe.analysis.layer_times import LayerTime, LayerTimes, PairedLayers, match_layer_times
from nnpipe.analysis.roofline import DOUBTFUL, Ceilings, RoofShare, compute_roof_share
from nnpipe.report.charts import Line, Lines, StackedBar, StackedBars
from nnpipe.report.document import Cell, Table
from nnpipe.report.drawing.axes import reduce_to_columns
from nnpipe.report.formatting import (
    NOTHING,
    Scale,
    clean,
    format_count,
    format_duration,
    format_number,
    format_share,
    format_size,
    shorten,
)

_NAME = 48
_MOST_KINDS = 6  # with a colour each; the seventh is that of all others


@dataclass(frozen=True)
class KindTime:
    """The sums over all layers of one kind.

    Parameters
    ----------
    kind
        The kind of primitive.
    steps
        The number of steps of the runtime.
    time_ns, share
        Their time in a run, in nanoseconds, and as a share of the run.
    macs
        Multiply-accumulates; ``None`` if one of them is not known.
    values
        The number of values that they compute; ``None`` if one of them is not known.
    precisions
        The types of the numbers that they computed with.
    """

    kind: str
    steps: int
    time_ns: float
    share: float
    macs: int | None
    values: int | None
    precisions: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the sums as JSON can hold them."""
        return {**asdict(self), "precisions": list(self.precisions)}


def sum_by_kind(times: LayerTimes) -> tuple[KindTime, ...]:
    """Return the sums by kind, the longest first; the part that belongs to no step is a kind of
    its own.
    """
    groups: dict[str, list[LayerTime]] = {}
    for each in times.rows:
        groups.setdefault(each.kind, []).append(each)
    found = [
        KindTime(
            kind,
            len(members),
            sum(each.time_ns for each in members),
            sum(each.share for each in members),
            _sum_known([each.macs for each in members]),
            _sum_known([each.values for each in members]),
            tuple(sorted({each.precision for each in members} - {""})),
        )
        for kind, members in groups.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.time_ns))


def build_layer_table(
    times: LayerTimes, roof: Sequence[RoofShare | None] = (), most: int | None = None
) -> Table:
    """Return a table with a row for each step, and one for what belongs to none.

    Parameters
    ----------
    times
        The times.
    roof
        How close each row comes to what the machine can do; there is a column for it if it is
        known.
    most
        The greatest number of steps; of more, the costliest come first, and a row tells the share
        of all others.
    """
    scale = Scale.from_times([each.time_ns for each in times.layers])
    chosen, left = _select_costliest(times, most)
    header: tuple[str, ...] = (
        "operation",
        "fused",
        "kind",
        f"time ({scale.unit})",
        "95 % interval",
        "share",
        "kernel",
        "precision",
        "MACs",
        "parameters",
        "traffic",
        "live",
        "ns/value",
    )
    rows: list[tuple[str | Cell, ...]] = [
        (
            shorten(clean(each.name), _NAME),
            f"+{len(each.operations) - 1}" if len(each.operations) > 1 else "",
            each.kind,
            Cell(scale.text(each.time_ns), each.time_ns),
            scale.format_interval((each.low_ns, each.high_ns)),
            Cell(format_share(each.share, 1), each.share),
            shorten(clean(each.kernel or each.operator), _NAME),
            each.precision,
            Cell(format_count(each.macs), each.macs),
            Cell(format_count(each.parameters), each.parameters) if each.operations else NOTHING,
            _format_traffic(each),
            Cell(
                NOTHING if each.live_bytes is None else format_size(each.live_bytes),
                each.live_bytes,
            ),
            Cell(format_number(each.ns_per_value), each.ns_per_value),
        )
        for each in (times.rows[place] for place in chosen)
    ]
    if left:
        part, time = sum(each.share for each in left), sum(each.time_ns for each in left)
        blank = ("",) * (len(header) - 6)
        rows.append(
            (f"and {len(left):,} more", "", "", scale.text(time), "", format_share(part, 1), *blank)
        )
    if roof:
        told = [format_roof_share(roof[place]) for place in chosen] + [""] * bool(left)
        rows = [(*row[:6], text, *row[6:]) for row, text in zip(rows, told, strict=True)]
        header = (*header[:6], "of the roof", *header[6:])
    return Table(header, tuple(rows))


def _select_costliest(times: LayerTimes, most: int | None) -> tuple[list[int], list[LayerTime]]:
    """Return the places of the rows to show, and the steps that are left out."""
    rows = times.rows
    if most is None or len(times.layers) <= most:
        return list(range(len(rows))), []
    order = sorted(range(len(times.layers)), key=lambda place: -rows[place].time_ns)
    return [*order[:most], len(rows) - 1], [rows[place] for place in order[most:]]


def format_roof_share(found: RoofShare | None) -> str:
    """Return a share of the roof as the cell of a table; a question mark tells a doubt."""
    return (
        NOTHING
        if found is None
        else f"{format_share(found.share, 0)} {found.limit}{' (?)' if found.doubt else ''}"
    )


def build_kind_time_table(times: LayerTimes) -> Table:
    """Return a table with a row for each kind, with its share of the run."""
    kinds = sum_by_kind(times)
    scale = Scale.from_times([each.time_ns for each in kinds])
    rows = []
    for each in kinds:
        rate = each.macs / each.time_ns if each.macs and each.time_ns else None
        density = each.time_ns / each.values if each.values else None
        rows.append(
            (
                each.kind,
                Cell(format_count(each.steps), each.steps),
                Cell(scale.text(each.time_ns), each.time_ns),
                Cell(format_share(each.share, 1), each.share),
                Cell(format_count(each.macs), each.macs),
                Cell(format_number(rate), rate),
                Cell(format_number(density), density),
                ", ".join(each.precisions),
            )
        )
    header = (
        "kind",
        "steps",
        f"time ({scale.unit})",
        "share",
        "MACs",
        "GMAC/s",
        "ns/value",
        "precision",
    )
    return Table(header, tuple(rows))


def build_side_by_side_table(
    first: LayerTimes,
    second: LayerTimes,
    names: tuple[str, str] | None = None,
    most: int | None = None,
) -> Table:
    """Return the layers of two runs beside each other, with what the second run takes for each time
    of the first.

    Parameters
    ----------
    first, second
        The runs.
    names
        What they are called; by default the names of their runtimes.
    most
        The greatest number of rows; of more, those come first whose times differ most.
    """
    pairs = list(match_layer_times(first, second))
    scale = Scale.from_times([each.first_ns for each in pairs])
    left: list[PairedLayers] = []
    if most is not None and len(pairs) > most:
        pairs.sort(key=lambda each: -abs(each.second_ns - each.first_ns))
        pairs, left = pairs[:most], pairs[most:]
    called = names or (first.runtime, second.runtime)
    header = (
        "operation",
        "fused",
        "kind",
        *(f"{name} ({scale.unit})" for name in called),
        "second/first",
        "precision",
        "second's",
    )

    def build_cells(one: float, other: float) -> tuple[Cell, Cell, Cell]:
        ratio = other / one if one else None
        return (
            Cell(scale.text(one), one),
            Cell(scale.text(other), other),
            Cell(format_number(ratio), ratio),
        )

    rows = [
        (
            shorten(clean(each.name), _NAME),
            f"+{len(each.operations) - 1}" if len(each.operations) > 1 else "",
            each.kind,
            *build_cells(each.first_ns, each.second_ns),
            each.first_precision,
            each.second_precision,
        )
        for each in pairs
    ]
    if left:
        sums = build_cells(
            sum(each.first_ns for each in left), sum(each.second_ns for each in left)
        )
        rows.append((f"and {len(left):,} more", "", "", *sums, "", ""))
    rows.append(("total", "", "", *build_cells(first.run_ns, second.run_ns), "", ""))
    return Table(header, tuple(rows))


def plot_time_breakdown(runs: Mapping[str, LayerTimes]) -> StackedBars:
    """Return the time of runs by kind, as a bar for each run, by its name; all but the longest
    kinds share a part.
    """
    kinds = {name: {each.kind: each for each in sum_by_kind(times)} for name, times in runs.items()}
    sums: Counter[str] = Counter()
    for found in kinds.values():
        sums.update({kind: max(each.time_ns, 0.0) for kind, each in found.items()})
    named = [
        kind
        for kind, _ in sums.most_common(_MOST_KINDS if len(sums) > _MOST_KINDS + 1 else len(sums))
    ]
    scale = Scale.from_times([times.run_ns for times in runs.values()])
    bars = []
    for name, times in runs.items():
        parts = [
            max(kinds[name][kind].time_ns, 0.0) if kind in kinds[name] else 0.0 for kind in named
        ]
        if len(sums) > len(named):
            parts.append(
                sum(
                    max(each.time_ns, 0.0)
                    for kind, each in kinds[name].items()
                    if kind not in named
                )
            )
        bars.append(
            StackedBar(name, np.array(parts) / scale.divisor, format_duration(times.run_ns))
        )
    labels = (
        (*named, f"{len(sums) - len(named)} further kinds")
        if len(sums) > len(named)
        else tuple(named)
    )
    return StackedBars(f"time of a run, {scale.unit}", labels, tuple(bars))


def describe_times(times: LayerTimes) -> list[str]:
    """Return what a run takes, how much of it is attributed, and the doubts, as sentences."""
    told = f"a run in {times.runtime} takes {format_duration(times.run_ns)}"
    if times.plain_ns is not None:
        told += f" while its steps are recorded, {format_duration(times.plain_ns)} otherwise"
    covered = (
        f"{format_share(times.coverage, 1)} of it belongs to steps, and "
        f"{format_share(times.mapped, 1)} of that to operations of the model; all times are those "
        f"of a usual run out of {times.runs}, and add up to it"
    )
    doubts = [f"do not rely on times of single layers: {each}" for each in times.doubts]
    return [told, covered, *doubts]


def _format_traffic(each: LayerTime) -> str:
    if each.bytes_read is None or each.bytes_written is None:
        return NOTHING
    return format_size(each.bytes_read + each.bytes_written)


def _sum_known(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)


Shares = Sequence[RoofShare | None]

_TYPES = {
    "": "float32",
    "float32": "float32",
    "bfloat16": "bfloat16",
    "int8": "int8",
    "uint8": "int8",
}
_MOST_NAMED = 3
_LEAST, _GREATEST, _POINTS = 1 / 16, 4096.0, 64  # operations a byte


def compute_roof_shares(times: LayerTimes, ceilings: Ceilings) -> tuple[RoofShare | None, ...]:
    """Return the share of the roof of each row of times; ``None`` where a ceiling or a figure is
    not known.
    """
    return tuple(_compute_roof_share(each, ceilings) for each in times.rows)


def describe_roof_shares(times: LayerTimes, shares: Shares, ceilings: Ceilings) -> list[str]:
    """Return how close the run comes to the roof as a whole, and which layers are above it, as
    sentences.
    """
    rows = list(zip(times.rows, shares, strict=True))
    known = [(row, found) for row, found in rows if found is not None]
    if not known:
        return [
            f"share of the roof: not known; no ceiling of {ceilings.machine} applies to a layer"
        ]
    least = sum(row.time_ns * min(found.share, 1.0) for row, found in known)
    covered = sum(row.time_ns for row, _ in known)
    told = [
        f"share of the roof: {format_share(least / covered, 1)} over the layers that have one, "
        f"which take {format_share(covered / times.run_ns, 1)} of the run ({ceilings.machine}, "
        f"ceilings of {ceilings.created[:10]})"
    ]
    above = [(row, found) for row, found in known if found.share > DOUBTFUL]
    for row, found in above[:_MOST_NAMED]:
        told.append(
            f"doubt: {shorten(clean(row.name), 60)} is at {format_share(found.share, 0)}, "
            f"{found.doubt}"
        )
    if len(above) > _MOST_NAMED:
        told.append(f"doubt: {len(above) - _MOST_NAMED} further layers are above the roof")
    return told


def plot_layers_on_roofline(times: LayerTimes, ceilings: Ceilings) -> Lines | None:
    """Return the roofline with a point for each layer; ``None`` if no ceiling is known."""
    chart = plot_roofline(ceilings)
    points = [
        (figures[0] / figures[1], figures[0] / row.time_ns)
        for row in times.layers
        if (figures := _measure_work(row))
    ]
    if chart is None or not points:
        return chart
    x, y = (np.array(side, np.float64) for side in zip(*points, strict=True))
    return replace(chart, lines=(*chart.lines, Line("layers", x, y, loose=True)))


def plot_roofline(ceilings: Ceilings) -> Lines | None:
    """Return operations a second by operations a byte; ``None`` if no ceiling is known.

    A rising line is a level of memory, a level one a type of number.
    """
    levels = [
        (each.up_to_bytes, rate)
        for each in ceilings.memory
        if (rate := each.bandwidth.value) is not None
    ]
    types = [
        (name, rate) for name, each in ceilings.compute.items() if (rate := each.value) is not None
    ]
    if not levels or not types:
        return None
    highest, fastest = max(rate for _, rate in types), max(rate for _, rate in levels)
    lines = [
        _create_roofline_part(
            "main memory" if size_ is None else f"data up to {format_size(size_)}",
            _LEAST,
            highest / rate,
            rate,
            True,
        )
        for size_, rate in levels
    ]
    lines += [
        _create_roofline_part(name, rate / fastest, _GREATEST, rate, False) for name, rate in types
    ]
    return Lines("operations per byte", "Goperations/s", tuple(lines), log_y=True, log_x=True)


def _create_roofline_part(label: str, begin: float, end: float, rate: float, rises: bool) -> Line:
    x = np.geomspace(begin, max(end, begin), _POINTS)
    return Line(label, x, (rate * x if rises else np.full(_POINTS, rate)) / 1e9)


def _compute_roof_share(row: LayerTime, ceilings: Ceilings) -> RoofShare | None:
    precision, work = _TYPES.get(row.precision), _measure_work(row)
    if precision is None or work is None:
        return None
    return compute_roof_share(*work, row.time_ns / 1e9, ceilings, precision)


def _measure_work(row: LayerTime) -> tuple[float, float] | None:
    """Return the operations and the traffic of a layer; ``None`` if one is not known or 0, or it
    took no time.
    """
    if None in (row.macs, row.others, row.bytes_read, row.bytes_written) or row.time_ns <= 0:
        return None
    operations = 2.0 * (row.macs or 0) + (row.others or 0)
    traffic = float((row.bytes_read or 0) + (row.bytes_written or 0))
    return (operations, traffic) if operations and traffic else None


_LEAST_MEMORY = 1 << 20  # bytes below which pages of the system hide a difference
_NEAR = 0.2


@dataclass(frozen=True)
class MemoryUse:
    """Memory of a process that loads and runs a model, beyond what its framework takes.

    Parameters
    ----------
    file_bytes
        The size of the model's files.
    loaded_bytes
        What loading adds.
    peak_bytes
        The peak of what runs add to that; ``None`` if the system does not tell a peak.
    """

    file_bytes: int
    loaded_bytes: int
    peak_bytes: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON can hold them."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MemoryUse:
        """Make the object from the output of :meth:`to_json`; raise ``ValueError`` if a figure
        is no size.
        """
        found = cls(**{name: data[name] for name in ("file_bytes", "loaded_bytes", "peak_bytes")})
        for value in (
            found.file_bytes,
            found.loaded_bytes,
            0 if found.peak_bytes is None else found.peak_bytes,
        ):
            if type(value) is not int or not 0 <= value < 1 << 62:
                raise ValueError("memory is told in bytes")
        return found

    def describe(self, live: int | None) -> list[str]:
        """Return the figures beside what lives at once by the graph, in bytes, and why they
        differ.
        """
        told = (
            f"memory, measured in a process of its own: loading takes "
            f"{format_size(self.loaded_bytes)}, for files of "
            f"{format_size(self.file_bytes)}{self._explain_loaded()}"
        )
        if self.peak_bytes is None:
            return [f"{told}; this system tells no peak while a model runs"]
        beside = (
            ""
            if live is None
            else f", where {format_size(live)} live at once by the graph{self._explain_peak(live)}"
        )
        return [
            told,
            f"memory while it runs: {format_size(self.peak_bytes)} more at the peak{beside}",
        ]

    def _explain_loaded(self) -> str:
        if max(self.loaded_bytes, self.file_bytes) < _LEAST_MEMORY:
            return ""
        if self.loaded_bytes > (1 + _NEAR) * self.file_bytes:
            return (
                ": weights are copied into the layout of the kernels, or the memory for values is "
                "taken already"
            )
        if self.loaded_bytes < (1 - _NEAR) * self.file_bytes:
            return ": weights stay in the mapped file until they are read, or are shared with it"
        return ""

    def _explain_peak(self, live: int) -> str:
        peak = self.peak_bytes or 0
        if max(peak, live) < _LEAST_MEMORY:
            return "; both are too small to be told apart from the system's pages"
        if peak > (1 + _NEAR) * live:
            return ": an arena keeps more than lives at once, and kernels have buffers of their own"
        if peak < (1 - _NEAR) * live:
            return (
                ": fused operations never store what passes between them, and memory from loading "
                "is used again"
            )
        return ""


def plot_memory(live_bytes: Sequence[int], use: MemoryUse | None) -> Lines | None:
    """Return the live memory by operation beside the measured peak; ``None`` if the sizes are
    not known.
    """
    if not live_bytes:
        return None
    live = np.array(live_bytes, np.float64)
    peak = None if use is None else use.peak_bytes
    scale = Scale.from_sizes([float(live.max()), peak])
    x = np.arange(1.0, len(live) + 1)
    lines = [reduce_to_columns("values that live at once", x, live / scale.divisor)]
    if peak is not None:
        lines.append(
            Line("measured peak while it runs", x[[0, -1]], np.full(2, peak / scale.divisor))
        )
    return Lines("operation", f"memory, {scale.unit}", tuple(lines))
