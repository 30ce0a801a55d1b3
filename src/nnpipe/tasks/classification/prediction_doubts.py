"""Reasons to doubt predicted classes: they are no better than chance, or nearly all the same.

A statistical test decides whether predictions are better than chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import numbered

SIGNIFICANCE = 0.01
"""The significance level of the test whether predictions are better than chance."""

CONSTANT = 0.9
"""The share of predictions of a single class from which a doubt is raised."""

_FEWEST = 20  # samples


def prediction_doubts(evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield the kind and the reason of each doubt."""
    if len(evaluation) < _FEWEST:
        return
    truth, predicted = evaluation.arrays["truth"], evaluation.arrays["predicted"]
    numbers, classes = numbered(np.concatenate([truth, predicted]))
    true, told = (np.bincount(half, minlength=len(classes)) for half in np.split(numbers, 2))
    chance = chance_p_value(true, told, int(np.count_nonzero(truth == predicted)))
    if chance is not None and chance > SIGNIFICANCE:
        share = 100 * float(np.mean(truth == predicted))
        yield ("chance", f"{share:.2f} % right is no better than chance (p = {chance:.2g}, {len(truth):,} samples)")
    most = int(np.argmax(told))
    part, there = told[most] / len(truth), true[most] / len(truth)
    spread = math.sqrt(max(there * (1 - there), 1 / len(truth)) / len(truth))
    if part >= CONSTANT and part - there > 4 * spread:
        yield (
            "constant",
            f"{100 * part:.3g} % of the predictions are one class, which {100 * there:.3g} % of samples are",
        )


def chance_p_value(truth: npt.NDArray[Any], told: npt.NDArray[Any], right: int) -> float | None:
    """Return the probability of at least this many right predictions if they are independent of the truth.

    The same predictions are thought of as assigned to the samples in random
    order.  The mean and variance of the number of right ones are known (a sum of
    hypergeometric variables), and its distribution is approximated as normal.

    Parameters
    ----------
    truth, told
        The numbers of samples and of predictions of each class; ``(classes,)``.
    right
        The number of right predictions.

    Returns
    -------
    float or None
        ``None`` if there is only one class.
    """
    count = float(truth.sum())
    a, b = truth.astype(np.float64), told.astype(np.float64)
    if count < 2:
        return None
    products = a * b
    mean = float(products.sum()) / count
    own = float((products * (count - a) * (count - b)).sum())
    pairs = float(products.sum() ** 2 - (products**2).sum())
    variance = (own + pairs) / (count * count * (count - 1))
    if np.count_nonzero(truth) < 2:
        return None
    if variance <= 0:  # a constant prediction is right equally often in any order
        return 1.0
    return 1 - NormalDist().cdf((right - 0.5 - mean) / math.sqrt(variance))
