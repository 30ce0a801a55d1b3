"""NAB's score for its three profiles, as metrics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic
from nnpipe.tasks.series_anomaly.nab import PROFILES, CostProfile, Detections

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
        fixed = None if thresholds is None else float(thresholds[number])
        ends = np.flatnonzero(np.append(score[1:] != score[:-1], True)) if len(score) else np.zeros(0, np.int64)
        gain_of_series: Floats | None = None
        if fixed is not None:
            above = score >= fixed
            gain_of_series = np.asarray(np.bincount(series[above], gain[above], len(sizes)), np.float64)

        def statistic(weights: Floats) -> float:
            of_series = np.bincount(of_points, weights, len(sizes)) / sizes
            windows = float(of_series @ detections.windows)
            if windows <= 0:
                return float("nan")
            if gain_of_series is not None:
                rise = float(of_series @ gain_of_series)
            else:
                rise = max(0.0, float(np.cumsum(gain * of_series[series])[ends].max(initial=0.0)))
            return 100 * rise / (windows * (1 + profile.false_negative))

        return statistic

    return prepare


_MEANINGS = {
    "standard": "NAB's score: 100 finds every window at its first point without a false alarm, 0 finds nothing",
    "low_fp": "NAB's score with false alarms that cost twice as much",
    "low_fn": "NAB's score with missed windows that cost twice as much",
}
METRICS = tuple(
    QualityMetric(
        f"nab_{profile.name}", f"NAB {profile.name.replace('_', ' ').replace('fp', 'FP').replace('fn', 'FN')}",
        f"NAB score, {profile.name.replace('_', ' ').replace('fp', 'FP').replace('fn', 'FN')}",
        _MEANINGS[profile.name], "ratio", statistic=_score(number, profile), clusters=_series,
    )
    for number, profile in enumerate(PROFILES)
)  # fmt: skip
