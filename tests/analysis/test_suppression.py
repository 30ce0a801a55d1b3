"""Suppression drops what plain loops drop."""

from __future__ import annotations

import numpy as np
import pytest

from nnpipe.analysis.suppression import non_maximum_suppression


def plainly(
    boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, overlap: float
) -> list[int]:
    """Return the boxes that stay, one by one, the most certain first."""
    staying: list[int] = []
    for box in sorted(range(len(boxes)), key=lambda number: (-scores[number], number)):
        left, top, right, bottom = boxes[box]
        for other in staying:
            across = max(0.0, min(right, boxes[other][2]) - max(left, boxes[other][0]))
            down = max(0.0, min(bottom, boxes[other][3]) - max(top, boxes[other][1]))
            own = max(0.0, right - left) * max(0.0, bottom - top)
            its = np.prod(np.maximum(boxes[other][2:] - boxes[other][:2], 0))
            union = own + its - across * down
            if classes[box] == classes[other] and across * down > overlap * union:
                break
        else:
            staying.append(box)
    return staying


@pytest.mark.parametrize("overlap", [0.0, 0.45, 0.65, 1.0])
def test_boxes_stay_as_in_plain_loops(overlap: float) -> None:
    dropped = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        count = int(random.integers(0, 40))
        corners = random.integers(0, 12, (count, 2)).astype(float)
        boxes = np.concatenate([corners, corners + random.integers(-1, 9, (count, 2))], axis=1)
        scores, classes = random.permutation(count) / 50, random.integers(0, 3, count)
        found = non_maximum_suppression(boxes, scores, classes, overlap).tolist()
        assert found == plainly(boxes, scores, classes, overlap)
        dropped += count - len(found)
    assert (dropped > 0) == (overlap < 1)
