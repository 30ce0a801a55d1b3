"""COCO's matching of predicted things with true ones, by any overlap: of boxes, masks or key points.

The things of one class in one picture are taken in the order of their scores, and each gets the free true one that it
overlaps most (``pycocotools/cocoeval.py``, ``evaluateImg``).  Here the first things of all pictures and classes are
matched at once, then the second ones, and so on, for all thresholds and ranges of areas together.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

THRESHOLDS = np.linspace(0.5, 0.95, 10)
"""The overlaps from which a thing counts as found."""
AREAS = {"all": (0.0, 1e10), "small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}
"""Least and greatest area of things in pixels, by name."""

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def greedy(
    group: Integers, thing: Integers, true: Integers, overlap: Floats, crowds: Bools, unwanted: Bools
) -> tuple[Bools, Bools]:
    """Match things with true ones.

    Parameters
    ----------
    group
        The number of picture and class of each thing, ``(d,)``; sorted, and in each group by descending score.
    thing, true, overlap
        The pairs of a thing and a true one of its group that overlap by the least threshold or more, ``(p,)``; sorted
        by thing.
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
    rounds = np.repeat(places_in_groups(group)[thing[firsts]], np.diff(firsts, append=len(thing)))
    # Of the pairs of a thing, the last possible one is chosen: the greatest overlap, and of equal ones the last.
    order = np.lexsort((true, overlap, thing, rounds))
    thing, true, overlap, rounds = thing[order], true[order], overlap[order], rounds[order]
    ends = np.searchsorted(rounds, np.arange(int(rounds[-1]) + 2))
    for start, end in itertools.pairwise(ends.tolist()):
        now, those = true[start:end], thing[start:end]
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


def places_in_groups(group: Integers) -> Integers:
    """Return the place of each element among those of its group, from 0; equal groups follow each other."""
    firsts = np.flatnonzero(np.diff(group, prepend=-1))
    return np.arange(len(group)) - np.repeat(firsts, np.diff(firsts, append=len(group)))
