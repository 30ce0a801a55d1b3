"""Intervals of quality metrics and of their differences between two models on the same samples.

Shares of samples that are right have intervals of their own (Wilson; Agresti and Min for pairs).  For all other metrics
see :mod:`nnpipe.analysis.skewed_means`: the values of samples, or what the metric would be without each of them, tell
how far it may be off.  Many of these values are often equal, since two models mostly differ on a few samples only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.classification import wilson_interval
from nnpipe.analysis.paired_shares import mcnemar, paired_difference
from nnpipe.analysis.skewed_means import contributions, mean_interval, paired_contributions
from nnpipe.core.argument_checks import check_call
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric

_FEWEST = 2  # clusters: draws of one would all be alike
_AT_ONCE = 1 << 22  # weights that are drawn together
_SEED = 20_011


@dataclass(frozen=True)
class QualityEstimate:
    """A metric with its interval.

    Attributes
    ----------
    value
        The metric of the samples at hand; NaN if it is not defined for them.
    low, high
        The ends of the interval; infinite if there is none, or samples without a finite answer count as the worst.
    samples
        The number of samples.
    """

    value: float
    low: float
    high: float
    samples: int


def quality_estimate(metric: QualityMetric, evaluation: Evaluation, confidence: float = 0.95) -> QualityEstimate:
    """Return a metric of an evaluation with its confidence interval."""
    check_call(quality_estimate, locals())
    count = len(evaluation)
    if evaluation.not_finite.any():  # nobody knows how wrong these are
        return QualityEstimate(metric.of(evaluation), -math.inf, math.inf, count)
    binary = _binary(metric, evaluation)
    if binary is not None:
        right, _ = binary
        interval = wilson_interval(int(right.sum()), len(right), confidence)
        return QualityEstimate(float(right.mean()), *interval, len(right))
    value = metric.of(evaluation)
    parts = contributions(metric, evaluation)
    low, high = mean_interval(parts, value, confidence)
    if metric.kind == "share" and len(parts) and np.ptp(parts) == 0:  # all samples are alike: others may not be
        counted = count if metric.values is None else int(np.isfinite(metric.sample_values(evaluation)).sum())
        low, high = wilson_interval(round(value * counted), counted, confidence)
    least, greatest = metric.limits
    low, high = max(low, least), min(high, greatest)
    return QualityEstimate(value, *_known(low, high), count)


@dataclass(frozen=True)
class QualityDifference(QualityEstimate):
    """The metric of a second model less that of a first one, on the same samples.

    Attributes
    ----------
    gained, lost
        The numbers of samples on which the second model does better, and on which the first does; -1 if samples have
        no values.
    p_value
        The p-value of McNemar's exact test of the hypothesis that a sample that only one gets right is as likely to be
        right for either; NaN unless each sample is right or wrong.
    """

    gained: int = -1
    lost: int = -1
    p_value: float = math.nan


def quality_difference(
    metric: QualityMetric, one: Evaluation, other: Evaluation, confidence: float = 0.95
) -> QualityDifference:
    """Return the metric of ``other`` less that of ``one`` on the same samples, with its confidence interval."""
    check_call(quality_difference, locals())
    if one.not_finite.any() or other.not_finite.any():
        value = metric.of(other) - metric.of(one)
        value = value if math.isfinite(value) else math.nan
        return QualityDifference(value, -math.inf, math.inf, len(one), *_moved(metric, one, other))
    binary, others = _binary(metric, one), _binary(metric, other)
    if binary is not None and others is not None and np.array_equal(binary[1], others[1]):
        first, second = binary[0], others[0]
        more, fewer = int((second & ~first).sum()), int((first & ~second).sum())
        found = paired_difference(more, fewer, len(first), confidence)
        gained, lost = (fewer, more) if metric.less_is_better else (more, fewer)
        return QualityDifference(*found, len(first), gained, lost, mcnemar(gained, lost))
    value = metric.of(other) - metric.of(one)
    mine, theirs = paired_contributions(metric, (one, other))
    low, high = mean_interval(theirs - mine, value, confidence, beside=(mine + theirs) / 2)
    most = metric.limits[1] - metric.limits[0]
    low, high = max(low, -most), min(high, most)
    return QualityDifference(value, *_known(low, high), len(one), *_moved(metric, one, other))


def _known(low: float, high: float) -> tuple[float, float]:
    return (low, high) if low < high else (-math.inf, math.inf)


def _moved(metric: QualityMetric, one: Evaluation, other: Evaluation) -> tuple[int, int]:
    if metric.values is None:
        return -1, -1
    with np.errstate(invalid="ignore"):  # the worst value of a sample may be infinite
        change = metric.sample_values(other) - metric.sample_values(one)
    more, fewer = int((change > 0).sum()), int((change < 0).sum())
    return (fewer, more) if metric.less_is_better else (more, fewer)


def drawn_metrics(metric: QualityMetric, evaluations: Sequence[Evaluation], count: int, seed: int = _SEED) -> Floats:
    """Return a metric of evaluations of the same samples, as if other samples had been drawn.

    Every draw is the same for all evaluations, so samples that are hard for all do not matter in differences.

    Returns
    -------
    ndarray
        Float64 ``(count, evaluations)``; NaN where a metric is not defined, or if there is only one cluster.
    """
    if metric.values is None or any(each.not_finite.any() for each in evaluations):
        computed = [metric.prepared(each) for each in evaluations]
        rows = [
            [compute(each) for compute in computed]
            for weights in _weights(metric, evaluations[0], count, seed)
            for each in weights
        ]
        return np.array(rows, np.float64) if rows else np.full((count, len(evaluations)), np.nan)
    values = np.stack([metric.sample_values(each) for each in evaluations], axis=1)
    there = ~np.isnan(values)
    known = np.where(there, values, 0.0)
    # Whole numbers below 2^24 are exact in single precision, which is twice as fast.
    kind = np.float32 if bool(np.isin(known, (-1, 0, 1)).all()) else np.float64
    known, counted = known.astype(kind), None if bool(there.all()) else there.astype(kind)
    found = [np.empty((0, len(evaluations)))]
    for weights in _weights(metric, evaluations[0], count, seed):
        times = weights.astype(kind)
        totals = times.sum(axis=1, keepdims=True) if counted is None else times @ counted
        with np.errstate(invalid="ignore"):
            found.append((times @ known).astype(np.float64) / totals)
    drawn = np.concatenate(found)
    return drawn if len(drawn) else np.full((count, len(evaluations)), np.nan)


def _weights(metric: QualityMetric, evaluation: Evaluation, count: int, seed: int) -> Iterator[Floats]:
    """Yield how often each sample was drawn, ``(some draws, samples)``, until there are ``count`` draws."""
    random = np.random.default_rng((seed, len(evaluation)))
    groups: npt.NDArray[np.integer] | None = None if metric.clusters is None else metric.clusters(evaluation)
    if groups is not None:
        _, groups = np.unique(groups, return_inverse=True)
    units = len(evaluation) if groups is None else int(groups.max(initial=-1)) + 1
    if units < _FEWEST:
        return
    step = max(1, _AT_ONCE // max(1, len(evaluation)))
    for begin in range(0, count, step):
        draws = min(step, count - begin)
        times = np.stack([np.bincount(random.integers(0, units, units), minlength=units) for _ in range(draws)])
        yield times.astype(np.float64) if groups is None else times.astype(np.float64)[:, groups]


def _binary(
    metric: QualityMetric, evaluation: Evaluation
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None:
    """Return the values of the samples that count, and which do, if each is 0 or 1 and no sample depends on another."""
    if metric.values is None or metric.clusters is not None:
        return None
    values = metric.sample_values(evaluation)
    counted = ~np.isnan(values)
    values = values[counted]
    return (values.astype(bool), counted) if len(values) and bool(((values == 0) | (values == 1)).all()) else None
