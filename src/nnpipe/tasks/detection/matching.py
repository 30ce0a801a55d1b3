"""Matching of predicted boxes with true ones.

COCO's rules are those of ``pycocotools/cocoeval.py``, ``evaluateImg``: the boxes of one class in one picture are taken
in the order of their scores, and each gets the free true box that it overlaps most.  Here the first boxes of all
pictures and classes are matched at once, then the second ones, and so on, for all thresholds and areas together.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.ragged import Ragged
from nnpipe.tasks.detection.first_claims import claimed
from nnpipe.tasks.detection.overlaps import Bools, Floats, Integers, overlapping

THRESHOLDS = np.linspace(0.5, 0.95, 10)
"""The overlaps from which a box counts as found."""
AREAS = {"all": (0.0, 1e10), "small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}
"""Least and greatest area of boxes in pixels, by name."""
MOST_DETECTIONS = 100
"""Predicted boxes of one class in one picture that count, the most certain ones."""


@dataclass(frozen=True, eq=False)
class Matches:
    """Which predicted boxes are right, ordered by class and descending score.

    Attributes
    ----------
    picture, label
        Picture and class of each predicted box, ``(d,)``.
    right, ignored
        Whether a box was matched with a true one that counts, and whether it does not count itself;
        ``(d, thresholds, areas)``.  Only COCO tells areas apart.
    true_picture, true_label
        Picture and class of each true box, ``(g,)``.
    wanted
        Whether a true box counts, ``(g, areas)``.
    classes
        A number above all classes.
    """

    picture: Integers
    label: Integers
    right: Bools
    ignored: Bools
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
    if protocol == "coco":
        kept = _places(group) < MOST_DETECTIONS
        order, group = order[kept], group[kept]
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
    again = np.lexsort((-scores.values.astype(np.float64)[order], group % every))
    group = group[again]
    return Matches(
        group // every, group % every, right[again], ignored[again],
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
    shape = (len(boxes), len(THRESHOLDS), len(AREAS))
    right, ignored = np.zeros(shape, bool), np.zeros(shape, bool)
    taken = np.zeros((len(truth), *shape[1:]), bool)
    reached = np.minimum(THRESHOLDS, 1 - 1e-10)
    if not len(boxes):
        return right, ignored
    parts = overlapping(boxes, group, truth, true_group, crowds, float(reached[0]))
    box, true, overlap = (np.concatenate(part) for part in zip(*parts, strict=True))
    if not len(box):
        return right, ignored
    firsts = np.flatnonzero(np.diff(box, prepend=-1))
    rounds = np.repeat(_places(group[box[firsts]]), np.diff(firsts, append=len(box)))
    # Of the pairs of a box, the last possible one is chosen: the greatest overlap, and among equals the last true box.
    order = np.lexsort((true, overlap, box, rounds))
    box, true, overlap, rounds = box[order], true[order], overlap[order], rounds[order]
    ends = np.searchsorted(rounds, np.arange(int(rounds[-1]) + 2))
    for start, end in itertools.pairwise(ends.tolist()):
        now, those = true[start:end], box[start:end]
        count = len(now)
        possible = (overlap[start:end, None] >= reached)[:, :, None] & (~taken[now] | crowds[now, None, None])
        place = np.arange(1, count + 1)[:, None, None] + np.where(unwanted[now], 0, count)[:, None, :]
        starts = np.flatnonzero(np.diff(those, prepend=-1))
        best = np.maximum.reduceat(np.where(possible, place, 0), starts, axis=0)
        right[those[starts]] = best > count
        ignored[those[starts]] = (best > 0) & (best <= count)
        which, threshold, area = np.nonzero(best)
        taken[now[(best[which, threshold, area] - 1) % count], threshold, area] = True
    return right, ignored


def _places(group: Integers) -> Integers:
    """Return the place of each element among those of its group, from 0; equal groups follow each other."""
    firsts = np.flatnonzero(np.diff(group, prepend=-1))
    return np.arange(len(group)) - np.repeat(firsts, np.diff(firsts, append=len(group)))


def _after(classes: Ragged) -> int:
    return int(classes.values.max(initial=0)) + 1
