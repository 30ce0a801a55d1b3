"""Overlaps of predicted boxes with true ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

_PAIRS = 1 << 20  # whose overlap is computed at once
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def overlapping(
    boxes: Floats, group: Integers, truth: Floats, true_group: Integers, crowds: Bools, least: float
) -> Iterator[tuple[Integers, Integers, Floats]]:
    """Yield the pairs of a box and a true box of its group that overlap enough, with their overlap, part by part."""
    first = np.searchsorted(true_group, group, "left")
    count = np.searchsorted(true_group, group, "right") - first
    ends = np.cumsum(count)
    start = 0
    while start < len(boxes):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _PAIRS, "right")))
        box = np.repeat(np.arange(start, stop), count[start:stop])
        within = np.arange(len(box)) - np.repeat(ends[start:stop] - count[start:stop] - before, count[start:stop])
        true = first[box] + within
        overlap = overlaps(boxes[box], truth[true], crowds[true])
        enough = overlap >= least
        yield box[enough], true[enough], overlap[enough]
        start = stop


def overlaps(boxes: Floats, truth: Floats, crowds: Bools) -> Floats:
    """Return the intersection over union of pairs of boxes; of a crowd, the intersection over the predicted box.

    Parameters
    ----------
    boxes, truth
        Left, top, width and height; ``(n, 4)``.
    crowds
        Whether the true box is one of a crowd; ``(n,)``.
    """
    ends, true_ends = boxes[:, :2] + boxes[:, 2:], truth[:, :2] + truth[:, 2:]
    shared = np.minimum(ends, true_ends) - np.maximum(boxes[:, :2], truth[:, :2])
    inside = np.where((shared > 0).all(axis=1), shared[:, 0] * shared[:, 1], 0.0)
    own, others = boxes[:, 2] * boxes[:, 3], truth[:, 2] * truth[:, 3]
    whole = np.where(crowds, own, own + others - inside)
    return np.divide(inside, whole, out=np.zeros_like(inside), where=inside > 0)
