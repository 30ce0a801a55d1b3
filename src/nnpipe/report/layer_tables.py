"""The times of a network's layers as tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nnpipe.analysis.layer_times import LayerTime, LayerTimes
from nnpipe.analysis.paired_layers import side_by_side
from nnpipe.analysis.roofline import RoofShare
from nnpipe.report.charts import Bar, Bars
from nnpipe.report.document import Table
from nnpipe.report.formatting import NOTHING, Scale, clean, count, digits, duration, share, shortened, size

_NAME = 48


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


def layer_table(times: LayerTimes, roof: Sequence[RoofShare | None] = ()) -> Table:
    """Return a table with a row for each step, and one for what belongs to none.

    With ``roof``, how close each row comes to what the machine can do, there is a column for it.
    """
    scale = Scale.of_times([each.time_ns for each in times.layers])
    header: tuple[str, ...] = (
        "operation", "fused", "kind", f"time ({scale.unit})", "95 % interval", "share", "kernel", "precision", "MACs",
        "parameters", "traffic", "live", "ns/value",
    )  # fmt: skip
    rows: tuple[tuple[str, ...], ...] = tuple(
        (
            shortened(clean(each.name), _NAME),
            f"+{len(each.operations) - 1}" if len(each.operations) > 1 else "",
            each.kind,
            scale.text(each.time_ns),
            scale.range((each.low_ns, each.high_ns)),
            share(each.share, 1),
            shortened(clean(each.kernel or each.operator), _NAME),
            each.precision,
            count(each.macs),
            count(each.parameters) if each.operations else NOTHING,
            _traffic(each),
            NOTHING if each.live_bytes is None else size(each.live_bytes),
            digits(each.ns_per_value),
        )
        for each in times.rows
    )
    if roof:
        told = [roof_text(each) for each in roof]
        rows = tuple((*row[:6], text, *row[6:]) for row, text in zip(rows, told, strict=True))
        header = (*header[:6], "of the roof", *header[6:])
    return Table(header, rows)


def roof_text(found: RoofShare | None) -> str:
    """Return a share of the roof as the cell of a table; a question mark tells a doubt."""
    return NOTHING if found is None else f"{share(found.share, 0)} {found.limit}{' (?)' if found.doubt else ''}"


def kind_time_table(times: LayerTimes) -> Table:
    """Return a table with a row for each kind, with its share of the run."""
    kinds = kind_times(times)
    scale = Scale.of_times([each.time_ns for each in kinds])
    rows = tuple(
        (
            each.kind,
            count(each.steps),
            scale.text(each.time_ns),
            share(each.share, 1),
            count(each.macs),
            digits(None if not each.macs or not each.time_ns else each.macs / each.time_ns),
            digits(each.time_ns / each.values if each.values else None),
            ", ".join(each.precisions),
        )
        for each in kinds
    )
    header = ("kind", "steps", f"time ({scale.unit})", "share", "MACs", "GMAC/s", "ns/value", "precision")
    return Table(header, rows)


def side_by_side_table(first: LayerTimes, second: LayerTimes) -> Table:
    """Return :func:`side_by_side` as a table, with what the second run takes for each time of the first."""
    pairs = side_by_side(first, second)
    scale = Scale.of_times([each.first_ns for each in pairs])
    header = (
        "operation", "fused", "kind", f"{first.runtime} ({scale.unit})", f"{second.runtime} ({scale.unit})",
        "second/first", "precision", "second's",
    )  # fmt: skip
    rows = [
        (
            shortened(clean(each.name), _NAME),
            f"+{len(each.operations) - 1}" if len(each.operations) > 1 else "",
            each.kind,
            scale.text(each.first_ns),
            scale.text(each.second_ns),
            digits(each.second_ns / each.first_ns) if each.first_ns else NOTHING,
            each.first_precision,
            each.second_precision,
        )
        for each in pairs
    ]
    total = ("total", "", "", scale.text(first.run_ns), scale.text(second.run_ns), digits(second.run_ns / first.run_ns))
    return Table(header, (*rows, (*total, "", "")))


def breakdown_chart(times: LayerTimes) -> Bars:
    """Return the time by kind as bars."""
    bars = tuple(
        Bar(each.kind, 100 * each.share, f"{duration(each.time_ns)}, {share(each.share, 1)}", place)
        for place, each in enumerate(kind_times(times))
    )
    return Bars("share of the run (%)", bars)


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
