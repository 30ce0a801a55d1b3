"""The times of a network's layers as tables and sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nnpipe.analysis.layer_times import LayerTime, LayerTimes
from nnpipe.analysis.paired_layers import PairedLayers, side_by_side
from nnpipe.analysis.roofline import RoofShare
from nnpipe.report.charts import StackedBar, StackedBars
from nnpipe.report.document import Cell, Table
from nnpipe.report.formatting import NOTHING, Scale, clean, count, digits, duration, share, shortened, size

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


def kind_times(times: LayerTimes) -> tuple[KindTime, ...]:
    """Return the sums by kind, the longest first; the part that belongs to no step is a kind of its own."""
    groups: dict[str, list[LayerTime]] = {}
    for each in times.rows:
        groups.setdefault(each.kind, []).append(each)
    found = [
        KindTime(
            kind,
            len(members),
            sum(each.time_ns for each in members),
            sum(each.share for each in members),
            _sum([each.macs for each in members]),
            _sum([each.values for each in members]),
            tuple(sorted({each.precision for each in members} - {""})),
        )
        for kind, members in groups.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.time_ns))


def layer_table(times: LayerTimes, roof: Sequence[RoofShare | None] = (), most: int | None = None) -> Table:
    """Return a table with a row for each step, and one for what belongs to none.

    Parameters
    ----------
    times
        The times.
    roof
        How close each row comes to what the machine can do; there is a column for it if it is known.
    most
        The greatest number of steps; of more, the costliest come first, and a row tells the share of all others.
    """
    scale = Scale.of_times([each.time_ns for each in times.layers])
    chosen, left = _costliest(times, most)
    header: tuple[str, ...] = (
        "operation", "fused", "kind", f"time ({scale.unit})", "95 % interval", "share", "kernel", "precision", "MACs",
        "parameters", "traffic", "live", "ns/value",
    )  # fmt: skip
    rows: list[tuple[str | Cell, ...]] = [
        (
            shortened(clean(each.name), _NAME),
            f"+{len(each.operations) - 1}" if len(each.operations) > 1 else "",
            each.kind,
            Cell(scale.text(each.time_ns), each.time_ns),
            scale.range((each.low_ns, each.high_ns)),
            Cell(share(each.share, 1), each.share),
            shortened(clean(each.kernel or each.operator), _NAME),
            each.precision,
            Cell(count(each.macs), each.macs),
            Cell(count(each.parameters), each.parameters) if each.operations else NOTHING,
            _traffic(each),
            Cell(NOTHING if each.live_bytes is None else size(each.live_bytes), each.live_bytes),
            Cell(digits(each.ns_per_value), each.ns_per_value),
        )
        for each in (times.rows[place] for place in chosen)
    ]
    if left:
        part, time = sum(each.share for each in left), sum(each.time_ns for each in left)
        blank = ("",) * (len(header) - 6)
        rows.append((f"and {len(left):,} more", "", "", scale.text(time), "", share(part, 1), *blank))
    if roof:
        told = [roof_text(roof[place]) for place in chosen] + [""] * bool(left)
        rows = [(*row[:6], text, *row[6:]) for row, text in zip(rows, told, strict=True)]
        header = (*header[:6], "of the roof", *header[6:])
    return Table(header, tuple(rows))


def _costliest(times: LayerTimes, most: int | None) -> tuple[list[int], list[LayerTime]]:
    """Return the places of the rows to show, and the steps that are left out."""
    rows = times.rows
    if most is None or len(times.layers) <= most:
        return list(range(len(rows))), []
    order = sorted(range(len(times.layers)), key=lambda place: -rows[place].time_ns)
    return [*order[:most], len(rows) - 1], [rows[place] for place in order[most:]]


def roof_text(found: RoofShare | None) -> str:
    """Return a share of the roof as the cell of a table; a question mark tells a doubt."""
    return NOTHING if found is None else f"{share(found.share, 0)} {found.limit}{' (?)' if found.doubt else ''}"


def kind_time_table(times: LayerTimes) -> Table:
    """Return a table with a row for each kind, with its share of the run."""
    kinds = kind_times(times)
    scale = Scale.of_times([each.time_ns for each in kinds])
    rows = []
    for each in kinds:
        rate = each.macs / each.time_ns if each.macs and each.time_ns else None
        density = each.time_ns / each.values if each.values else None
        rows.append(
            (
                each.kind,
                Cell(count(each.steps), each.steps),
                Cell(scale.text(each.time_ns), each.time_ns),
                Cell(share(each.share, 1), each.share),
                Cell(count(each.macs), each.macs),
                Cell(digits(rate), rate),
                Cell(digits(density), density),
                ", ".join(each.precisions),
            )
        )
    header = ("kind", "steps", f"time ({scale.unit})", "share", "MACs", "GMAC/s", "ns/value", "precision")
    return Table(header, tuple(rows))


def side_by_side_table(
    first: LayerTimes, second: LayerTimes, names: tuple[str, str] | None = None, most: int | None = None
) -> Table:
    """Return the layers of two runs beside each other, with what the second run takes for each time of the first.

    Parameters
    ----------
    first, second
        The runs.
    names
        What they are called; by default the names of their runtimes.
    most
        The greatest number of rows; of more, those come first whose times differ most.
    """
    pairs = list(side_by_side(first, second))
    scale = Scale.of_times([each.first_ns for each in pairs])
    left: list[PairedLayers] = []
    if most is not None and len(pairs) > most:
        pairs.sort(key=lambda each: -abs(each.second_ns - each.first_ns))
        pairs, left = pairs[:most], pairs[most:]
    called = names or (first.runtime, second.runtime)
    header = (
        "operation", "fused", "kind", *(f"{name} ({scale.unit})" for name in called), "second/first", "precision",
        "second's",
    )  # fmt: skip

    def cells(one: float, other: float) -> tuple[Cell, Cell, Cell]:
        ratio = other / one if one else None
        return Cell(scale.text(one), one), Cell(scale.text(other), other), Cell(digits(ratio), ratio)

    rows = [
        (
            shortened(clean(each.name), _NAME),
            f"+{len(each.operations) - 1}" if len(each.operations) > 1 else "",
            each.kind,
            *cells(each.first_ns, each.second_ns),
            each.first_precision,
            each.second_precision,
        )
        for each in pairs
    ]
    if left:
        sums = cells(sum(each.first_ns for each in left), sum(each.second_ns for each in left))
        rows.append((f"and {len(left):,} more", "", "", *sums, "", ""))
    rows.append(("total", "", "", *cells(first.run_ns, second.run_ns), "", ""))
    return Table(header, tuple(rows))


def breakdown_chart(runs: Mapping[str, LayerTimes]) -> StackedBars:
    """Return the time of runs by kind, as a bar for each run, by its name; all but the longest kinds share a part."""
    kinds = {name: {each.kind: each for each in kind_times(times)} for name, times in runs.items()}
    sums: Counter[str] = Counter()
    for found in kinds.values():
        sums.update({kind: max(each.time_ns, 0.0) for kind, each in found.items()})
    named = [kind for kind, _ in sums.most_common(_MOST_KINDS if len(sums) > _MOST_KINDS + 1 else len(sums))]
    scale = Scale.of_times([times.run_ns for times in runs.values()])
    bars = []
    for name, times in runs.items():
        parts = [max(kinds[name][kind].time_ns, 0.0) if kind in kinds[name] else 0.0 for kind in named]
        if len(sums) > len(named):
            parts.append(sum(max(each.time_ns, 0.0) for kind, each in kinds[name].items() if kind not in named))
        bars.append(StackedBar(name, np.array(parts) / scale.divisor, duration(times.run_ns)))
    labels = (*named, f"{len(sums) - len(named)} further kinds") if len(sums) > len(named) else tuple(named)
    return StackedBars(f"time of a run, {scale.unit}", labels, tuple(bars))


def time_sentences(times: LayerTimes) -> list[str]:
    """Return what a run takes, how much of it is attributed, and the doubts, as sentences."""
    told = f"a run in {times.runtime} takes {duration(times.run_ns)}"
    if times.plain_ns is not None:
        told += f" while its steps are recorded, {duration(times.plain_ns)} otherwise"
    covered = (
        f"{share(times.coverage, 1)} of it belongs to steps, and {share(times.mapped, 1)} of that to operations of the "
        f"model; all times are those of a usual run out of {times.runs}, and add up to it"
    )
    doubts = [f"do not rely on times of single layers: {each}" for each in times.doubts]
    return [told, covered, *doubts]


def _traffic(each: LayerTime) -> str:
    if each.bytes_read is None or each.bytes_written is None:
        return NOTHING
    return size(each.bytes_read + each.bytes_written)


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)
