"""The errors of a network's layers as columns and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnpipe.analysis.channel_errors import COARSE, TensorError, outlying
from nnpipe.report.document import Table
from nnpipe.report.formatting import NOTHING, clean, shortened
from nnpipe.workflows.explanation.layer_errors import LayerErrors

_MOST = 3
_NAME = 60
_FEW_LARGE = 10.0  # decibels by which all values together have less noise than half of the channels


def with_errors(table: Table, errors: LayerErrors, covered: Sequence[Sequence[str]]) -> Table:
    """Return a table with the errors of the operations that each row covers."""
    worst = worst_errors(errors, covered)
    rows = tuple(
        (*row, NOTHING if each is None else f"{each.median:.1f}", NOTHING if each is None else f"{each.lowest:.1f}")
        for row, each in zip(table.rows, worst, strict=True)
    )
    return replace(table, header=(*table.header, "error (dB)", "worst channel"), rows=rows)


def error_columns(errors: LayerErrors, covered: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Return the errors of the operations that each row covers, for a table of plain numbers."""
    return [
        {
            "error_median_db": None if each is None else each.median,
            "error_lowest_db": None if each is None else each.lowest,
            "error_whole_db": None if each is None else each.whole,
            "worst_channels": "" if each is None else " ".join(map(str, each.worst_channels)),
        }
        for each in worst_errors(errors, covered)
    ]


def faults(errors: LayerErrors) -> tuple[str, ...]:
    """Return what loses accuracy and why, the worst first; nothing of a sound model.

    Tensors of which half the channels are lost come first: rounding allows that loss, but few networks bear it.
    """
    lost = outlying(errors.errors)
    suspects = {each.level.operation: each.told for each in reversed(errors.suspects)}
    told = [f"{_named(each)}: {_loss(each, suspects.get(each.source, ''))}" for each in lost]
    known = {each.source for each in lost}
    told += [
        f"{shortened(clean(each.name), _NAME)}: {each.told}"
        for each in errors.suspects
        if each.level.operation not in known
    ]
    return tuple(told[:_MOST])


def error_sentence(errors: LayerErrors) -> str:
    """Return the usual error and the number of samples."""
    usual = float(np.median([each.median for each in errors.errors]))
    return (
        f"errors: signal to noise of each layer alone on {errors.samples} samples, as the median over its channels; "
        f"usually {usual:.1f} dB, of {len(errors.errors)} tensors that the source has as well"
    )


def _named(each: TensorError) -> str:
    names = dict.fromkeys((*each.within, each.source))
    source = ", ".join(shortened(clean(name), _NAME) for name in names)
    return f"{shortened(clean(each.operation), _NAME)} ({source} of the source)"


def _loss(each: TensorError, cause: str) -> str:
    if each.median >= COARSE:
        worst = f"channel {each.worst_channels[0]} has only {each.lowest:.1f} dB"
        return f"{worst}, half of the others {each.median:.1f} or more"
    if each.whole > each.median + _FEW_LARGE:
        cause = "few large channels take all its range"
    return f"half of its channels have {each.median:.1f} dB or less{f'; {cause}' if cause else ''}"


def worst_errors(errors: LayerErrors, covered: Sequence[Sequence[str]]) -> list[TensorError | None]:
    """Return the worst error of each group of operations; ``None`` where the source has none of their tensors."""
    by_operation: dict[str, TensorError] = {}
    for each in errors.errors:
        before = by_operation.get(each.operation)
        if before is None or each.median < before.median:
            by_operation[each.operation] = each
    found = []
    for names in covered:
        there = [by_operation[name] for name in names if name in by_operation]
        found.append(min(there, key=lambda each: each.median, default=None))
    return found
