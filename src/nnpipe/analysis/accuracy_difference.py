"""Compare the accuracy of two models on the same samples; only samples that exactly one gets right matter."""

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
    """The accuracy of the second model minus that of the first.

    Attributes
    ----------
    gained, lost, samples
        The numbers of samples that only the second model gets right, of those that
        only the first gets right, and of all samples.
    value, low, high
        The difference and its confidence interval, as fractions.
    p_value
        The p-value of McNemar's exact test of the hypothesis that neither is better.
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
    """Compare the predicted classes of two models, sample by sample.

    Parameters
    ----------
    truth, first, second
        ``(samples,)`` class numbers: the true ones, and the predictions of each model.
    confidence
        The confidence of the interval.

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

    If neither model is better, a sample that only one of them gets right is equally
    likely to be right for the first and for the second.  Q. McNemar, "Note on the
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
