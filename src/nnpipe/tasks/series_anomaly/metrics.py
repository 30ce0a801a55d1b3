"""NAB's score for its three profiles, as metrics."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic
from nnpipe.tasks.series_anomaly.nab import PROFILES, CostProfile, Detections, Ints

THRESHOLDS = "thresholds"
"""The entry of an evaluation's settings that holds the threshold of each profile."""


def detections_of(found: Evaluation) -> Detections:
    """Return all points that would count if they were detections."""
    arrays = found.arrays
    return Detections.of(
        arrays["score"].astype(np.float64), arrays["window"].astype(np.int64), arrays["series"].astype(np.int64)
    )


def _series(found: Evaluation) -> npt.NDArray[np.integer]:
    series: npt.NDArray[np.integer] = found.arrays["series"]
    return series


def _score(number: int, profile: CostProfile) -> Callable[[Evaluation], Statistic]:
    def prepare(found: Evaluation) -> Statistic:
        detections = detections_of(found)
        score, gain, series = detections.gains(profile)
        names, first, of_points = np.unique(found.arrays["series"], return_index=True, return_inverse=True)
        position = np.argsort(np.argsort(first))  # of each name among the series in the order of time
        of_points = position[of_points.reshape(-1)]
        sizes = np.bincount(of_points, minlength=len(names))
        thresholds = found.settings.get(THRESHOLDS)
        if thresholds is None:
            rises = _at_best_thresholds(score, gain, series, len(sizes))
        else:
            above = score >= float(thresholds[number])
            rises = np.asarray(np.bincount(series[above], gain[above], len(sizes)), np.float64)[None]

        def statistic(weights: Floats) -> float:
            of_series = np.bincount(of_points, weights, len(sizes)) / sizes
            windows = float(of_series @ detections.windows)
            if windows <= 0:
                return float("nan")
            rise = (rises @ of_series).max(initial=0.0 if thresholds is None else -np.inf)
            return 100 * float(rise) / (windows * (1 + profile.false_negative))

        return statistic

    return prepare


def _at_best_thresholds(score: Floats, gain: Floats, series: Ints, count: int) -> Floats:
    """Return the gains of each series at the thresholds of which one is the best for any weights of series.

    These are the scores at which some gain is positive: between two of them, more detections only cost.

    Parameters
    ----------
    score, gain, series
        The points in the order of falling scores, ``(points,)`` each.
    count
        The number of series.

    Returns
    -------
    ndarray
        ``(thresholds, count)``.
    """
    level = np.concatenate([[0], np.cumsum(score[1:] != score[:-1])])[: len(score)]
    useful = np.unique(level[gain > 0])
    place = np.searchsorted(useful, level)
    kept = place < len(useful)
    sums = np.bincount(place[kept] * count + series[kept], gain[kept], len(useful) * count)
    return np.asarray(np.cumsum(sums.reshape(len(useful), count), axis=0), np.float64)


_MEANINGS = {
    "standard": "NAB's score: 100 finds every window at its first point without a false alarm, 0 finds nothing",
    "low_fp": "NAB's score with false alarms that cost twice as much",
    "low_fn": "NAB's score with missed windows that cost twice as much",
}
METRICS = tuple(
    QualityMetric(
        f"nab_{profile.name}", f"NAB {profile.name.replace('_', ' ').replace('fp', 'FP').replace('fn', 'FN')}",
        f"NAB score, {profile.name.replace('_', ' ').replace('fp', 'FP').replace('fn', 'FN')}",
        _MEANINGS[profile.name], "ratio", False, statistic=_score(number, profile), clusters=_series,
        bounds=(-math.inf, 100.0),
    )
    for number, profile in enumerate(PROFILES)
)  # fmt: skip
