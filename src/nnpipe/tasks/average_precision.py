"""Average precision and recall as COCO computes them, of things of any kind: boxes, masks or key
points.

They are those of ``pycocotools/cocoeval.py``, ``accumulate`` and ``summarize``.  Precision and
recall change upwards only where a thing is right, so only these are looked at for each weighting of
pictures.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nnpipe.core.quality_metric import Floats

RECALLS = np.linspace(0.0, 1.0, 101)
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PrecisionCurves:
    """Precision and recall at the boxes that are right, for each class and threshold, as functions
    of weights.

    A curve is one class at one threshold; the right boxes of all curves follow each other.

    Attributes
    ----------
    picture
        Picture of each right box, ``(r,)``.
    curve
        Curve of each right box, ``(r,)``, ascending.
    last, first
        For each right box, the place after it and the start of its class among the boxes that count
        in all curves (``usual``, their pictures), ``(r,)``.
    rare_last, rare_first
        The same among those that count in some curves only (``rare``, their pictures).
    label
        Class of each curve.
    wanted_picture, wanted_label
        Picture and class of each true box that counts.
    classes, thresholds
        The number of classes, and of thresholds.
    """

    picture: Integers
    curve: Integers
    last: Integers
    first: Integers
    usual: Integers
    rare_last: Integers
    rare_first: Integers
    rare: Integers
    label: Integers
    wanted_picture: Integers
    wanted_label: Integers
    classes: int
    thresholds: int

    @classmethod
    def from_matches(
        cls,
        picture: Integers,
        label: Integers,
        right: npt.NDArray[np.bool_],
        ignored: npt.NDArray[np.bool_],
        wanted_picture: Integers,
        wanted_label: Integers,
        classes: int,
    ) -> PrecisionCurves:
        """Return the curves of predicted things, ordered by class and descending score.

        Parameters
        ----------
        picture, label
            Picture and class of each thing, ``(d,)``.
        right, ignored
            Whether a thing was matched with a true one that counts, and whether it does not count
            itself; ``(d, thresholds)``.
        wanted_picture, wanted_label
            Picture and class of each true thing that counts, ``(g,)``.
        classes
            A number above all classes.
        """
        counted = ~ignored
        always = np.asarray(counted.all(axis=1))
        threshold, box = np.nonzero(right.T)
        rare_threshold, rare_box = np.nonzero((counted & ~always[:, None]).T)
        count = len(label)
        start = np.searchsorted(label, label[box])
        before = np.concatenate([[0], np.cumsum(always)])
        rare_place = rare_threshold * (count + 1) + rare_box
        return cls(
            picture=picture[box],
            curve=threshold * classes + label[box],
            last=before[box + 1],
            first=before[start],
            usual=picture[always],
            rare_last=np.searchsorted(rare_place, threshold * (count + 1) + box, "right"),
            rare_first=np.searchsorted(rare_place, threshold * (count + 1) + start, "left"),
            rare=picture[rare_box],
            label=np.tile(np.arange(classes), right.shape[1]),
            wanted_picture=wanted_picture,
            wanted_label=wanted_label,
            classes=classes,
            thresholds=right.shape[1],
        )

    @cached_property
    def start(self) -> Integers:
        """The first right box of each right box's curve, ``(r,)``."""
        return np.searchsorted(self.curve, self.curve).astype(np.int64)

    @cached_property
    def firsts(self) -> Integers:
        """The first right box of each curve that has any."""
        return np.flatnonzero(self.start == np.arange(len(self.start)))

    @cached_property
    def own(self) -> Integers:
        """The class of each right box, ``(r,)``."""
        return self.label[self.curve]

    def count_wanted(self, weights: Floats) -> Floats:
        """Return the number of true boxes of each class, ``(classes,)``."""
        return np.bincount(self.wanted_label, weights[self.wanted_picture], self.classes).astype(
            np.float64
        )

    def mean(self, curves: Floats, wanted: Floats) -> float:
        """Return the mean over the curves of all classes that have true boxes; NaN without any."""
        there = int(np.count_nonzero(wanted > 0))
        return (
            float(curves[np.tile(wanted > 0, self.thresholds)].sum()) / (there * self.thresholds)
            if there
            else np.nan
        )

    def compute_average_precision(self, weights: Floats, recalls: Floats | None = RECALLS) -> float:
        """Return the mean of the precision at these recalls, or at all, over all curves."""
        wanted = self.count_wanted(weights)
        each = weights[self.picture]
        right = np.cumsum(each)
        right = right - np.concatenate([[0.0], right])[self.start]
        usual, rare = (
            _compute_cumulative_sums(weights[self.usual]),
            _compute_cumulative_sums(weights[self.rare]),
        )
        counted = (
            usual[self.last] - usual[self.first] + rare[self.rare_last] - rare[self.rare_first]
        )
        precision = right / (counted + np.spacing(1))
        of_class = wanted[self.own]
        recall = np.divide(right, of_class, out=np.zeros(len(right)), where=of_class > 0)
        if recalls is None:
            fresh = np.divide(each, of_class, out=np.zeros(len(each)), where=of_class > 0)
        else:
            reached = _count_reached(recall, recalls) / len(recalls)
            fresh = np.diff(reached, prepend=0)
            fresh[self.firsts] = reached[self.firsts]
        # The greatest precision from each recall on: each curve, from the last to the first, is
        # lifted above the one before, so that one pass serves all.
        lift = 2.0 * (len(self.label) - self.curve)
        best = np.maximum.accumulate((precision + lift)[::-1])[::-1] - lift
        areas = np.bincount(self.curve, best * fresh, len(self.label)).astype(np.float64)
        return self.mean(areas, wanted)

    def compute_average_recall(self, weights: Floats) -> float:
        """Return the mean of the greatest recall, over all curves."""
        wanted = self.count_wanted(weights)
        right = np.bincount(self.curve, weights[self.picture], len(self.label))
        of_class = wanted[self.label]
        return self.mean(
            np.divide(right, of_class, out=np.zeros(len(right)), where=of_class > 0), wanted
        )


def _count_reached(recall: Floats, recalls: Floats) -> Integers:
    """Return how many of some evenly spaced recalls from 0 to 1 are at most as great as each of
    others.

    A recall of 0.7 is asked for as 0.7000000000000001, as by pycocotools, so products are corrected
    by comparisons.
    """
    last = len(recalls) - 1
    place = np.minimum((recall * last).astype(np.int64), last)
    place -= recalls[place] > recall
    place += (place < last) & (recalls[np.minimum(place + 1, last)] <= recall)
    return place + 1


def _compute_cumulative_sums(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


# COCO's matching of predicted things with true ones, by any overlap: of boxes, masks or key points.
#
# The things of one class in one picture are taken in the order of their scores, and each gets the
# free true one that it overlaps most (``pycocotools/cocoeval.py``, ``evaluateImg``).  Here the
# first things of all pictures and classes are matched at once, then the second ones, and so on, for
# all thresholds and ranges of areas together.

THRESHOLDS = np.linspace(0.5, 0.95, 10)
"""The overlaps from which a thing counts as found."""
AREAS = {
    "all": (0.0, 1e10),
    "small": (0.0, 32.0**2),
    "medium": (32.0**2, 96.0**2),
    "large": (96.0**2, 1e10),
}
"""Least and greatest area of things in pixels, by name."""

Bools = npt.NDArray[np.bool_]


def match_greedily(
    group: Integers,
    thing: Integers,
    true: Integers,
    overlap: Floats,
    crowds: Bools,
    unwanted: Bools,
) -> tuple[Bools, Bools]:
    """Match things with true ones.

    Parameters
    ----------
    group
        The number of picture and class of each thing, ``(d,)``; sorted, and in each group by
        descending score.
    thing, true, overlap
        The pairs of a thing and a true one of its group that overlap by the least threshold or
        more, ``(p,)``; sorted by thing.
    crowds
        Whether several things may be matched with a true one, ``(g,)``.
    unwanted
        Whether a true thing does not count, for each range of areas, ``(g, areas)``.

    Returns
    -------
    right, ignored
        Whether each thing was matched with a true one that counts, or with one that does not;
        ``(d, thresholds, areas)``.
    """
    shape = (len(group), len(THRESHOLDS), unwanted.shape[1])
    right, ignored = np.zeros(shape, bool), np.zeros(shape, bool)
    if not len(thing):
        return right, ignored
    taken = np.zeros((len(unwanted), *shape[1:]), bool)
    reached = np.minimum(THRESHOLDS, 1 - 1e-10)
    firsts = np.flatnonzero(np.diff(thing, prepend=-1))
    rounds = np.repeat(
        compute_group_positions(group)[thing[firsts]], np.diff(firsts, append=len(thing))
    )
    # Of the pairs of a thing, the last possible one is chosen: the greatest overlap, and of equal
    # ones the last.
    order = np.lexsort((true, overlap, thing, rounds))
    thing, true, overlap, rounds = thing[order], true[order], overlap[order], rounds[order]
    ends = np.searchsorted(rounds, np.arange(int(rounds[-1]) + 2))
    for start, end in itertools.pairwise(ends.tolist()):
        now, those = true[start:end], thing[start:end]
        count = len(now)
        possible = (overlap[start:end, None] >= reached)[:, :, None] & (
            ~taken[now] | crowds[now, None, None]
        )
        place = (
            np.arange(1, count + 1)[:, None, None] + np.where(unwanted[now], 0, count)[:, None, :]
        )
        starts = np.flatnonzero(np.diff(those, prepend=-1))
        best = np.maximum.reduceat(np.where(possible, place, 0), starts, axis=0)
        right[those[starts]] = best > count
        ignored[those[starts]] = (best > 0) & (best <= count)
        which, threshold, area = np.nonzero(best)
        taken[now[(best[which, threshold, area] - 1) % count], threshold, area] = True
    return right, ignored


def compute_group_positions(group: Integers) -> Integers:
    """Return the place of each element among those of its group, from 0; equal groups follow
    each other.
    """
    firsts = np.flatnonzero(np.diff(group, prepend=-1))
    return np.arange(len(group)) - np.repeat(firsts, np.diff(firsts, append=len(group)))
