"""How close the layers of a run come to what the machine can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nnpipe.analysis.layer_times import LayerTime, LayerTimes
from nnpipe.analysis.roofline import DOUBTFUL, Ceilings, RoofShare, share_of_roof
from nnpipe.report.charts import Line, Lines
from nnpipe.report.formatting import clean, share, shortened, size

Shares = Sequence[RoofShare | None]

_TYPES = {"": "float32", "float32": "float32", "bfloat16": "bfloat16", "int8": "int8", "uint8": "int8"}
_MOST_NAMED = 3
_LEAST, _GREATEST, _POINTS = 1 / 16, 4096.0, 64  # operations a byte


def roof_shares(times: LayerTimes, ceilings: Ceilings) -> tuple[RoofShare | None, ...]:
    """Return the share of the roof of each row of times; ``None`` where a ceiling or a figure is not known."""
    return tuple(_share(each, ceilings) for each in times.rows)


def roof_sentences(times: LayerTimes, shares: Shares, ceilings: Ceilings) -> list[str]:
    """Return how close the run comes to the roof as a whole, and which layers are above it, as sentences."""
    rows = list(zip(times.rows, shares, strict=True))
    known = [(row, found) for row, found in rows if found is not None]
    if not known:
        return [f"share of the roof: not known; no ceiling of {ceilings.machine} applies to a layer"]
    least = sum(row.time_ns * min(found.share, 1.0) for row, found in known)
    covered = sum(row.time_ns for row, _ in known)
    told = [
        f"share of the roof: {share(least / covered, 1)} over the layers that have one, which take "
        f"{share(covered / times.run_ns, 1)} of the run ({ceilings.machine}, ceilings of {ceilings.created[:10]})"
    ]
    above = [(row, found) for row, found in known if found.share > DOUBTFUL]
    for row, found in above[:_MOST_NAMED]:
        told.append(f"doubt: {shortened(clean(row.name), 60)} is at {share(found.share, 0)}, {found.doubt}")
    if len(above) > _MOST_NAMED:
        told.append(f"doubt: {len(above) - _MOST_NAMED} further layers are above the roof")
    return told


def roof_chart(times: LayerTimes, ceilings: Ceilings) -> Lines | None:
    """Return the roofline with a point for each layer; ``None`` if no ceiling is known."""
    chart = roofline_chart(ceilings)
    points = [(figures[0] / figures[1], figures[0] / row.time_ns) for row in times.layers if (figures := _work(row))]
    if chart is None or not points:
        return chart
    x, y = (np.array(side, np.float64) for side in zip(*points, strict=True))
    return replace(chart, lines=(*chart.lines, Line("layers", x, y, loose=True)))


def roofline_chart(ceilings: Ceilings) -> Lines | None:
    """Return operations a second by operations a byte; ``None`` if no ceiling is known.

    A rising line is a level of memory, a level one a type of number.
    """
    levels = [(each.up_to_bytes, rate) for each in ceilings.memory if (rate := each.bandwidth.value) is not None]
    types = [(name, rate) for name, each in ceilings.compute.items() if (rate := each.value) is not None]
    if not levels or not types:
        return None
    highest, fastest = max(rate for _, rate in types), max(rate for _, rate in levels)
    lines = [
        _line("main memory" if size_ is None else f"data up to {size(size_)}", _LEAST, highest / rate, rate, True)
        for size_, rate in levels
    ]
    lines += [_line(name, rate / fastest, _GREATEST, rate, False) for name, rate in types]
    return Lines("operations per byte", "Goperations/s", tuple(lines), log_y=True, log_x=True)


def _line(label: str, begin: float, end: float, rate: float, rises: bool) -> Line:
    x = np.geomspace(begin, max(end, begin), _POINTS)
    return Line(label, x, (rate * x if rises else np.full(_POINTS, rate)) / 1e9)


def _share(row: LayerTime, ceilings: Ceilings) -> RoofShare | None:
    precision, work = _TYPES.get(row.precision), _work(row)
    if precision is None or work is None:
        return None
    return share_of_roof(*work, row.time_ns / 1e9, ceilings, precision)


def _work(row: LayerTime) -> tuple[float, float] | None:
    """Return the operations and the traffic of a layer; ``None`` if one is not known or 0, or it took no time."""
    if None in (row.macs, row.others, row.bytes_read, row.bytes_written) or row.time_ns <= 0:
        return None
    operations = 2.0 * (row.macs or 0) + (row.others or 0)
    traffic = float((row.bytes_read or 0) + (row.bytes_written or 0))
    return (operations, traffic) if operations and traffic else None
