"""Object key point similarity (OKS), by which COCO compares poses (``pycocotools/cocoeval.py``, ``computeOks``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnpipe.core.quality_metric import Floats

COCO_SIGMAS = (
    0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072, 0.062, 0.062, 0.107, 0.107, 0.087, 0.087, 0.089,
    0.089,
)  # fmt: skip
"""How far people place each of COCO's 17 key points apart, in shares of the person's scale."""


def sigmas_of(points: int, given: Sequence[float] | None = None) -> tuple[float, ...]:
    """Return the deviation of each key point: as given, COCO's for 17 points, or else 1 / points, as Ultralytics'."""
    if given is not None:
        return tuple(given)
    return COCO_SIGMAS if points == len(COCO_SIGMAS) else (1 / max(1, points),) * points


def similarities(points: Floats, truth: Floats, areas: Floats, boxes: Floats, sigmas: Sequence[float]) -> Floats:
    """Return the OKS of each predicted pose with each true one of a picture.

    Parameters
    ----------
    points
        x, y and score of the predicted key points, ``(d, points, 3)``.
    truth
        x, y and visibility of the true ones, ``(g, points, 3)``; those of visibility 0 do not count.
    areas
        The area of each true person, ``(g,)``.
    boxes
        Left, top, width and height of each true person, ``(g, 4)``.  A person without any visible point is compared
        with the distance of points from twice the box.
    sigmas
        The deviation of each key point.

    Returns
    -------
    ndarray
        ``(d, g)``, from 0 to 1.
    """
    if not len(points) or not len(truth):
        return np.zeros((len(points), len(truth)))
    variances = (2 * np.asarray(sigmas)) ** 2
    visible: npt.NDArray[np.bool_] = truth[..., 2] > 0
    apart = points[:, None, :, :2] - truth[None, :, :, :2]
    low, high = boxes[:, None, :2] - boxes[:, None, 2:], boxes[:, None, :2] + 2 * boxes[:, None, 2:]
    given = points[:, None, :, :2]
    outside = np.maximum(0, low[None] - given) + np.maximum(0, given - high[None])
    known: npt.NDArray[np.bool_] = np.any(visible, axis=1)
    apart = np.where(known[None, :, None, None], apart, outside)
    error = (apart**2).sum(axis=-1) / variances / (areas[None, :, None] + np.spacing(1)) / 2
    counted = np.where(known[:, None], visible, True)[None]
    found: Floats = np.where(counted, np.exp(-error), 0).sum(axis=-1) / counted.sum(axis=-1)
    return found
