"""Formatting of quantities and their intervals, which is the same on all pages and in the
terminal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from nnpipe.core.quality_metric import QualityMetric
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.quantities import Quantity
from nnpipe.measuring.validity_warning import ValidityWarning
from nnpipe.report.formatting import (
    NOTHING,
    format_abbreviated_count,
    format_duration,
    format_energy,
    format_number,
    format_percentage_points,
    format_share,
    format_size,
)

_TINY = 1e-4


def format_quantity(quantity: Quantity, value: float | None) -> str:
    """Return a value, given in the quantity's unit, as text with the unit that suits it; ``–``
    if it is unknown.
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if quantity.kind == "time":
        return format_duration(1e9 * value)
    if quantity.kind == "bytes":
        return format_size(value)
    if quantity.kind == "energy":
        return format_energy(value)
    if quantity.kind == "count":
        return format_abbreviated_count(value)
    if quantity.compared:
        return (
            f"{format_percentage_points(value)} points"
            if quantity.kind == "share"
            else format_signed(value)
        )
    if quantity.kind == "share":
        return format_share(value)
    return f"{format_number(value)} /s" if quantity.kind == "rate" else format_number(value, 4)


def format_metric_difference(metric: QualityMetric, value: float) -> str:
    """Return a difference of two values of a metric with its sign, shares in percentage points."""
    return format_percentage_points(value) if metric.kind == "share" else format_signed(value)


def format_signed(value: float) -> str:
    """Return a number with its sign; one that rounding may have caused has an exponent."""
    text = (
        format_number(abs(value))
        if not 0 < abs(value) < _TINY
        else f"{abs(value):.2e}".replace("e-0", "e-")
    )
    return ("−" if value < 0 else "+" if value > 0 else "") + text.replace("e-", "e−")


def format_figure_interval(quantity: Quantity, known: Figure) -> str:
    """Return the interval of a figure as text; the empty string if it is unknown, infinite or
    has no width.
    """
    if (
        known.value is None
        or known.low == known.high
        or not (math.isfinite(known.low) and math.isfinite(known.high))
    ):
        return ""
    return f"{format_quantity(quantity, known.low)} to {format_quantity(quantity, known.high)}"


def format_figure(quantity: Quantity, known: Figure | None) -> str:
    """Return a figure as text with its interval in brackets, or the reason why it is not known."""
    if known is None or known.value is None:
        return NOTHING if known is None else known.reason or NOTHING
    range_ = format_figure_interval(quantity, known)
    return format_quantity(quantity, known.value) + (f" ({range_})" if range_ else "")


def format_warning_kinds(doubts: Iterable[ValidityWarning]) -> str:
    """Return the kinds of doubts as text, each once; ``none`` if there are no doubts."""
    return ", ".join(dict.fromkeys(doubt.kind for doubt in doubts)) or "none"
