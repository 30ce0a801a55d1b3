"""Matching of predicted boxes with true ones.

COCO's rules are those of ``pycocotools/cocoeval.py``, ``evaluateImg``: the boxes of one class in one picture are taken
in the order of their scores, and each gets the free true box that it overlaps most
(:mod:`nnpipe.tasks.greedy_matching`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.ragged import Ragged
from nnpipe.tasks.detection.first_claims import claimed
from nnpipe.tasks.detection.overlaps import Bools, Floats, Integers, overlapping
from nnpipe.tasks.greedy_matching import AREAS, THRESHOLDS, greedy, places_in_groups

MOST_DETECTIONS = 100
"""Predicted boxes of one class in one picture that count, the most certain ones."""


@dataclass(frozen=True, eq=False)
class Matches:
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


def matches_of(found: Evaluation) -> Matches:
    """Return the matches of an evaluation's boxes; they are computed once for all metrics."""
    protocol = str(found.settings.get("protocol", "coco"))
    return _matched(protocol, *(found.ragged[name] for name in (*TRUTH, *PREDICTED)))


TRUTH = ("truth_boxes", "truth_class", "truth_crowd", "truth_area")
PREDICTED = ("boxes", "scores", "class")


@functools.lru_cache(maxsize=2)  # by identity; two, since models are compared in pairs
def _matched(
    protocol: str,
    truth: Ragged,
    true_class: Ragged,
    crowd: Ragged,
    area: Ragged,
    boxes: Ragged,
    scores: Ragged,
    classes: Ragged,
) -> Matches:
    every = max(_after(true_class), _after(classes))
    true_group = truth.owners * every + true_class.values.astype(np.int64)
    true_order = np.argsort(true_group, kind="stable")
    true_group = true_group[true_order]
    true_boxes = truth.values.astype(np.float64)[true_order]
    crowds = crowd.values.astype(bool)[true_order]

    order = np.lexsort((-scores.values.astype(np.float64), classes.values, boxes.owners))
    group = (boxes.owners * every + classes.values.astype(np.int64))[order]
    place = places_in_groups(group)
    if protocol == "coco":
        kept = place < MOST_DETECTIONS
        order, group, place = order[kept], group[kept], place[kept]
    given = boxes.values.astype(np.float64)[order]
    if protocol == "coco":
        low, high = np.array(list(AREAS.values())).T
        sizes, own = area.values.astype(np.float64)[true_order, None], (given[:, 2] * given[:, 3])[:, None]
        unwanted = crowds[:, None] | (sizes < low) | (sizes > high)
        right, ignored = _greedy(given, group, true_boxes, true_group, crowds, unwanted)
        ignored |= ~(right | ignored) & ((own < low) | (own > high))[:, None, :]
    else:
        unwanted = crowds[:, None]
        right, ignored = claimed(
            given, group, true_boxes, true_group, crowds, THRESHOLDS, groups=protocol == "open_images"
        )
    # Boxes of a class are sorted again over all pictures; those with equal scores stay in the order of pictures.
    certain = scores.values.astype(np.float64)[order]
    again = np.lexsort((-certain, group % every))
    group = group[again]
    return Matches(
        group // every, group % every, certain[again], right[again], ignored[again], place[again],
        true_group // every, true_group % every, ~unwanted, every,
    )  # fmt: skip


def _greedy(
    boxes: Floats, group: Integers, truth: Floats, true_group: Integers, crowds: Bools, unwanted: Bools
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
    parts = overlapping(boxes, group, truth, true_group, crowds, float(THRESHOLDS[0]))
    box, true, overlap = (np.concatenate(part) for part in zip(*parts, strict=True))
    return greedy(group, box, true, overlap, crowds, unwanted)


def _after(classes: Ragged) -> int:
    return int(classes.values.max(initial=0)) + 1
