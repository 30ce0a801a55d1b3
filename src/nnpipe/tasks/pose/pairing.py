"""Which predicted pose belongs to which true person, and how far its key points are from the
true ones.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.component import Component
from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.core.quality_metric import Floats
from nnpipe.tasks.average_precision import THRESHOLDS, match_greedily

COCO_SIGMAS = (
    0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072, 0.062, 0.062, 0.107, 0.107, 0.087, 0.087, 0.089,
    0.089,
)  # fmt: skip
"""How far people place each of COCO's 17 key points apart, in shares of the person's scale."""


def get_sigmas(points: int, given: Sequence[float] | None = None) -> tuple[float, ...]:
    """Return the deviation of each key point: as given, COCO's for 17 points, or else 1 /
    points, as Ultralytics'.
    """
    if given is not None:
        return tuple(given)
    return COCO_SIGMAS if points == len(COCO_SIGMAS) else (1 / max(1, points),) * points


def compute_oks(
    points: Floats, truth: Floats, areas: Floats, boxes: Floats, sigmas: Sequence[float]
) -> Floats:
    """Return the OKS of each predicted pose with each true one of a picture.

    Parameters
    ----------
    points
        x, y and score of the predicted key points, ``(d, points, 3)``.
    truth
        x, y and visibility of the true ones, ``(g, points, 3)``; those of visibility 0 do not
        count.
    areas
        The area of each true person, ``(g,)``.
    boxes
        Left, top, width and height of each true person, ``(g, 4)``.  A person without any visible
        point is compared with the distance of points from twice the box.
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


TRUTH = ("truth_points", "truth_boxes", "truth_area", "truth_crowd")
PREDICTED = ("points", "scores")
AREAS = {"all": (0.0, 1e10), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}
"""Least and greatest area of persons in pixels, by name."""
MOST_POSES = 20
"""Predicted poses in one picture that count, the most certain ones."""
_TORSO = (5, 12)  # COCO's left shoulder and right hip


@dataclass(frozen=True, eq=False)
class PoseMatches:
    """Poses of an evaluation, matched and paired.

    Attributes
    ----------
    picture
        Picture of each predicted pose, by descending score, ``(d,)``.
    right, ignored
        Whether COCO's matching finds a pose right, and whether it does not count; ``(d, thresholds,
        areas)``.
    true_picture
        Picture of each true person, ``(g,)``.
    wanted
        Whether each counts, ``(g, areas)``.
    counted
        Whether each has a visible point and is no crowd, ``(g,)``: then it is paired.
    similarity
        OKS of each true person with its pair, ``(g,)``; 0 without one.
    pair
        The row of the predicted pose of each true person; -1 without one.
    """

    picture: npt.NDArray[np.int64]
    right: npt.NDArray[np.bool_]
    ignored: npt.NDArray[np.bool_]
    true_picture: npt.NDArray[np.int64]
    wanted: npt.NDArray[np.bool_]
    counted: npt.NDArray[np.bool_]
    similarity: Floats
    pair: npt.NDArray[np.int64]


def match_poses(found: Evaluation) -> PoseMatches:
    """Return the poses of an evaluation; they are matched once for all metrics."""
    sigmas = tuple(found.settings["sigmas"])
    return _match_poses(sigmas, *(found.ragged[name] for name in (*TRUTH, *PREDICTED)))


@functools.lru_cache(maxsize=2)  # by identity; two, since models are compared in pairs
def _match_poses(
    sigmas: tuple[float, ...],
    truth: Ragged,
    box: Ragged,
    area: Ragged,
    crowd: Ragged,
    points: Ragged,
    scores: Ragged,
) -> PoseMatches:
    areas, crowds = area.values.astype(np.float64), crowd.values.astype(bool)
    counted = (truth.values.astype(np.float64)[..., 2] > 0).any(axis=1) & ~crowds
    similarity, pair = np.zeros(len(areas)), np.full(len(areas), -1, np.int64)
    kept: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    pairs = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    before = 0
    for picture in range(len(truth)):
        own = slice(int(truth.starts[picture]), int(truth.starts[picture + 1]))
        order = np.argsort(-scores[picture].astype(np.float64), kind="stable")[:MOST_POSES]
        rows = points[picture].astype(np.float64)[order]
        boxes = box[picture].astype(np.float64)
        alike = compute_oks(rows, truth[picture].astype(np.float64), areas[own], boxes, sigmas)
        thing, true = np.nonzero(alike >= THRESHOLDS[0])
        pairs.append((before + thing, own.start + true, alike[thing, true]))
        kept.append(int(points.starts[picture]) + order)
        before += len(order)
        for of_true, of_thing in _iter_closest_pairs(alike, np.flatnonzero(counted[own])):
            similarity[own.start + of_true] = alike[of_thing, of_true]
            pair[own.start + of_true] = kept[-1][of_thing]
    chosen = np.concatenate(kept)
    group = points.owners[chosen]
    thing, true, overlap = (np.concatenate(part) for part in zip(*pairs, strict=True))
    low, high = np.array(list(AREAS.values())).T
    unwanted = ~counted[:, None] | (areas[:, None] < low) | (areas[:, None] > high)
    right, ignored = match_greedily(group, thing, true, overlap, crowds, unwanted)
    extents = np.ptp(points.values[chosen][..., :2].astype(np.float64), axis=1).prod(axis=-1)[
        :, None
    ]
    ignored |= ~(right | ignored) & ((extents < low) | (extents > high))[:, None, :]
    again = np.argsort(-scores.values[chosen].astype(np.float64), kind="stable")
    return PoseMatches(
        group[again],
        right[again],
        ignored[again],
        truth.owners,
        ~unwanted,
        counted,
        similarity,
        pair,
    )


def _iter_closest_pairs(alike: Floats, wanted: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield pairs of a true person and a predicted pose, the most similar ones first; each is in
    one pair at most.
    """
    left = np.full(alike.shape, -1.0)
    left[:, wanted] = alike[:, wanted]
    for _ in range(min(len(alike), len(wanted))):
        thing, true = divmod(int(left.argmax()), len(left[0]))
        yield true, thing
        left[thing] = left[:, true] = -1


def find_visible_points(found: Evaluation) -> npt.NDArray[np.bool_]:
    """Return which key points of true persons count, ``(g, points)``."""
    seen: npt.NDArray[np.bool_] = found.ragged["truth_points"].values.astype(np.float64)[..., 2] > 0
    return seen & match_poses(found).counted[:, None]


def compute_point_distances(found: Evaluation, of_sides: bool) -> Floats:
    """Return how far the paired key points are from the true ones, ``(g, points)``; infinite for
    persons without pair.

    Parameters
    ----------
    found
        The evaluation.
    of_sides
        Whether x is in shares of the picture's width and y in shares of its height; otherwise both
        are in pixels.
    """
    poses, truth = (
        match_poses(found),
        found.ragged["truth_points"].values[..., :2].astype(np.float64),
    )
    paired = poses.pair >= 0
    apart = np.full(truth.shape, np.inf)
    apart[paired] = (
        found.ragged["points"].values.astype(np.float64)[poses.pair[paired], :, :2] - truth[paired]
    )
    if of_sides:
        apart /= found.arrays["size"][poses.true_picture][:, None, ::-1]
    length: Floats = np.hypot(apart[..., 0], apart[..., 1])
    return length


def compute_reference_lengths(found: Evaluation) -> Floats:
    """Return the length of each true person by which PCK's distance is measured, in pixels,
    ``(g,)``.
    """
    kind = found.settings["pck_length"]
    if kind == "picture":
        greatest: Floats = found.arrays["size"].max(axis=1).astype(np.float64)
        return greatest[match_poses(found).true_picture]
    if kind == "torso":
        points = found.ragged["truth_points"].values.astype(np.float64)
        first, other = (points[:, place] for place in _TORSO)
        seen = (first[:, 2] > 0) & (other[:, 2] > 0)
        apart = first - other
        return np.where(seen, np.hypot(apart[:, 0], apart[:, 1]), np.nan)
    side: Floats = found.ragged["truth_boxes"].values[:, 2:].astype(np.float64).max(axis=1)
    return side


class PoseSettings(Component):
    """What is chosen for the task, and so for the data sets of poses."""

    abstract: ClassVar[bool] = True

    sigmas: tuple[float, ...] | None = argument(
        None,
        help="deviation of each key point for OKS; by default COCO's for 17 points, or 1 / points",
        minimum=0.0,
    )
    pck_fraction: float = argument(
        0.1, help="distance up to which PCK takes a point as right, in lengths", minimum=0.0
    )
    pck_length: Literal["box", "torso", "picture"] = argument(
        "box",
        help="length that PCK refers to: the longer side of the person's box, the distance from "
        "left shoulder to right hip, or the longer side of the picture",
    )
