"""Masks as run lengths, as COCO stores them (``pycocotools/maskApi.c``).

A mask is the lengths of its runs of 0 and 1 in turn, column by column, beginning with 0; runs of
length 0 behind the last one mean nothing.  Areas and intersections follow from runs alone, so masks
are never drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import DatasetError, SpecMismatch
from nnpipe.core.tensors import Batch, show_shape
from nnpipe.tasks.frames import (
    compute_pixel_positions,
    convert_boxes_to_pixels,
    interpolate_bilinear,
)

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def encode_mask_runs(mask: npt.NDArray[np.generic]) -> Integers:
    """Return the runs of a mask, ``(height, width)``, whose pixels are 0 or not.

    Examples
    --------
    >>> encode_mask_runs(np.array([[0, 1], [1, 1]]))
    array([1, 3])
    """
    check_call(encode_mask_runs, locals())
    flat = (mask != 0).ravel(order="F")
    ends = np.flatnonzero(np.diff(flat, prepend=False, append=not flat[-1] if flat.size else True))
    return np.diff(ends, prepend=0).astype(np.int64)


def create_runs(borders: Integers, pixels: int) -> Integers:
    """Return the runs of a mask, given the ascending pixels, column by column, at which its ones
    begin and end.
    """
    ends = borders if len(borders) and borders[-1] == pixels else np.append(borders, pixels)
    return np.diff(ends, prepend=0).astype(np.int64)


def merge_runs(masks: Sequence[Integers], pixels: int) -> Integers:
    """Return the runs of the pixels that are in any of several masks of as many pixels.

    Examples
    --------
    >>> merge_runs([np.array([1, 2, 3]), np.array([0, 2, 4]), np.array([4, 0, 1, 1])], 6)
    array([0, 3, 2, 1])
    """
    ends = [np.cumsum(mask) for mask in masks]
    begun = [each[0::2][: len(each) // 2] for each in ends]
    ended = [each[1::2] for each in ends]
    places, owner = np.unique(np.concatenate([*begun, *ended]), return_inverse=True)
    steps = np.concatenate(
        [np.full(sum(map(len, part)), step) for part, step in ((begun, 1), (ended, -1))]
    )
    inside = np.cumsum(np.bincount(owner.reshape(-1), steps, len(places))) > 0
    return create_runs(places[np.diff(inside, prepend=False)], pixels)


def parse_coco_runs(text: bytes) -> Integers:
    """Return the runs that COCO's compressed text stands for (``rleFrString`` of pycocotools).

    A number is written as digits of five bits from the lowest, one character each.  From the fourth
    on, numbers are differences to the last but one.

    Raises
    ------
    ValueError
        If the text ends within a number, or holds other characters or numbers of more than 35 bits.

    Examples
    --------
    >>> parse_coco_runs(b"52203")
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


def decode_mask_runs(runs: Integers, size: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Return the mask, ``(height, width)``, of runs that fill it.

    Examples
    --------
    >>> decode_mask_runs(np.array([1, 3]), (2, 2)).astype(int)
    array([[0, 1],
           [1, 1]])
    """
    flat = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    return np.asarray(flat.reshape((size[0], size[1]), order="F"))


def compute_run_areas(runs: Integers) -> Integers:
    """Return the number of pixels of each mask; ``(n, runs)``."""
    found: Integers = runs[:, 1::2].sum(axis=1)
    return found


def compute_run_intersections(runs: Integers, others: Integers) -> Integers:
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
        # The number of ones before a pixel grows evenly inside each run, and not at all between
        # them.
        borders = np.concatenate([[0], np.cumsum(other)])
        ones = np.concatenate([[0], np.cumsum(np.where(np.arange(len(other)) % 2, other, 0))])
        inside = np.interp(ends, borders, ones) - np.interp(starts, borders, ones)
        found[:, place] = np.rint(inside.sum(axis=1))
    return found


def pad_runs(masks: list[Integers], most: int | None = None) -> Integers:
    """Return runs of several masks as one array, ``(n, runs)``, padded with 0."""
    longest = max([len(each) for each in masks], default=0) if most is None else most
    found = np.zeros((len(masks), longest), np.int64)
    for place, each in zip(found, masks, strict=True):
        place[: len(each)] = each
    return found


AnyFloats = npt.NDArray[np.floating]

_FAR = float(1 << 30)


def extract_picture_runs(
    predictions: Batch, place: int, size: npt.NDArray[Any], given: npt.NDArray[np.bool_]
) -> Integers:
    """Return the runs of some of a picture's predicted masks, in the picture's own size; ``(n,
    runs)``.

    Parameters
    ----------
    predictions
        The predictions of a batch.
    place
        The picture's place in it.
    size
        Height and width of the picture in pixels; ``(2,)``.
    given
        Which of its masks are wanted, ``(k,)``.

    Raises
    ------
    SpecMismatch
        If bitmaps are smaller than the picture.
    """
    if "runs" in predictions:
        return np.asarray(predictions["runs"][place][given], np.int64)
    height, width = int(size[0]), int(size[1])
    wanted = np.flatnonzero(given)
    if "frame" not in predictions:
        masks = predictions["masks"][place]
        if masks.shape[1] < height or masks.shape[2] < width:
            raise SpecMismatch(
                f"masks of {show_shape(masks.shape[1:])} are smaller than their picture, "
                f"{size.tolist()}"
            )
        return pad_runs([encode_mask_runs(masks[thing][:height, :width] > 0.5) for thing in wanted])
    frame = predictions["frame"][place]
    boxes: AnyFloats | None = None
    if "boxes" in predictions:
        own = predictions["boxes"][place][None].astype(np.float64)
        boxes = np.nan_to_num(
            convert_boxes_to_pixels(own, frame[None], np.asarray(size)[None])[0],
            nan=0,
            posinf=_FAR,
            neginf=-_FAR,
        )
        boxes = np.clip(boxes, -_FAR, _FAR)
    if "box_masks" in predictions:
        assert boxes is not None  # as it was checked
        masks = predictions["box_masks"][place]
        return pad_runs(
            [_encode_box_mask(masks[thing], boxes[thing], height, width) for thing in wanted]
        )
    masks = predictions["masks"][place]
    # One mask at a time is drawn, and no more of it than its box.
    rows, columns = compute_pixel_positions(frame, size, masks.shape[1:])
    everything = np.array([0, 0, width, height])
    found = []
    for thing in wanted:
        left, top, wide, high = everything if boxes is None else boxes[thing]
        top, bottom = (int(np.clip(np.ceil(each), 0, height)) for each in (top, top + high))
        left, right = (int(np.clip(np.ceil(each), 0, width)) for each in (left, left + wide))
        part = interpolate_bilinear(masks[thing], rows[top:bottom], columns[left:right]) > 0.5
        found.append(encode_partial_mask(part, top, left, height, width))
    return pad_runs(found)


def _encode_box_mask(mask: npt.NDArray[Any], box: AnyFloats, height: int, width: int) -> Integers:
    """Return the runs of a mask that covers a box, as torchvision's ``paste_masks_in_image`` draws
    it.

    Parameters
    ----------
    mask
        ``(rows, columns)``; a border of zeros is put around it, so that it fades out at its edges.
    box
        Left, top, width and height in pixels of the picture.
    height, width
        The size of the picture.
    """
    cells = np.pad(mask.astype(np.float32), 1)
    scales = np.array([cells.shape[1] / mask.shape[1], cells.shape[0] / mask.shape[0]])
    half = box[2:] / 2
    middle = box[:2] + half
    first, last = (np.trunc(middle + side * half * scales).astype(np.int64) for side in (-1, 1))
    extent = np.maximum(last - first + 1, 1)
    start = np.clip(first, 0, [width, height])
    end = np.clip(first + extent, start, [width, height])
    columns, rows = (
        (np.arange(start[axis], end[axis]) - first[axis] + 0.5)
        * cells.shape[1 - axis]
        / extent[axis]
        - 0.5
        for axis in (0, 1)
    )
    return encode_partial_mask(
        interpolate_bilinear(cells, rows, columns) > 0.5,
        int(start[1]),
        int(start[0]),
        height,
        width,
    )


def encode_partial_mask(
    part: npt.NDArray[np.bool_], top: int, left: int, height: int, width: int
) -> Integers:
    """Return the runs of a mask that is set in a part of a picture only.

    Parameters
    ----------
    part
        ``(rows, columns)``, the pixels from ``top`` and ``left`` on.
    top, left
        Where the part begins.
    height, width
        The size of the picture.
    """
    edges = np.diff(np.pad(part, ((1, 1), (0, 0))).astype(np.int8), axis=0)
    columns, rows = np.nonzero(edges.T)
    places, times = np.unique((left + columns) * height + top + rows, return_counts=True)
    # Where a column is set to its end and the next one from its beginning, the run goes on.
    return create_runs(places[times == 1].astype(np.int64), height * width)


# Polygons as run lengths, with the very pixels that pycocotools gives them (``rleFrPoly`` of
# ``common/maskApi.c``).
#
# COCO's truth is outlines, and its metrics are of pixels, so the rule that decides about pixels on
# the outline is part of the metrics.  Corners are brought to a grid five times as fine, and edges
# drawn in it.  Where an edge crosses the middle of a column of pixels, the mask begins or ends
# there.  Points of an edge between two crossings decide nothing, so they are not drawn here: the
# effort depends on the columns that edges cross, and not on how long they are.

_FINER = 5
_MIDDLE = 2  # of the fine columns of a column of pixels, from 0
_MOST_CROSSINGS = 1 << 20


def encode_polygons(polygons: Sequence[Floats], height: int, width: int) -> Integers:
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
        found.append(encode_polygon(polygon, height, width))
        total += len(found[-1])
        if total > 2 * _MOST_CROSSINGS:
            raise DatasetError(
                f"the polygons of a mask cross more than {_MOST_CROSSINGS:,} columns of pixels"
            )
    return found[0] if len(found) == 1 else merge_runs(found, height * width)


def encode_polygon(corners: Floats, height: int, width: int) -> Integers:
    """Return the runs of the pixels in a polygon; arguments and errors are as in
    :func:`encode_polygons`.

    Examples
    --------
    >>> encode_polygon(np.array([[1.0, 0.0], [3.0, 0.0], [3.0, 2.0], [1.0, 2.0]]), 3, 4)
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
            f"a polygon of {len(corners):,} corners goes to and fro across {total:,} columns of "
            f"pixels; at most {_MOST_CROSSINGS:,} are read"
        )
    edge = np.repeat(np.arange(len(corners)), counts)
    column = first[edge] + np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    border = _FINER * column + _MIDDLE
    row = np.empty(total, np.int64)
    for rows_of, which in (
        (_compute_flat_edge_rows, flat[edge]),
        (_compute_steep_edge_rows, ~flat[edge]),
    ):
        row[which] = rows_of(start[edge[which]], end[edge[which]], border[which])
    # A clipped row is where the mask begins or ends in its column.
    begins = np.ceil(np.clip((row + 0.5) / _FINER - 0.5, 0, height)).astype(np.int64)
    places, times = np.unique(column * height + begins, return_counts=True)
    return create_runs(places[times % 2 == 1], height * width)


def _compute_flat_edge_rows(start: Integers, end: Integers, border: Integers) -> Integers:
    """Return the upper fine row of each edge, of one point for each fine column, at a border and
    behind it.
    """
    slope = (end[:, 1] - start[:, 1]) / (end[:, 0] - start[:, 0])
    here, there = (
        np.trunc(start[:, 1] + slope * (border + step - start[:, 0]) + 0.5).astype(np.int64)
        for step in (0, 1)
    )
    found: Integers = np.minimum(here, there)
    return found


def _compute_steep_edge_rows(start: Integers, end: Integers, border: Integers) -> Integers:
    """Return the last fine row of each edge, of one point for each fine row, before it crosses a
    border.
    """
    length = end[:, 1] - start[:, 1]
    slope = (end[:, 0] - start[:, 0]) / length

    def is_beyond(step: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.trunc(start[:, 0] + slope * step + 0.5) > border

    guess = np.floor((border + 0.5 - start[:, 0]) / slope).astype(np.int64)
    found = guess
    for shift in (-2, -1, 0, 1):  # the guess is rounded
        step = np.clip(guess + shift, 0, length - 1)
        found = np.where(is_beyond(step) != is_beyond(step + 1), step, found)
    rows: Integers = start[:, 1] + found
    return rows
