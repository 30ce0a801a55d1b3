"""Predicted masks in the pixels of a picture, as run lengths: bitmaps of any size, of the picture or of boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.tensors import Batch, show_shape
from nnpipe.tasks.frames import in_pixels, interpolated, places_of_pixels
from nnpipe.tasks.instance_segmentation.runs import Integers, padded, runs_between, runs_of

Floats = npt.NDArray[np.floating]

_FAR = float(1 << 30)


def runs_in_picture(predictions: Batch, place: int, size: npt.NDArray[Any], given: npt.NDArray[np.bool_]) -> Integers:
    """Return the runs of some of a picture's predicted masks, in the picture's own size; ``(n, runs)``.

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
                f"masks of {show_shape(masks.shape[1:])} are smaller than their picture, {size.tolist()}"
            )
        return padded([runs_of(masks[thing][:height, :width] > 0.5) for thing in wanted])
    frame = predictions["frame"][place]
    boxes: Floats | None = None
    if "boxes" in predictions:
        own = predictions["boxes"][place][None].astype(np.float64)
        boxes = np.nan_to_num(in_pixels(own, frame[None], np.asarray(size)[None])[0], nan=0, posinf=_FAR, neginf=-_FAR)
        boxes = np.clip(boxes, -_FAR, _FAR)
    if "box_masks" in predictions:
        assert boxes is not None  # as it was checked
        masks = predictions["box_masks"][place]
        return padded([_of_box(masks[thing], boxes[thing], height, width) for thing in wanted])
    masks = predictions["masks"][place]
    # One mask at a time is drawn, and no more of it than its box.
    rows, columns = places_of_pixels(frame, size, masks.shape[1:])
    everything = np.array([0, 0, width, height])
    found = []
    for thing in wanted:
        left, top, wide, high = everything if boxes is None else boxes[thing]
        top, bottom = (int(np.clip(np.ceil(each), 0, height)) for each in (top, top + high))
        left, right = (int(np.clip(np.ceil(each), 0, width)) for each in (left, left + wide))
        part = interpolated(masks[thing], rows[top:bottom], columns[left:right]) > 0.5
        found.append(runs_of_part(part, top, left, height, width))
    return padded(found)


def _of_box(mask: npt.NDArray[Any], box: Floats, height: int, width: int) -> Integers:
    """Return the runs of a mask that covers a box, as torchvision's ``paste_masks_in_image`` draws it.

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
        (np.arange(start[axis], end[axis]) - first[axis] + 0.5) * cells.shape[1 - axis] / extent[axis] - 0.5
        for axis in (0, 1)
    )
    return runs_of_part(interpolated(cells, rows, columns) > 0.5, int(start[1]), int(start[0]), height, width)


def runs_of_part(part: npt.NDArray[np.bool_], top: int, left: int, height: int, width: int) -> Integers:
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
    return runs_between(places[times == 1].astype(np.int64), height * width)
