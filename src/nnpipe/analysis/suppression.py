"""Non-maximum suppression: of boxes of one class that overlap, only the most certain one stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def non_maximum_suppression(
    boxes: npt.NDArray[Any],
    scores: npt.NDArray[Any],
    classes: npt.NDArray[np.integer],
    overlap: float,
) -> npt.NDArray[np.int64]:
    """Return the boxes of one picture that stay, in descending order of their scores.

    Parameters
    ----------
    boxes
        Left, top, right and bottom; ``(k, 4)``.
    scores, classes
        ``(k,)``.
    overlap
        A box is dropped if its intersection over union with a more certain one of its class is
        greater.

    Examples
    --------
    >>> boxes = np.array([[0, 0, 2, 2], [0, 0, 2, 1.9], [4, 4, 5, 5]])
    >>> non_maximum_suppression(boxes, np.array([0.5, 0.9, 0.7]), np.array([0, 0, 0]), 0.5)
    array([1, 2])
    """
    order = np.lexsort((-scores, classes))
    ends = np.flatnonzero(np.diff(classes[order], append=-1)) + 1
    area = np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1)
    staying: list[int] = []
    for group in np.split(order, ends[:-1]):
        while len(group):
            first, group = group[0], group[1:]
            staying.append(int(first))
            if len(group):
                shared = np.minimum(boxes[group, 2:], boxes[first, 2:]) - np.maximum(
                    boxes[group, :2], boxes[first, :2]
                )
                inside = np.prod(np.maximum(shared, 0), axis=1)
                # Multiplied, as the union of empty boxes is 0.
                group = group[inside <= overlap * (area[group] + area[first] - inside)]
    found = np.array(staying, np.int64)
    return found[np.argsort(-scores[found], kind="stable")]
