"""Which key points are connected by a line where poses are drawn."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_COCO_POINTS = 17
_COCO_LIMBS = (
    (0, 1), (0, 2), (1, 3), (2, 4), (5, 6), (5, 7), (7, 9), (6, 8), (8, 10), (5, 11), (6, 12), (11, 12), (11, 13),
    (13, 15), (12, 14), (14, 16),
)  # fmt: skip


def limbs(known: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the pairs of key points that are both known and make a limb: COCO's of 17 points, of others none.

    Parameters
    ----------
    known
        Whether each key point of a person is known, ``(points,)``.
    """
    if len(known) != _COCO_POINTS:
        return []
    return [(one, other) for one, other in _COCO_LIMBS if known[one] and known[other]]
