"""Compare the shares that two models get right of the same samples; only those that one alone gets right matter."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

CONFIDENCE = 0.95


def mcnemar(gained: int, lost: int) -> float:
    """Return the two-sided p-value of McNemar's exact test.

    If neither model is better, a sample that only one of them gets right is equally
    likely to be right for the first and for the second.  Q. McNemar, "Note on the
    sampling error of the difference between correlated proportions or
    percentages", Psychometrika 12 (1947), 153-157.
    """
    number, fewer = gained + lost, min(gained, lost)
    if not number:
        return 1.0
    log_last = math.lgamma(number + 1) - math.lgamma(fewer + 1) - math.lgamma(number - fewer + 1) - number * math.log(2)
    # From the greatest term down, each follows from the one above it.
    place = np.arange(fewer, 0, -1)
    tail = math.exp(log_last) * (1 + math.fsum(np.cumprod(place / (number + 1 - place))))
    return min(1.0, 2 * tail)


def paired_difference(
    gained: int, lost: int, samples: int, confidence: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Return the difference of two accuracies on the same samples, with its confidence interval.

    It is Wald's interval after adding half a sample to each of the four cells:
    A. Agresti and Y. Min, "Simple improved confidence intervals for comparing
    matched proportions", Statistics in Medicine 24 (2005), 729-740.

    Parameters
    ----------
    gained, lost
        The numbers of samples that only the second, and only the first, gets right.
    samples
        The number of all samples.
    confidence
        The confidence of the interval.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    total, more, fewer = samples + 2, gained + 0.5, lost + 0.5
    centre = (more - fewer) / total
    half = z * math.sqrt(more + fewer - (more - fewer) ** 2 / total) / total
    return (gained - lost) / samples, max(-1.0, centre - half), min(1.0, centre + half)
