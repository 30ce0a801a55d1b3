"""The score of the Numenta Anomaly Benchmark (Lavin and Ahmad, arXiv:1510.03336; github.com/numenta/NAB).

Each anomaly is a window of points.  A window counts its earliest detections most, and costs if it has none; a detection
outside costs, and less just behind a window.  Sums over all series are normalised so that no detections at all give 0,
and a detection at the first point of every window and nowhere else gives 100.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
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
        The cost of a detection outside all windows, and of a window without a detection; a window that is found
        at its first point counts 1.
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
class Detections:
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
    def of(cls, score: Floats, window: Ints, series: Ints) -> Detections:
        """Return the detections of points in the order of time.

        Parameters
        ----------
        score, window, series
            The score, the number of the window (-1 outside) and the number of the series of each point,
            ``(points,)``.
        """
        names, first = np.unique(series, return_index=True)
        parts, counts, total = [], [], 0
        for number, name in enumerate(names[np.argsort(first)]):
            points = np.flatnonzero(series == name)
            mine = window[points]
            values, windows = _values(mine)
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

    def gains(self, profile: CostProfile) -> tuple[Floats, Floats, Ints]:
        """Return how much the sum rises with each point, if points become detections from the greatest score down.

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

    def counts(self, threshold: float) -> dict[str, int]:
        """Return the numbers of points that are true and false detections and not, as NAB's files have them."""
        found, inside = self.score >= threshold, self.window >= 0
        return {
            "tp": int((found & inside).sum()),
            "tn": int((~found & ~inside).sum()),
            "fp": int((found & ~inside).sum()),
            "fn": int((~found & inside).sum()),
        }


def _values(window: Ints) -> tuple[Floats, Ints]:
    """Return what a detection at each point of a series is worth, and the points' windows counted from 0."""
    values = np.full(len(window), -1.0)
    numbers = np.full(len(window), -1, np.int64)
    spans = list(_spans(window))
    for number, (left, right) in enumerate(spans):
        length = right - left + 1
        inside = np.arange(left, right + 1)
        values[inside] = _sigmoid(-(right - inside + 1) / length) / _sigmoid(np.array(-1.0))
        numbers[inside] = number
        end = spans[number + 1][0] if number + 1 < len(spans) else len(window)
        behind = np.arange(right + 1, end)
        if length > 1:
            distance = (behind - right) / (length - 1)
            values[behind] = np.where(distance > _FARTHEST, -1.0, _sigmoid(np.minimum(distance, _FARTHEST)))
    return values, numbers


def _spans(window: Ints) -> Iterator[tuple[int, int]]:
    """Yield the first and the last point of each window, in the order of time."""
    edges = np.flatnonzero(np.diff(window, prepend=-1, append=-1))
    for left, end in itertools.pairwise(edges):
        if window[left] >= 0:
            yield int(left), int(end) - 1


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(2 / (1 + np.exp(5 * x)) - 1)
