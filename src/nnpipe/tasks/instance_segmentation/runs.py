"""Masks as run lengths, as COCO stores them (``pycocotools/maskApi.c``).

A mask is the lengths of its runs of 0 and 1 in turn, column by column, beginning with 0; runs of length 0 behind the
last one mean nothing.  Areas and intersections follow from runs alone, so masks are never drawn.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def runs_of(mask: npt.NDArray[np.generic]) -> Integers:
    """Return the runs of a mask, ``(height, width)``, whose pixels are 0 or not.

    Examples
    --------
    >>> runs_of(np.array([[0, 1], [1, 1]]))
    array([1, 3])
    """
    flat = (mask != 0).ravel(order="F")
    ends = np.flatnonzero(np.diff(flat, prepend=False, append=not flat[-1] if flat.size else True))
    return np.diff(ends, prepend=0).astype(np.int64)


def areas_of(runs: Integers) -> Integers:
    """Return the number of pixels of each mask; ``(n, runs)``."""
    found: Integers = runs[:, 1::2].sum(axis=1)
    return found


def intersections(runs: Integers, others: Integers) -> Integers:
    """Return how many pixels each mask shares with each other one of the same picture.

    Parameters
    ----------
    runs, others
        Runs of masks of as many pixels, ``(n, runs)`` and ``(m, runs)``.

    Returns
    -------
    ndarray
        ``(n, m)``.
    """
    found = np.zeros((len(runs), len(others)), np.int64)
    ends = np.cumsum(runs, axis=1)
    starts = ends - runs
    starts, ends = starts[:, 1::2], ends[:, 1::2]
    for place, other in enumerate(others):
        # The number of ones before a pixel grows evenly inside each run, and not at all between them.
        borders = np.concatenate([[0], np.cumsum(other)])
        ones = np.concatenate([[0], np.cumsum(np.where(np.arange(len(other)) % 2, other, 0))])
        inside = np.interp(ends, borders, ones) - np.interp(starts, borders, ones)
        found[:, place] = np.rint(inside.sum(axis=1))
    return found


def padded(masks: list[Integers], most: int | None = None) -> Integers:
    """Return runs of several masks as one array, ``(n, runs)``, padded with 0."""
    longest = max([len(each) for each in masks], default=0) if most is None else most
    found = np.zeros((len(masks), longest), np.int64)
    for place, each in zip(found, masks, strict=True):
        place[: len(each)] = each
    return found
