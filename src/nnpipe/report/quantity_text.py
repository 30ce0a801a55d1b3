"""Formatting of quantities and their intervals, which is the same on all pages and in the
terminal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from nnpipe.core.quality_metric import QualityMetric
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.doubt import Doubt
from nnpipe.measuring.quantities import Quantity
from nnpipe.report.formatting import NOTHING, counted, digits, duration, energy, points, share, size

_TINY = 1e-4


def written(quantity: Quantity, value: float | None) -> str:
    """Return a value, given in the quantity's unit, as text with the unit that suits it; ``–``
    if it is unknown.
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if quantity.kind == "time":
        return duration(1e9 * value)
    if quantity.kind == "bytes":
        return size(value)
    if quantity.kind == "energy":
        return energy(value)
    if quantity.kind == "count":
        return counted(value)
    if quantity.compared:
        return f"{points(value)} points" if quantity.kind == "share" else signed(value)
    if quantity.kind == "share":
        return share(value)
    return f"{digits(value)} /s" if quantity.kind == "rate" else digits(value, 4)


def difference_text(metric: QualityMetric, value: float) -> str:
    """Return a difference of two values of a metric with its sign, shares in percentage points."""
    return points(value) if metric.kind == "share" else signed(value)


def signed(value: float) -> str:
    """Return a number with its sign; one that rounding may have caused has an exponent."""
    text = (
        digits(abs(value))
        if not 0 < abs(value) < _TINY
        else f"{abs(value):.2e}".replace("e-0", "e-")
    )
    return ("−" if value < 0 else "+" if value > 0 else "") + text.replace("e-", "e−")


def interval(quantity: Quantity, known: Figure) -> str:
    """Return the interval of a figure as text; the empty string if it is unknown, infinite or
    has no width.
    """
    if (
        known.value is None
        or known.low == known.high
        or not (math.isfinite(known.low) and math.isfinite(known.high))
    ):
        return ""
    return f"{written(quantity, known.low)} to {written(quantity, known.high)}"


def ranged(quantity: Quantity, known: Figure | None) -> str:
    """Return a figure as text with its interval in brackets, or the reason why it is not known."""
    if known is None or known.value is None:
        return NOTHING if known is None else known.reason or NOTHING
    range_ = interval(quantity, known)
    return written(quantity, known.value) + (f" ({range_})" if range_ else "")


def kinds(doubts: Iterable[Doubt]) -> str:
    """Return the kinds of doubts as text, each once; ``none`` if there are no doubts."""
    return ", ".join(dict.fromkeys(doubt.kind for doubt in doubts)) or "none"
