"""Anomaly detection in series as a task."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, DatasetSpec
from nnpipe.tasks.predictions import (
    INTEGERS,
    NUMBERS,
    check_array,
    get_anomaly_scores,
    warn_of_constant_scores,
)

# The score of the Numenta Anomaly Benchmark (Lavin and Ahmad, arXiv:1510.03336;
# github.com/numenta/NAB).
#
# Each anomaly is a window of points.  A window counts its earliest detections most, and costs if it
# has none; a detection outside costs, and less just behind a window.  Sums over all series are
# normalised so that no detections at all give 0, and a detection at the first point of every window
# and nowhere else gives 100.

Ints = npt.NDArray[np.int64]

_PROBATION, _LONGEST_PROBATION = 0.15, 750
_FARTHEST = 3.0  # lengths of a window behind it, from where a false alarm costs all


@dataclass(frozen=True)
class CostProfile:
    """The costs of an application.

    Attributes
    ----------
    name
        The name in options and files.
    false_positive, false_negative
        The cost of a detection outside all windows, and of a window without a detection; a window
        that is found at its first point counts 1.
    """

    name: str
    false_positive: float
    false_negative: float


PROFILES = (
    CostProfile("standard", 0.11, 1.0),
    CostProfile("low_fp", 0.22, 1.0),
    CostProfile("low_fn", 0.11, 2.0),
)
"""NAB's profiles: standard, and those that reward few false alarms and few misses."""


@dataclass(frozen=True, eq=False)
class PointDetections:
    """All points that would count if they were detections.

    Attributes
    ----------
    score
        The score of each, ``(points,)``; none is NaN.
    value
        What each is worth, ``(points,)``: from 0 to 1 inside a window, from -1 to 0 outside.
    window
        The window of each, counted over all series, ``(points,)``; -1 outside.
    series
        The series of each, ``(points,)``, counted from 0.
    windows
        The number of windows of each series, ``(series,)``.
    """

    score: Floats
    value: Floats
    window: Ints
    series: Ints
    windows: Ints

    @classmethod
    def from_points(cls, score: Floats, window: Ints, series: Ints) -> PointDetections:
        """Return the detections of points in the order of time.

        Parameters
        ----------
        score, window, series
            The score, the number of the window (-1 outside) and the number of the series of each
            point, ``(points,)``.
        """
        names, first = np.unique(series, return_index=True)
        parts, counts, total = [], [], 0
        for number, name in enumerate(names[np.argsort(first)]):
            points = np.flatnonzero(series == name)
            mine = window[points]
            values, windows = _compute_values(mine)
            there = np.unique(mine[mine >= 0])
            start = min(int(_PROBATION * len(points)), _LONGEST_PROBATION)
            kept = np.arange(len(points)) >= start
            parts.append(
                (
                    score[points][kept],
                    values[kept],
                    np.where(windows >= 0, windows + total, -1)[kept],
                    np.full(int(kept.sum()), number, np.int64),
                )
            )
            counts.append(len(there))
            total += len(there)
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return cls(columns[0], columns[1], columns[2], columns[3], np.array(counts, np.int64))

    def compute_gains(self, profile: CostProfile) -> tuple[Floats, Floats, Ints]:
        """Return how much the sum rises with each point, if points become detections from the
        greatest score down.

        Returns
        -------
        score, gain, series
            In the order of falling scores, ``(points,)`` each.
        """
        order = np.argsort(-self.score, kind="stable")
        value, window = self.value[order], self.window[order]
        gain = value * profile.false_positive
        inside = np.flatnonzero(window >= 0)
        inside = inside[np.argsort(window[inside], kind="stable")]
        for points in np.split(inside, np.flatnonzero(np.diff(window[inside])) + 1):
            if len(points):
                best = np.maximum.accumulate(value[points])
                gain[points] = np.diff(best, prepend=-profile.false_negative)
        return self.score[order], gain, self.series[order]

    def count_outcomes(self, threshold: float) -> dict[str, int]:
        """Return the numbers of points that are true and false detections and not, as NAB's
        files have them.
        """
        found, inside = self.score >= threshold, self.window >= 0
        return {
            "tp": int((found & inside).sum()),
            "tn": int((~found & ~inside).sum()),
            "fp": int((found & ~inside).sum()),
            "fn": int((~found & inside).sum()),
        }


def _compute_values(window: Ints) -> tuple[Floats, Ints]:
    """Return what a detection at each point of a series is worth, and the points' windows
    counted from 0.
    """
    values = np.full(len(window), -1.0)
    numbers = np.full(len(window), -1, np.int64)
    spans = list(_iter_windows(window))
    for number, (left, right) in enumerate(spans):
        length = right - left + 1
        inside = np.arange(left, right + 1)
        values[inside] = _compute_sigmoid(-(right - inside + 1) / length) / _compute_sigmoid(
            np.array(-1.0)
        )
        numbers[inside] = number
        end = spans[number + 1][0] if number + 1 < len(spans) else len(window)
        behind = np.arange(right + 1, end)
        if length > 1:
            distance = (behind - right) / (length - 1)
            values[behind] = np.where(
                distance > _FARTHEST, -1.0, _compute_sigmoid(np.minimum(distance, _FARTHEST))
            )
    return values, numbers


def _iter_windows(window: Ints) -> Iterator[tuple[int, int]]:
    """Yield the first and the last point of each window, in the order of time."""
    edges = np.flatnonzero(np.diff(window, prepend=-1, append=-1))
    for left, end in itertools.pairwise(edges):
        if window[left] >= 0:
            yield int(left), int(end) - 1


def _compute_sigmoid(x: Floats) -> Floats:
    return np.asarray(2 / (1 + np.exp(5 * x)) - 1)


THRESHOLDS = "thresholds"
"""The entry of an evaluation's settings that holds the threshold of each profile."""


def create_point_detections(found: Evaluation) -> PointDetections:
    """Return all points that would count if they were detections."""
    arrays = found.arrays
    return PointDetections.from_points(
        arrays["score"].astype(np.float64),
        arrays["window"].astype(np.int64),
        arrays["series"].astype(np.int64),
    )


def _get_series(found: Evaluation) -> npt.NDArray[np.integer]:
    series: npt.NDArray[np.integer] = found.arrays["series"]
    return series


def _create_score_statistic(number: int, profile: CostProfile) -> Callable[[Evaluation], Statistic]:
    def prepare(found: Evaluation) -> Statistic:
        detections = create_point_detections(found)
        score, gain, series = detections.compute_gains(profile)
        names, first, of_points = np.unique(
            found.arrays["series"], return_index=True, return_inverse=True
        )
        # of each name among the series in the order of time
        position = np.argsort(np.argsort(first))
        of_points = position[of_points.reshape(-1)]
        sizes = np.bincount(of_points, minlength=len(names))
        thresholds = found.settings.get(THRESHOLDS)
        if thresholds is None:
            rises = _compute_threshold_gains(score, gain, series, len(sizes))
        else:
            above = score >= float(thresholds[number])
            rises = np.asarray(np.bincount(series[above], gain[above], len(sizes)), np.float64)[
                None
            ]

        def statistic(weights: Floats) -> float:
            of_series = np.bincount(of_points, weights, len(sizes)) / sizes
            windows = float(of_series @ detections.windows)
            if windows <= 0:
                return float("nan")
            rise = (rises @ of_series).max(initial=0.0 if thresholds is None else -np.inf)
            return 100 * float(rise) / (windows * (1 + profile.false_negative))

        return statistic

    return prepare


def _compute_threshold_gains(score: Floats, gain: Floats, series: Ints, count: int) -> Floats:
    """Return the gains of each series at the thresholds of which one is the best for any weights of
    series.

    These are the scores at which some gain is positive: between two of them, more detections only
    cost.

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
        f"nab_{profile.name}",
        f"NAB {profile.name.replace('_', ' ').replace('fp', 'FP').replace('fn', 'FN')}",
        f"NAB score, {profile.name.replace('_', ' ').replace('fp', 'FP').replace('fn', 'FN')}",
        _MEANINGS[profile.name],
        "ratio",
        False,
        statistic=_create_score_statistic(number, profile),
        clusters=_get_series,
        bounds=(-math.inf, 100.0),
    )
    for number, profile in enumerate(PROFILES)
)


class SeriesAnomaly(Task):
    """How unusual each point of a series is, where anomalies are windows of points that are to be
    found early.

    Samples are the points of one series after the other, in the order of time.  Targets are
    ``"window"``, ``(n,)`` integers, the number of the window that a point belongs to, or -1; and
    ``"series"``, ``(n,)`` integers. Predictions are ``"score"``, or a single tensor of any name,
    ``(n,)`` or ``(n, 1)``; greater means more anomalous.

    An evaluation holds ``window`` and ``series``, int32, and ``score``, float32 or float64 as
    predicted, each ``(n,)``.
    """

    name = "series_anomaly"
    targets = ("window", "series")
    arrays = ("window", "series", "score")
    truth = ("window", "series")

    thresholds: tuple[float, ...] = argument(
        (),
        help="scores from which on a point is a detection: one for all profiles, or one each for "
        "standard, low FP and low FN; by default the best for the samples at hand, as NAB "
        "optimises them",
    )

    def validate(self) -> None:
        """Check the number of thresholds."""
        if len(self.thresholds) not in (0, 1, len(PROFILES)):
            raise ConfigError(
                f"thresholds: one, or one for each of {', '.join(each.name for each in PROFILES)}"
            )

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """NAB's score for its three profiles."""
        return METRICS

    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate the scores of points."""
        window = truth["window"]
        arrays = {
            "window": window.astype(np.int32),
            "series": truth["series"].astype(np.int32),
            "score": get_anomaly_scores(predictions, len(window)),
        }
        given = self.thresholds * len(PROFILES) if len(self.thresholds) == 1 else self.thresholds
        return Evaluation(self.name, arrays, settings={THRESHOLDS: list(given)} if given else {})

    def check(self, evaluation: Evaluation) -> None:
        """Check that there is a window, a series and a score for each point."""
        super().check(evaluation)
        for name in ("window", "series"):
            check_array(evaluation, name, (), INTEGERS)
        check_array(evaluation, "score", (), NUMBERS)
        given = evaluation.settings.get(THRESHOLDS)
        if given is not None and not (
            isinstance(given, list)
            and len(given) == len(PROFILES)
            and all(isinstance(each, float) for each in given)
        ):
            raise ArtifactError(
                "the evaluation's thresholds should be a number for each profile; measure again"
            )

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return a score of 1 within each window."""
        return {"score": (truth["window"] >= 0).astype(np.float32)}

    def worst(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the least score within each window, and the greatest outside."""
        return {"score": np.where(truth["window"] >= 0, -np.inf, np.inf)}

    def warnings(self, evaluation: Evaluation) -> Iterator[tuple[str, str]]:
        """Doubt scores that are all the same."""
        yield from warn_of_constant_scores(evaluation)
