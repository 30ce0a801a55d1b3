"""Compare the accuracy of two models on the same samples; only samples that one of them gets wrong tell them apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call

CONFIDENCE = 0.95


@dataclass(frozen=True)
class AccuracyDifference:
    """The second's accuracy less the first's.

    Attributes
    ----------
    gained, lost, samples
        Samples that only the second, and only the first, gets right; all.
    value, low, high
        The difference and its interval, as shares of one.
    p_value
        Of McNemar's exact test: how likely so uneven a division of the samples
        that differ is if neither is better.
    """

    gained: int
    lost: int
    samples: int
    value: float
    low: float
    high: float
    p_value: float


def accuracy_difference(
    truth: npt.NDArray[Any], first: npt.NDArray[Any], second: npt.NDArray[Any], confidence: float = CONFIDENCE
) -> AccuracyDifference:
    """Compare the classes that two models give, sample by sample.

    Parameters
    ----------
    truth, first, second
        (samples,) class numbers: the true ones, and what each model gives.
    confidence
        Of the interval.

    Raises
    ------
    ValueError
        If the arrays differ in length, or are empty.
    """
    check_call(accuracy_difference, locals())
    if not len(truth) == len(first) == len(second) or not len(truth):
        raise ValueError(f"{len(truth)} true classes, {len(first)} and {len(second)} given: pairs need as many of each")
    gained = int(np.count_nonzero((second == truth) & (first != truth)))
    lost = int(np.count_nonzero((first == truth) & (second != truth)))
    interval = paired_difference(gained, lost, len(truth), confidence)
    return AccuracyDifference(gained, lost, len(truth), *interval, mcnemar(gained, lost))


def mcnemar(gained: int, lost: int) -> float:
    """Return the two-sided p-value of McNemar's exact test.

    Among the samples that only one of two models gets right, each is as
    likely to be the one if neither model is better.  Q. McNemar, "Note on the
    sampling error of the difference between correlated proportions or
    percentages", Psychometrika 12 (1947), 153-157.
    """
    number, fewer = gained + lost, min(gained, lost)
    if not number:
        return 1.0
    log_half = number * math.log(2)
    tail = math.fsum(
        math.exp(math.lgamma(number + 1) - math.lgamma(k + 1) - math.lgamma(number - k + 1) - log_half)
        for k in range(fewer + 1)
    )
    return min(1.0, 2 * tail)


def paired_difference(
    gained: int, lost: int, samples: int, confidence: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Compare two accuracies on the same samples: the difference and its interval.

    The interval is Wald's after adding half a sample to each of the four cells:
    A. Agresti and Y. Min, "Simple improved confidence intervals for comparing
    matched proportions", Statistics in Medicine 24 (2005), 729-740.

    Parameters
    ----------
    gained, lost
        Samples that only the second, and only the first, gets right.
    samples
        All of them.
    confidence
        Of the interval.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    total, more, fewer = samples + 2, gained + 0.5, lost + 0.5
    centre = (more - fewer) / total
    half = z * math.sqrt(more + fewer - (more - fewer) ** 2 / total) / total
    return (gained - lost) / samples, max(-1.0, centre - half), min(1.0, centre + half)
