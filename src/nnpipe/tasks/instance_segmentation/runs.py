"""Masks as run lengths, as COCO stores them (``pycocotools/maskApi.c``).

A mask is the lengths of its runs of 0 and 1 in turn, column by column, beginning with 0; runs of length 0 behind the
last one mean nothing.  Areas and intersections follow from runs alone, so masks are never drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def runs_of(mask: npt.NDArray[np.generic]) -> Integers:
    """Return the runs of a mask, ``(height, width)``, whose pixels are 0 or not.

    Examples
    --------
    >>> runs_of(np.array([[0, 1], [1, 1]]))
    array([1, 3])
    """
    check_call(runs_of, locals())
    flat = (mask != 0).ravel(order="F")
    ends = np.flatnonzero(np.diff(flat, prepend=False, append=not flat[-1] if flat.size else True))
    return np.diff(ends, prepend=0).astype(np.int64)


def runs_between(borders: Integers, pixels: int) -> Integers:
    """Return the runs of a mask, given the ascending pixels, column by column, at which its ones begin and end."""
    ends = borders if len(borders) and borders[-1] == pixels else np.append(borders, pixels)
    return np.diff(ends, prepend=0).astype(np.int64)


def united(masks: Sequence[Integers], pixels: int) -> Integers:
    """Return the runs of the pixels that are in any of several masks of as many pixels.

    Examples
    --------
    >>> united([np.array([1, 2, 3]), np.array([0, 2, 4]), np.array([4, 0, 1, 1])], 6)
    array([0, 3, 2, 1])
    """
    ends = [np.cumsum(mask) for mask in masks]
    begun = [each[0::2][: len(each) // 2] for each in ends]
    ended = [each[1::2] for each in ends]
    places, owner = np.unique(np.concatenate([*begun, *ended]), return_inverse=True)
    steps = np.concatenate([np.full(sum(map(len, part)), step) for part, step in ((begun, 1), (ended, -1))])
    inside = np.cumsum(np.bincount(owner.reshape(-1), steps, len(places))) > 0
    return runs_between(places[np.diff(inside, prepend=False)], pixels)


def runs_of_text(text: bytes) -> Integers:
    """Return the runs that COCO's compressed text stands for (``rleFrString`` of pycocotools).

    A number is written as digits of five bits from the lowest, one character each.  From the fourth on, numbers are
    differences to the last but one.

    Raises
    ------
    ValueError
        If the text ends within a number, or holds other characters or numbers of more than 35 bits.

    Examples
    --------
    >>> runs_of_text(b"52203")
    array([5, 2, 2, 2, 5])
    """
    codes = np.frombuffer(text, np.uint8).astype(np.int64) - ord("0")
    if codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < 64:
        raise ValueError("it holds characters that are not used in it")
    last = np.flatnonzero(codes & 32 == 0)
    if len(codes) != (last[-1] + 1 if len(last) else 0):
        raise ValueError("it ends within a number")
    first = np.concatenate([[0], last[:-1] + 1]).astype(np.int64) if len(last) else last
    digits = last - first + 1
    if int(digits.max(initial=0)) > 7:
        raise ValueError("it holds a number of more than 35 bits")
    place = np.arange(len(codes)) - np.repeat(first, digits)
    values = np.add.reduceat((codes & 31) << 5 * place, first) if len(first) else first
    values = values - np.where(codes[last] & 16, 1 << 5 * digits, 0)
    for part in (1, 2):
        values[part::2] = np.cumsum(values[part::2])
    return values


def mask_of(runs: Integers, size: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Return the mask, ``(height, width)``, of runs that fill it.

    Examples
    --------
    >>> mask_of(np.array([1, 3]), (2, 2)).astype(int)
    array([[0, 1],
           [1, 1]])
    """
    flat = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    return np.asarray(flat.reshape((size[0], size[1]), order="F"))


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
