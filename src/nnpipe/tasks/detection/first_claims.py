"""Matching of predicted boxes with true ones as Pascal VOC and Open Images do it.

Unlike COCO's, a predicted box is compared with the true box that it overlaps most only, taken or not: the most certain
box that claims a true one is right, and the others are wrong.
"""

from __future__ import annotations

import numpy as np

from nnpipe.tasks.detection.overlaps import Bools, Floats, Integers, overlapping


def claimed(
    boxes: Floats,
    group: Integers,
    truth: Floats,
    true_group: Integers,
    crowds: Bools,
    thresholds: Floats,
    *,
    groups: bool,
) -> tuple[Bools, Bools]:
    """Match boxes, sorted by group and descending score, with true boxes, sorted by group.

    Parameters
    ----------
    boxes, truth
        Left, top, width and height; ``(d, 4)`` and ``(g, 4)``.
    group, true_group
        Numbers of picture and class, ascending.
    crowds
        True boxes that do not count; ``(g,)``.
    thresholds
        The overlaps from which a box counts as found.
    groups
        Whether ``crowds`` are boxes around groups, as in Open Images (``object_detection_evaluation.py`` of
        TensorFlow's models, with ``group_of_weight`` 0): wrong boxes inside of one do not count, by their share that is
        inside.  Otherwise they are single things that are difficult, as in Pascal VOC (``VOCevaldet.m`` of its
        development kit): boxes that claim one do not count.

    Returns
    -------
    right, ignored
        Whether each box claims a true box first, and whether it does not count; ``(d, thresholds, 1)``.
    """
    right, ignored = (np.zeros((len(boxes), len(thresholds), 1), bool) for _ in range(2))
    if not len(boxes):
        return right, ignored
    whole = crowds if groups else np.zeros(len(crowds), bool)
    parts = overlapping(boxes, group, truth, true_group, whole, float(thresholds[0]))
    box, true, overlap = (np.concatenate(part) for part in zip(*parts, strict=True))
    single = ~whole[true]
    order = np.lexsort((-true, overlap, box))
    order = order[single[order]]
    order = order[np.diff(box[order], append=-1) != 0]  # the last pair of each box: the greatest overlap
    claims, claimed_by, reach = true[order], box[order], overlap[order]
    for number, threshold in enumerate(thresholds):
        near = reach >= threshold
        hard = near & crowds[claims]
        ignored[claimed_by[hard], number] = True
        near &= ~hard
        _, first = np.unique(claims[near], return_index=True)
        right[claimed_by[near][first], number] = True
        if groups:
            inside = np.zeros(len(boxes), bool)
            inside[box[~single & (overlap >= threshold)]] = True
            ignored[:, number, 0] |= inside & ~right[:, number, 0]
    return right, ignored
