"""Matching of predicted boxes with true ones.

COCO's rules are those of ``pycocotools/cocoeval.py``, ``evaluateImg``: the boxes of one class in
one picture are taken in the order of their scores, and each gets the free true box that it overlaps
most (:mod:`nnpipe.tasks.average_precision`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.tasks.average_precision import (
    AREAS,
    THRESHOLDS,
    compute_group_positions,
    match_greedily,
)

_PAIRS = 1 << 20  # whose overlap is computed at once
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def iter_overlapping_pairs(
    boxes: Floats, group: Integers, truth: Floats, true_group: Integers, crowds: Bools, least: float
) -> Iterator[tuple[Integers, Integers, Floats]]:
    """Yield the pairs of a box and a true box of its group that overlap enough, with their
    overlap, part by part.
    """
    first = np.searchsorted(true_group, group, "left")
    count = np.searchsorted(true_group, group, "right") - first
    ends = np.cumsum(count)
    start = 0
    while start < len(boxes):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _PAIRS, "right")))
        box = np.repeat(np.arange(start, stop), count[start:stop])
        within = np.arange(len(box)) - np.repeat(
            ends[start:stop] - count[start:stop] - before, count[start:stop]
        )
        true = first[box] + within
        overlap = compute_box_overlaps(boxes[box], truth[true], crowds[true])
        enough = overlap >= least
        yield box[enough], true[enough], overlap[enough]
        start = stop


def compute_box_overlaps(boxes: Floats, truth: Floats, crowds: Bools) -> Floats:
    """Return the intersection over union of pairs of boxes; of a crowd, the intersection over the
    predicted box.

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


# Matching of predicted boxes with true ones as Pascal VOC and Open Images do it.
#
# Unlike COCO's, a predicted box is compared with the true box that it overlaps most only, taken or
# not: the most certain box that claims a true one is right, and the others are wrong.


def match_by_claims(
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
        Whether ``crowds`` are boxes around groups, as in Open Images
        (``object_detection_evaluation.py`` of TensorFlow's models, with ``group_of_weight`` 0):
        wrong boxes inside of one do not count, by their share that is inside.  Otherwise they are
        single things that are difficult, as in Pascal VOC (``VOCevaldet.m`` of its development
        kit): boxes that claim one do not count.

    Returns
    -------
    right, ignored
        Whether each box claims a true box first, and whether it does not count; ``(d, thresholds,
        1)``.
    """
    right, ignored = (np.zeros((len(boxes), len(thresholds), 1), bool) for _ in range(2))
    if not len(boxes):
        return right, ignored
    whole = crowds if groups else np.zeros(len(crowds), bool)
    parts = iter_overlapping_pairs(boxes, group, truth, true_group, whole, float(thresholds[0]))
    box, true, overlap = (np.concatenate(part) for part in zip(*parts, strict=True))
    single = ~whole[true]
    order = np.lexsort((-true, overlap, box))
    order = order[single[order]]
    # the last pair of each box: the greatest overlap
    order = order[np.diff(box[order], append=-1) != 0]
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


MOST_DETECTIONS = 100
"""Predicted boxes of one class in one picture that count, the most certain ones."""


@dataclass(frozen=True, eq=False)
class BoxMatches:
    """Which predicted boxes are right, ordered by class and descending score.

    Attributes
    ----------
    picture, label, score
        Picture, class and score of each predicted box, ``(d,)``.
    right, ignored
        Whether a box was matched with a true one that counts, and whether it does not count itself;
        ``(d, thresholds, areas)``.  Only COCO tells areas apart.
    place
        How many boxes of the same class and picture have greater scores, ``(d,)``.
    true_picture, true_label
        Picture and class of each true box, ``(g,)``.
    wanted
        Whether a true box counts, ``(g, areas)``.
    classes
        A number above all classes.
    """

    picture: Integers
    label: Integers
    score: Floats
    right: Bools
    ignored: Bools
    place: Integers
    true_picture: Integers
    true_label: Integers
    wanted: Bools
    classes: int


def match_boxes(found: Evaluation) -> BoxMatches:
    """Return the matches of an evaluation's boxes; they are computed once for all metrics."""
    protocol = str(found.settings.get("protocol", "coco"))
    return _match_boxes(protocol, *(found.ragged[name] for name in (*TRUTH, *PREDICTED)))


TRUTH = ("truth_boxes", "truth_class", "truth_crowd", "truth_area")
PREDICTED = ("boxes", "scores", "class")


@functools.lru_cache(maxsize=2)  # by identity; two, since models are compared in pairs
def _match_boxes(
    protocol: str,
    truth: Ragged,
    true_class: Ragged,
    crowd: Ragged,
    area: Ragged,
    boxes: Ragged,
    scores: Ragged,
    classes: Ragged,
) -> BoxMatches:
    every = max(_count_classes(true_class), _count_classes(classes))
    true_group = truth.owners * every + true_class.values.astype(np.int64)
    true_order = np.argsort(true_group, kind="stable")
    true_group = true_group[true_order]
    true_boxes = truth.values.astype(np.float64)[true_order]
    crowds = crowd.values.astype(bool)[true_order]

    order = np.lexsort((-scores.values.astype(np.float64), classes.values, boxes.owners))
    group = (boxes.owners * every + classes.values.astype(np.int64))[order]
    place = compute_group_positions(group)
    if protocol == "coco":
        kept = place < MOST_DETECTIONS
        order, group, place = order[kept], group[kept], place[kept]
    given = boxes.values.astype(np.float64)[order]
    if protocol == "coco":
        low, high = np.array(list(AREAS.values())).T
        sizes, own = (
            area.values.astype(np.float64)[true_order, None],
            (given[:, 2] * given[:, 3])[:, None],
        )
        unwanted = crowds[:, None] | (sizes < low) | (sizes > high)
        right, ignored = _match_boxes_greedily(
            given, group, true_boxes, true_group, crowds, unwanted
        )
        ignored |= ~(right | ignored) & ((own < low) | (own > high))[:, None, :]
    else:
        unwanted = crowds[:, None]
        right, ignored = match_by_claims(
            given,
            group,
            true_boxes,
            true_group,
            crowds,
            THRESHOLDS,
            groups=protocol == "open_images",
        )
    # Boxes of a class are sorted again over all pictures; those with equal scores stay in the order
    # of pictures.
    certain = scores.values.astype(np.float64)[order]
    again = np.lexsort((-certain, group % every))
    group = group[again]
    return BoxMatches(
        group // every,
        group % every,
        certain[again],
        right[again],
        ignored[again],
        place[again],
        true_group // every,
        true_group % every,
        ~unwanted,
        every,
    )


def _match_boxes_greedily(
    boxes: Floats,
    group: Integers,
    truth: Floats,
    true_group: Integers,
    crowds: Bools,
    unwanted: Bools,
) -> tuple[Bools, Bools]:
    """Match boxes, sorted by group and descending score, with true boxes, sorted by group.

    Returns
    -------
    right, ignored
        Whether each box was matched with a true box that counts, or with one that does not;
        ``(d, thresholds, areas)``.
    """
    if not len(boxes):
        shape = (0, len(THRESHOLDS), unwanted.shape[1])
        return np.zeros(shape, bool), np.zeros(shape, bool)
    parts = iter_overlapping_pairs(boxes, group, truth, true_group, crowds, float(THRESHOLDS[0]))
    box, true, overlap = (np.concatenate(part) for part in zip(*parts, strict=True))
    return match_greedily(group, box, true, overlap, crowds, unwanted)


def _count_classes(classes: Ragged) -> int:
    return int(classes.values.max(initial=0)) + 1
