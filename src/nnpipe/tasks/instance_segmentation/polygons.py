"""Polygons as run lengths, with the very pixels that pycocotools gives them (``rleFrPoly`` of ``common/maskApi.c``).

COCO's truth is outlines, and its metrics are of pixels, so the rule that decides about pixels on the outline is part of
the metrics.  Corners are brought to a grid five times as fine, and edges drawn in it.  Where an edge crosses the middle
of a column of pixels, the mask begins or ends there.  Points of an edge between two crossings decide nothing, so they
are not drawn here: the effort depends on the columns that edges cross, and not on how long they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import DatasetError
from nnpipe.tasks.instance_segmentation.runs import Floats, Integers, runs_between, united

_FINER = 5
_MIDDLE = 2  # of the fine columns of a column of pixels, from 0
_MOST_CROSSINGS = 1 << 20


def runs_of_polygons(polygons: Sequence[Floats], height: int, width: int) -> Integers:
    """Return the runs of the pixels that are in any of several polygons.

    Parameters
    ----------
    polygons
        x and y of the corners of each in pixels, ``(corners, 2)``.
    height, width
        The size of the picture in pixels.

    Returns
    -------
    ndarray
        ``(runs,)``.

    Raises
    ------
    DatasetError
        If the polygons are unreasonably long.
    """
    found: list[Integers] = []
    total = 0
    for polygon in polygons:
        found.append(runs_of_polygon(polygon, height, width))
        total += len(found[-1])
        if total > 2 * _MOST_CROSSINGS:
            raise DatasetError(f"the polygons of a mask cross more than {_MOST_CROSSINGS:,} columns of pixels")
    return found[0] if len(found) == 1 else united(found, height * width)


def runs_of_polygon(corners: Floats, height: int, width: int) -> Integers:
    """Return the runs of the pixels in a polygon; arguments and errors are as in :func:`runs_of_polygons`.

    Examples
    --------
    >>> runs_of_polygon(np.array([[1.0, 0.0], [3.0, 0.0], [3.0, 2.0], [1.0, 2.0]]), 3, 4)
    array([3, 2, 1, 2, 4])
    """
    fine = np.trunc(_FINER * corners + 0.5).astype(np.int64)
    following = np.roll(fine, -1, axis=0)
    extent = np.abs(following - fine)
    flat = extent[:, 0] >= extent[:, 1]
    # An edge is drawn in the direction of its longer side, whichever way the outline goes.
    turned = np.where(flat, fine[:, 0] > following[:, 0], fine[:, 1] > following[:, 1])[:, None]
    start, end = np.where(turned, following, fine), np.where(turned, fine, following)
    lowest, highest = np.minimum(start[:, 0], end[:, 0]), np.maximum(start[:, 0], end[:, 0])
    first = np.maximum(-((_MIDDLE - lowest) // _FINER), 0)
    last = np.minimum((highest - _MIDDLE - 1) // _FINER, width - 1)
    counts = np.maximum(last - first + 1, 0)
    total = int(counts.sum())
    if total > _MOST_CROSSINGS:
        raise DatasetError(
            f"a polygon of {len(corners):,} corners goes to and fro across {total:,} columns of pixels; at most "
            f"{_MOST_CROSSINGS:,} are read"
        )
    edge = np.repeat(np.arange(len(corners)), counts)
    column = first[edge] + np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    border = _FINER * column + _MIDDLE
    row = np.empty(total, np.int64)
    for rows_of, which in ((_rows_of_flat, flat[edge]), (_rows_of_steep, ~flat[edge])):
        row[which] = rows_of(start[edge[which]], end[edge[which]], border[which])
    # A clipped row is where the mask begins or ends in its column.
    begins = np.ceil(np.clip((row + 0.5) / _FINER - 0.5, 0, height)).astype(np.int64)
    places, times = np.unique(column * height + begins, return_counts=True)
    return runs_between(places[times % 2 == 1], height * width)


def _rows_of_flat(start: Integers, end: Integers, border: Integers) -> Integers:
    """Return the upper fine row of each edge, of one point for each fine column, at a border and behind it."""
    slope = (end[:, 1] - start[:, 1]) / (end[:, 0] - start[:, 0])
    here, there = (
        np.trunc(start[:, 1] + slope * (border + step - start[:, 0]) + 0.5).astype(np.int64) for step in (0, 1)
    )
    found: Integers = np.minimum(here, there)
    return found


def _rows_of_steep(start: Integers, end: Integers, border: Integers) -> Integers:
    """Return the last fine row of each edge, of one point for each fine row, before it crosses a border."""
    length = end[:, 1] - start[:, 1]
    slope = (end[:, 0] - start[:, 0]) / length

    def beyond(step: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.trunc(start[:, 0] + slope * step + 0.5) > border

    guess = np.floor((border + 0.5 - start[:, 0]) / slope).astype(np.int64)
    found = guess
    for shift in (-2, -1, 0, 1):  # the guess is rounded
        step = np.clip(guess + shift, 0, length - 1)
        found = np.where(beyond(step) != beyond(step + 1), step, found)
    rows: Integers = start[:, 1] + found
    return rows
