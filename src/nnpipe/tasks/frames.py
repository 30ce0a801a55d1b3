"""Frames: where a picture lies in a model's input, and places in the one as places in the other.

The frame of a prediction is ``(n, 3)`` float32: height and width of the model's input, and the fit:
0 if the picture was squeezed to it, 1 if it was letterboxed in the top left corner, 2 if in the
centre.  Since pictures have different sizes, predictions are converted where these are known,
beside the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.image_conversion import fit_letterbox

FITS = ("squeeze", "letterbox", "letterbox-centre")
"""The ways to bring a picture to a model's input, in the order of their numbers in a frame."""


def create_frames(count: int, height: int, width: int, fit: str) -> npt.NDArray[np.float32]:
    """Return the frame of ``count`` pictures, ``(count, 3)``."""
    return np.tile(np.array([height, width, FITS.index(fit)], np.float32), (count, 1))


def convert_boxes_to_pixels(
    boxes: npt.NDArray[Any], frames: npt.NDArray[Any], sizes: npt.NDArray[np.integer]
) -> npt.NDArray[np.floating]:
    """Return boxes in pixels of the pictures.

    Parameters
    ----------
    boxes
        Left, top, width and height in shares of the input's width and height; ``(n, k, 4)``.
    frames
        ``(n, 3)``.
    sizes
        Height and width of the pictures in pixels; ``(n, 2)``.

    Raises
    ------
    SpecMismatch
        If the frames do not belong to the boxes.
    """
    _check(frames, len(boxes))
    steps = np.array(
        [_compute_transform(*each) for each in zip(frames, sizes, strict=True)], np.float64
    ).reshape(-1, 2, 4)
    corners = boxes.astype(np.float64)
    corners[..., 2:] += corners[..., :2]
    corners = corners * steps[:, None, 0] - steps[:, None, 1]
    corners[..., 2:] -= corners[..., :2]
    return corners.astype(boxes.dtype)


def convert_points_to_pixels(
    points: npt.NDArray[Any], frames: npt.NDArray[Any], sizes: npt.NDArray[np.integer]
) -> npt.NDArray[np.float64]:
    """Return points in pixels of the pictures.

    Parameters
    ----------
    points
        x and y in shares of the input's width and height; ``(n, ..., 2)``.
    frames, sizes
        As in :func:`convert_boxes_to_pixels`.

    Raises
    ------
    SpecMismatch
        If the frames do not belong to the points.
    """
    _check(frames, len(points))
    steps = np.array(
        [_compute_transform(*each) for each in zip(frames, sizes, strict=True)], np.float64
    ).reshape(-1, 2, 4)
    factors, offsets = (
        steps[:, part, :2].reshape(-1, *(1,) * (points.ndim - 2), 2) for part in (0, 1)
    )
    found: npt.NDArray[np.float64] = points * factors - offsets
    return found


def find_pixel_cells(
    frame: npt.NDArray[Any], size: npt.NDArray[np.integer], grid: tuple[int, int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the row and the column of the cell that holds the centre of each pixel of a picture.

    Parameters
    ----------
    frame
        ``(3,)``.
    size
        Height and width of the picture in pixels; ``(2,)``.
    grid
        The number of rows and columns of cells over the model's input, such as a mask has them.

    Returns
    -------
    rows, columns
        ``(height,)`` and ``(width,)``: pixel ``(y, x)`` is in the cell ``(rows[y], columns[x])``.
    """
    (across, down, *_), (left, top, *_) = _compute_transform(frame, size)
    rows, columns = (
        np.clip(
            np.floor((np.arange(int(pixels)) + 0.5 + offset) / factor * cells), 0, cells - 1
        ).astype(np.int64)
        for pixels, offset, factor, cells in (
            (size[0], top, down, grid[0]),
            (size[1], left, across, grid[1]),
        )
    )
    return rows, columns


def map_to_picture(
    values: npt.NDArray[Any], frames: npt.NDArray[Any] | None, shape: Sequence[int]
) -> npt.NDArray[Any]:
    """Return what a model says of each cell of its input for each pixel of a picture instead.

    Parameters
    ----------
    values
        ``(rows, columns)``.
    frames
        The frame of this picture alone, ``(1, 3)``; without one, the picture is squeezed into the
        cells.
    shape
        The shape of the picture, whose height and width come first.

    Returns
    -------
    ndarray
        ``(height, width)``.
    """
    grid = (values.shape[0], values.shape[1])
    frame = np.array([*grid, 0], np.float32) if frames is None else frames[0]
    rows, columns = find_pixel_cells(frame, np.array(shape[:2], np.int64), grid)
    return np.asarray(values[rows[:, None], columns])


def resample_to_picture(
    values: npt.NDArray[Any], frame: npt.NDArray[Any], size: npt.NDArray[np.integer]
) -> npt.NDArray[np.float32]:
    """Return values of a grid over the model's input for each pixel of a picture, bilinear between
    centres of cells.

    Parameters
    ----------
    values
        ``(rows, columns)``.
    frame, size
        As in :func:`find_pixel_cells`.

    Returns
    -------
    ndarray
        ``(height, width)``.
    """
    return interpolate_bilinear(
        values, *compute_pixel_positions(frame, size, (values.shape[0], values.shape[1]))
    )


def compute_pixel_positions(
    frame: npt.NDArray[Any], size: npt.NDArray[np.integer], grid: tuple[int, int]
) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]:
    """Return where the centres of a picture's pixels are in a grid of cells, whose centres are
    whole numbers.

    Parameters and results are as in :func:`find_pixel_cells`, but for the results being real.
    """
    (across, down, *_), (left, top, *_) = _compute_transform(frame, size)
    rows, columns = (
        (np.arange(int(pixels)) + 0.5 + offset) / factor * cells - 0.5
        for pixels, offset, factor, cells in (
            (size[0], top, down, grid[0]),
            (size[1], left, across, grid[1]),
        )
    )
    return rows, columns


def interpolate_bilinear(
    values: npt.NDArray[Any], rows: npt.NDArray[np.floating], columns: npt.NDArray[np.floating]
) -> npt.NDArray[np.float32]:
    """Return values between those of a grid, bilinear; beyond its borders, those at the borders go
    on.

    Parameters
    ----------
    values
        ``(rows, columns)``.
    rows, columns
        The places that are asked for, ``(height,)`` and ``(width,)``.

    Returns
    -------
    ndarray
        ``(height, width)``.
    """
    found = values.astype(np.float32)
    for axis, places in ((0, rows), (1, columns)):
        last = found.shape[axis] - 1
        place = np.clip(places, 0, last)
        before = np.floor(place).astype(np.int64)
        share = (place - before).astype(np.float32).reshape(-1, *(1,) * (1 - axis))
        behind = np.take(found, np.minimum(before + 1, last), axis=axis)
        found = (1 - share) * np.take(found, before, axis=axis) + share * behind
    return found


def _check(frames: npt.NDArray[Any], count: int) -> None:
    if frames.shape != (count, 3):
        raise SpecMismatch(
            f"the frame of {count} pictures has the shape ({count}, 3), not {frames.shape}"
        )


def _compute_transform(frame: npt.NDArray[Any], size: npt.NDArray[np.integer]) -> list[list[float]]:
    """Return factors and offsets by which corners in shares of the input become corners in
    pixels.
    """
    height, width, fit = (int(each) for each in frame)
    rows, columns = int(size[0]), int(size[1])
    if not fit:
        return [[columns, rows] * 2, [0.0] * 4]
    place = fit_letterbox(rows, columns, height, width, centred=fit == 2)
    factors = width / place.scale, height / place.scale
    return [[*factors] * 2, [place.left / place.scale, place.top / place.scale] * 2]
