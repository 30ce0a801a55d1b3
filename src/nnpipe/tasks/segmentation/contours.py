"""Pixels near contours, by which the boundary IoU judges how well a mask follows the outline of things.

B. Cheng, R. Girshick, P. Dollár, A. C. Berg, A. Kirillov: Boundary IoU: Improving Object-Centric Image Segmentation
Evaluation, CVPR 2021 (https://arxiv.org/abs/2103.16562).  A pixel is near a contour if a pixel of another class, or the
edge of the picture, is at most as many rows and as many columns away as its square structuring element reaches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def near_contours(labels: npt.NDArray[np.int64], reach: int) -> npt.NDArray[np.bool_]:
    """Return which pixels are near the contour of their class.

    Parameters
    ----------
    labels
        Class of each pixel, ``(height, width)``.
    reach
        The greatest distance in rows and columns, at least 1.

    Examples
    --------
    >>> near_contours(np.array([[0, 0, 0, 0, 1, 1, 1, 1]]).repeat(9, axis=0), 1)[4].astype(int)
    array([1, 0, 0, 1, 1, 0, 0, 1])
    """
    # A square of one class: each of its rows is of one class, and so is one of its columns.
    along = _alike(labels[:, 1:] == labels[:, :-1], reach)
    rows = _all_within(along.T, reach).T
    column = _alike((labels[1:] == labels[:-1]).T, reach).T
    near: npt.NDArray[np.bool_] = ~(rows & column)
    return near


def _alike(same: npt.NDArray[np.bool_], reach: int) -> npt.NDArray[np.bool_]:
    """Return for each place of each row whether all neighbours up to ``reach`` away are alike.

    ``same`` says whether neighbours are, ``(rows, places - 1)``; a place whose neighbours leave the row is not.
    """
    places = same.shape[1] + 1
    found = np.zeros((len(same), places), bool)
    if places > 2 * reach:
        sums = np.zeros((len(same), places), np.int32)
        np.cumsum(same, axis=1, out=sums[:, 1:])
        found[:, reach : places - reach] = sums[:, 2 * reach :] - sums[:, : places - 2 * reach] == 2 * reach
    return found


def _all_within(held: npt.NDArray[np.bool_], reach: int) -> npt.NDArray[np.bool_]:
    """Return for each place of each row whether all places up to ``reach`` away hold, and are in the row."""
    found = np.zeros_like(held)
    places = held.shape[1]
    if places > 2 * reach:
        sums = np.zeros((len(held), places + 1), np.int32)
        np.cumsum(held, axis=1, out=sums[:, 1:])
        width = 2 * reach + 1
        found[:, reach : places - reach] = sums[:, width:] - sums[:, :-width] == width
    return found
