"""The metrics of poses: COCO's average precision over OKS, the mean OKS, PCK, and distances."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic
from nnpipe.tasks.average_precision import THRESHOLDS, PrecisionCurves
from nnpipe.tasks.pose.pairing import (
    AREAS,
    compute_point_distances,
    compute_reference_lengths,
    find_visible_points,
    match_poses,
)


def _create_statistic(
    of: Callable[[PrecisionCurves], Statistic], threshold: int | None = None, area: str = "all"
) -> Callable[[Evaluation], Statistic]:
    def prepare(found: Evaluation) -> Statistic:
        poses, place = match_poses(found), list(AREAS).index(area)
        chosen = list(range(len(THRESHOLDS))) if threshold is None else [threshold]
        wanted = poses.true_picture[poses.wanted[:, place]]
        only = np.zeros(len(poses.picture), np.int64)
        return of(
            PrecisionCurves.from_matches(
                poses.picture,
                only,
                poses.right[:, chosen, place],
                poses.ignored[:, chosen, place],
                wanted,
                np.zeros(len(wanted), np.int64),
                1,
            )
        )

    return prepare


def _prepare_precision(curves: PrecisionCurves) -> Statistic:
    return curves.compute_average_precision


def _prepare_recall(curves: PrecisionCurves) -> Statistic:
    return curves.compute_average_recall


def _create_person_ratio_statistic(
    of: Callable[[Evaluation], tuple[Floats, Floats]],
) -> Callable[[Evaluation], Statistic]:
    """Return the ratio of two sums over persons, each ``(g,)``."""

    def prepare(found: Evaluation) -> Statistic:
        picture, pictures = match_poses(found).true_picture, len(found)
        parts, wholes = (np.bincount(picture, each, pictures) for each in of(found))

        def statistic(weights: Floats) -> float:
            whole = float(weights @ wholes)
            return float(weights @ parts) / whole if whole > 0 else float("nan")

        return statistic

    return prepare


def _compute_similarities(found: Evaluation) -> tuple[Floats, Floats]:
    poses = match_poses(found)
    return poses.similarity * poses.counted, poses.counted.astype(np.float64)


def _count_near_points(found: Evaluation) -> tuple[Floats, Floats]:
    seen = find_visible_points(found) & np.isfinite(compute_reference_lengths(found))[:, None]
    near = (
        compute_point_distances(found, of_sides=False)
        <= found.settings["pck_fraction"] * compute_reference_lengths(found)[:, None]
    )
    return (near & seen).sum(axis=1).astype(np.float64), seen.sum(axis=1).astype(np.float64)


def _sum_distances(found: Evaluation) -> tuple[Floats, Floats]:
    apart = compute_point_distances(found, of_sides=True)
    seen = find_visible_points(found) & np.isfinite(apart)
    return np.where(seen, apart, 0).sum(axis=1), seen.sum(axis=1).astype(np.float64)


def compute_mean_similarities(found: Evaluation) -> Floats:
    """Return the mean OKS of the persons in each picture with their pairs, ``(n,)``; NaN without
    persons.
    """
    poses = match_poses(found)
    persons = np.bincount(poses.true_picture, poses.counted, len(found))
    similar = np.bincount(poses.true_picture, poses.similarity * poses.counted, len(found))
    mean: Floats = np.divide(similar, persons, out=np.full(len(found), np.nan), where=persons > 0)
    return mean


def compute_greatest_distances(found: Evaluation) -> Floats:
    """Return the greatest distance of a paired key point in each picture, in shares of its
    sides; NaN without any.
    """
    apart = compute_point_distances(found, of_sides=True)
    apart = np.where(find_visible_points(found) & np.isfinite(apart), apart, -1.0).max(
        axis=1, initial=-1.0
    )
    greatest = np.full(len(found), -1.0)
    np.maximum.at(greatest, match_poses(found).true_picture, apart)
    return np.where(greatest < 0, np.nan, greatest)


_OVERLAPS = "mean over OKS from 0.5 to 0.95 of the precision at 101 recalls"

METRICS = (
    QualityMetric(
        "oks_ap", "AP (OKS)", "Average precision over OKS", _OVERLAPS, "share", False,
        statistic=_create_statistic(_prepare_precision)
    ),
    *(
        QualityMetric(
            f"oks_ap{number}", f"AP{number} (OKS)", f"Average precision at an OKS of 0.{number}",
            f"precision at 101 recalls, if poses of an OKS of 0.{number} are right", "share", False,
            statistic=_create_statistic(_prepare_precision, threshold),
        )
        for number, threshold in ((50, 0), (75, 5))
    ),
    *(
        QualityMetric(
            f"oks_ap_{area}", f"AP {area} (OKS)", f"Average precision of {area} persons over OKS",
            f"{_OVERLAPS}, for persons of {sizes} pixels", "share", False,
            statistic=_create_statistic(_prepare_precision, area=area),
        )
        for area, sizes in (("medium", "32 x 32 to 96 x 96"), ("large", "more than 96 x 96"))
    ),
    QualityMetric(
        "oks_ar", "AR (OKS)", "Average recall over OKS",
        "mean over OKS from 0.5 to 0.95 of the share of persons that are found among 20 poses in a "
        "picture",
        "share", False,
        statistic=_create_statistic(_prepare_recall),
    ),
    QualityMetric(
        "mean_oks", "Mean OKS", "Mean object key point similarity",
        "mean over persons of the similarity to the pose that is paired with them, 0 without "
        "one", "share", False,
        statistic=_create_person_ratio_statistic(_compute_similarities),
    ),
    QualityMetric(
        "pck", "PCK", "Key points right",
        "share of visible key points that are near enough to the true ones (Yang and Ramanan, PAMI "
        "2013)",
        "share", False,
        statistic=_create_person_ratio_statistic(_count_near_points),
    ),
    QualityMetric(
        "point_distance", "Distance", "Mean distance of key points",
        "mean distance of visible key points of paired persons, x in shares of the picture's width "
        "and y of its height",
        "ratio", True, statistic=_create_person_ratio_statistic(_sum_distances), bounds=(0.0, math.inf),
    ),
    QualityMetric(
        "greatest_point_distance", "Greatest distance", "Greatest distance of key points",
        "mean over pictures of the greatest distance of a visible key point of a paired "
        "person", "ratio", True,
        bounds=(0.0, math.inf),
        values=compute_greatest_distances,
    ),
)  # fmt: skip
