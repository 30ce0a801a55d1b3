"""Intervals of quality metrics and of their differences between two models on the same samples.

Shares of samples that are right have intervals of their own (Wilson; Agresti and Min for pairs).  For all other metrics
samples are drawn again with replacement, or whole clusters of samples if these depend on each other, and the interval
holds the central share of the metric's values: B. Efron, "Bootstrap methods: another look at the jackknife", Annals of
Statistics 7 (1979), 1-26.  A draw counts each sample as often as it was drawn, so a metric needs weights only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.accuracy_difference import paired_difference
from nnpipe.analysis.classification import wilson_interval
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric

DRAWS = 1000
_FEWEST = 2  # clusters: draws of one would all be alike
_SEED = 20_011


@dataclass(frozen=True)
class QualityEstimate:
    """A metric, or the difference of two, with its interval.

    Attributes
    ----------
    value
        The metric of the samples at hand; NaN if it is not defined for them.
    low, high
        The ends of the interval; infinite if there is none.
    samples
        The number of samples.
    """

    value: float
    low: float
    high: float
    samples: int


def quality_estimate(metric: QualityMetric, evaluation: Evaluation, confidence: float = 0.95) -> QualityEstimate:
    """Return a metric of an evaluation with its confidence interval."""
    count = len(evaluation)
    right = _binary(metric, evaluation)
    if right is not None:
        return QualityEstimate(float(right.mean()), *wilson_interval(int(right.sum()), count, confidence), count)
    value = metric.of(evaluation)
    return QualityEstimate(value, *_central(drawn_metrics(metric, (evaluation,), DRAWS)[:, 0], confidence), count)


def quality_difference(
    metric: QualityMetric, one: Evaluation, other: Evaluation, confidence: float = 0.95
) -> QualityEstimate:
    """Return the metric of ``other`` minus that of ``one`` on the same samples, with its confidence interval."""
    first, second = _binary(metric, one), _binary(metric, other)
    if first is not None and second is not None:
        gained, lost = int((second & ~first).sum()), int((first & ~second).sum())
        return QualityEstimate(*paired_difference(gained, lost, len(one), confidence), len(one))
    draws = drawn_metrics(metric, (one, other), DRAWS)
    return QualityEstimate(
        metric.of(other) - metric.of(one), *_central(draws[:, 1] - draws[:, 0], confidence), len(one)
    )


def drawn_metrics(metric: QualityMetric, evaluations: Sequence[Evaluation], count: int, seed: int = _SEED) -> Floats:
    """Return a metric of evaluations of the same samples, as if other samples had been drawn.

    Every draw is the same for all evaluations, so samples that are hard for all do not matter in differences.

    Returns
    -------
    ndarray
        Float64 ``(count, evaluations)``; NaN where a metric is not defined, or if there is only one cluster.
    """
    found = np.full((count, len(evaluations)), np.nan)
    computed = [metric.prepared(each) for each in evaluations]
    for row, weights in enumerate(_weights(metric, evaluations[0], count, seed)):
        found[row] = [compute(weights) for compute in computed]
    return found


def _weights(metric: QualityMetric, evaluation: Evaluation, count: int, seed: int) -> Iterator[Floats]:
    """Yield how often each sample was drawn."""
    random = np.random.default_rng((seed, len(evaluation)))
    groups: npt.NDArray[np.integer] | None = None if metric.clusters is None else metric.clusters(evaluation)
    if groups is not None:
        _, groups = np.unique(groups, return_inverse=True)
    units = len(evaluation) if groups is None else int(groups.max(initial=-1)) + 1
    if units < _FEWEST:
        return
    for _ in range(count):
        times = np.bincount(random.integers(0, units, units), minlength=units).astype(np.float64)
        yield times if groups is None else times[groups]


def _binary(metric: QualityMetric, evaluation: Evaluation) -> npt.NDArray[np.bool_] | None:
    """Return the values of samples if each is 0 or 1 and samples do not depend on each other."""
    if metric.values is None or metric.clusters is not None or not len(evaluation):
        return None
    values = np.asarray(metric.values(evaluation))
    return values.astype(bool) if bool(np.isin(values, (0, 1)).all()) else None


def _central(draws: Floats, confidence: float) -> tuple[float, float]:
    known = draws[~np.isnan(draws)]
    if len(known) < len(draws) / 2:
        return -math.inf, math.inf
    tail = 50 * (1 - confidence)
    low, high = np.percentile(known, [tail, 100 - tail])
    return float(low), float(high)
