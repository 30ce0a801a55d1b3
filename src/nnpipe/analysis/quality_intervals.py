"""Intervals of quality metrics and of their differences between two models on the same samples.

Shares of samples that are right have intervals of their own (Wilson; Agresti and Min for pairs).
For all other metrics see :mod:`nnpipe.analysis.quality_intervals`: the values of samples, or what
the metric would be without each of them, tell how far it may be off.  Many of these values are
often equal, since two models mostly differ on a few samples only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.classification import wilson_interval
from nnpipe.core.argument_checks import check_call
from nnpipe.core.distributions import student_quantile
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric

CONFIDENCE = 0.95


def compute_mcnemar_p_value(gained: int, lost: int) -> float:
    """Return the two-sided p-value of McNemar's exact test.

    If neither model is better, a sample that only one of them gets right is equally
    likely to be right for the first and for the second.  Q. McNemar, "Note on the
    sampling error of the difference between correlated proportions or
    percentages", Psychometrika 12 (1947), 153-157.
    """
    number, fewer = gained + lost, min(gained, lost)
    if not number:
        return 1.0
    log_last = (
        math.lgamma(number + 1)
        - math.lgamma(fewer + 1)
        - math.lgamma(number - fewer + 1)
        - number * math.log(2)
    )
    # From the greatest term down, each follows from the one above it.
    place = np.arange(fewer, 0, -1)
    tail = math.exp(log_last) * (1 + math.fsum(np.cumprod(place / (number + 1 - place))))
    return min(1.0, 2 * tail)


def compare_accuracies(
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


# Confidence intervals of means of values that may be skewed and mostly equal, such as differences
# of two models.
#
# With values of which few differ from the others, percentiles of resampled means are too narrow:
# with 10 % of 100 values other than 0 they hold the true mean in 86 to 89 % of cases instead of 95
# %.  Three steps mend that.
#
# - Two values are added, one as far above and one as far below the others as the values that decide are, in the way of
#   A. Agresti and Y. Min, "Simple improved confidence intervals for comparing matched proportions", Statistics in
#   Medicine 24 (2005), 729-740: values that were not seen may be as far off as those that were.
# - Student's distribution has as many degrees of freedom as the variance is known with, by the kurtosis of the values:
#   G. Box, "Non-normality and tests on variances", Biometrika 40 (1953), 318-335.  That is about the number of values
#   that differ, and less if a few of them are far off.
# - The interval is shifted for the skewness of the values by P. Hall, "On the removal of skewness by transformation",
#   Journal of the Royal Statistical Society B 54 (1992), 221-228.
#
# Two models may also have been seen to differ only where that matters little: if a few samples
# carry much of the metric, such as those with the only boxes of a class, and the models differ on a
# tenth of all samples, then often on none of these.  What samples contribute to the metric itself
# tells:
#
# - The two values that are added are at least as far off as they would be if differences were in proportion to
#   contributions, by least squares of the squares where models differ.
# - There are no more degrees of freedom than follow from the kurtosis of the contributions, divided by the share of
#   the samples on which the models differ.

_GROUPS = 400  # of samples that are left out together where a metric follows from all samples
_FEWEST = 2  # values
_LEAST_FREEDOM = 2  # since two values are added
_ROUNDING, _ROUNDING_OF_RANGE = 1e-12, 1e-9
_SEED = 20_011
_KNOWN: MutableMapping[
    Evaluation, dict[tuple[QualityMetric, bool], tuple[Floats, np.ndarray | None]]
]
_KNOWN = WeakKeyDictionary()
"""Contributions to metrics that are computed anew without each part, as long as the evaluation is
in use: those of each part; or those of each kind of samples, and the kind of each sample, which
take an eighth of the memory.
"""


def compute_mean_interval(
    values: Floats, centre: float, confidence: float = 0.95, beside: Floats | None = None
) -> tuple[float, float]:
    """Return the confidence interval of the mean of a population, given a sample of values.

    Parameters
    ----------
    values
        The sample, ``(n,)``.
    centre
        The estimate of the mean, usually the mean of the values.
    confidence
        The confidence of the interval.
    beside
        If the values are differences of two samples of values, the mean of both, ``(n,)``: it tells
        whether few of the values are all that matters, and how large a difference may be where none
        was seen.

    Returns
    -------
    low, high
        Both are the centre if nothing tells how far it may be off.
    """
    if len(values) < _FEWEST or not np.isfinite(values).all() or not math.isfinite(centre):
        return centre, centre
    apart = _compute_deviations(values)
    scale = float(np.abs(apart).max())
    if scale:
        squares = (apart / scale) ** 2
        reach = scale * math.sqrt(float((squares**2).sum() / squares.sum()))
        freedom = _compute_degrees_of_freedom(squares)
        carried = None if beside is None else _compute_deviations(beside) ** 2
        if carried is not None and (here := np.where(apart != 0, carried, 0.0)).any():
            slope = float(apart**2 @ here) / float(here @ here)
            reach = max(reach, math.sqrt(slope * float(carried @ carried) / float(carried.sum())))
            freedom = min(
                freedom,
                _compute_degrees_of_freedom(
                    carried / carried.max(), np.count_nonzero(apart) / len(apart)
                ),
            )
    else:
        reach, freedom = 0.0 if beside is None else float(np.std(beside)), math.inf
    if reach == 0:
        return centre, centre
    extended = np.concatenate([apart, [-reach, reach]])
    count = len(extended)
    deviation = float(np.std(extended, ddof=1))
    around = extended - extended.mean()
    # numpy's power takes ten times as long
    skewness = float(np.mean(around * around * around)) / deviation**3
    quantile = student_quantile((1 + confidence) / 2, min(freedom, count - 1))
    middle = centre + float(extended.mean() - apart.mean())
    ends = (
        middle
        - _apply_hall_transform(sign * quantile, skewness, count) * deviation / math.sqrt(count)
        for sign in (1, -1)
    )
    low, high = sorted(ends)
    return low, high


def compute_paired_contributions(
    metric: QualityMetric, evaluations: Sequence[Evaluation]
) -> Floats:
    """Return the :func:`compute_contributions` to a metric of evaluations of the same samples, by
    the same parts.

    Returns
    -------
    ndarray
        Float64 ``(evaluations, parts)``.
    """
    found = [compute_contributions(metric, each) for each in evaluations]
    # only some have so few kinds of samples that each kind is a part
    if len({len(each) for each in found}) > 1:
        found = [compute_contributions(metric, each, by_kind=False) for each in evaluations]
    return np.array(found)


def compute_contributions(
    metric: QualityMetric, evaluation: Evaluation, *, by_kind: bool = True
) -> Floats:
    """Return values whose mean is the metric, and which vary as its parts do: one for each
    independent part.

    These are the values of samples where the metric is their mean.  Otherwise they are the
    pseudo-values of the jackknife: J. Tukey, "Bias and confidence in not quite large samples",
    Annals of Mathematical Statistics 29 (1958),
    614.  Many samples are left out in groups, unless they are of few kinds, of which one sample
          each is left out
    (``by_kind``).

    Returns
    -------
    ndarray
        Float64 ``(parts,)``; NaN where the metric is not defined without a part.
    """
    clusters = (
        None
        if metric.clusters is None
        else np.unique(metric.clusters(evaluation), return_inverse=True)[1]
    )
    if metric.values is None:
        known = _KNOWN.setdefault(evaluation, {})
        by_kind = by_kind and metric.alike is not None and clusters is None
        if (metric, by_kind) not in known:
            made = _compute_jackknife_by_kind(metric, evaluation) if by_kind else None
            known[metric, by_kind] = (
                (_compute_jackknife(metric, evaluation, clusters), None) if made is None else made
            )
        found, kinds = known[metric, by_kind]
        each: Floats = found.copy() if kinds is None else found[kinds]
        return each
    values = metric.sample_values(evaluation)
    there = ~np.isnan(values)
    if clusters is None and there.all():
        return values
    sums, counted = np.where(there, values, 0.0), there.astype(np.float64)
    if clusters is not None:
        sums = np.bincount(clusters, sums).astype(np.float64)
        counted = np.bincount(clusters, counted).astype(np.float64)
    if not counted.sum():
        return np.full(len(sums), np.nan)
    mean = sums.sum() / counted.sum()
    return np.asarray(mean + len(sums) * (sums - mean * counted) / counted.sum())


def _compute_jackknife_by_kind(
    metric: QualityMetric, evaluation: Evaluation
) -> tuple[Floats, np.ndarray] | None:
    kinds, of_kinds = metric.by_kind(evaluation)
    counts = np.bincount(kinds).astype(np.float64)
    if len(counts) > _GROUPS:
        return None
    less = np.array([of_kinds(counts - one) for one in np.eye(len(counts))])
    return _compute_pseudo_values(of_kinds(counts), less, counts), kinds.astype(
        np.min_scalar_type(len(counts))
    )


def _compute_jackknife(
    metric: QualityMetric, evaluation: Evaluation, parts: np.ndarray | None
) -> Floats:
    parts = np.arange(len(evaluation)) if parts is None else parts
    number = int(parts.max(initial=-1)) + 1
    if number > _GROUPS:
        parts = np.random.default_rng(_SEED).permutation(np.arange(number) % _GROUPS)[parts]
        number = _GROUPS
    statistic = metric.build_statistic(evaluation)
    whole = statistic(np.ones(len(evaluation)))
    without = np.array([statistic((parts != part).astype(np.float64)) for part in range(number)])
    return _compute_pseudo_values(whole, without, np.ones(number))


def _compute_pseudo_values(whole: float, without: Floats, counts: Floats) -> Floats:
    """Return the jackknife's values of parts of which there are ``counts``, shifted so that
    their mean is the whole.
    """
    number = counts.sum()
    found = number * whole - (number - 1) * without
    return np.asarray(found - found @ counts / number + whole)


def _compute_deviations(values: Floats) -> Floats:
    """Return how far values are from the one that more than half of them have, or else from their
    mean.

    Values that would be equal without rounding have 0.
    """
    middle = float(np.median(values))
    rounding = max(_ROUNDING * max(1.0, abs(middle)), _ROUNDING_OF_RANGE * float(np.ptp(values)))
    alike = np.abs(values - middle) <= rounding
    if np.count_nonzero(alike) > len(values) / 2:
        return np.where(alike, 0.0, values - middle)
    return np.asarray(values - values.mean())


def _compute_degrees_of_freedom(squares: Floats, share: float = 1.0) -> float:
    """Return the degrees of freedom of a variance whose relative variance is as large as that of
    these values.

    They are those of the chi-squared distribution with the same mean and variance; of normally
    distributed values, one less than there are, as usual.  If only a ``share`` of the values
    counts, whichever, and the others are 0, the kurtosis is greater by as much.
    """
    count = len(squares)
    kurtosis = count * float((squares**2).sum()) / float(squares.sum()) ** 2 / share
    found = 2 / max(2 / (count - 1) + (kurtosis - 3) / count, _ROUNDING)
    return max(min(found, share * np.count_nonzero(squares)), _LEAST_FREEDOM)


def _apply_hall_transform(quantile: float, skewness: float, count: int) -> float:
    """Return a quantile of the studentised mean of skewed values, by the inverse of Hall's cubic
    transformation.
    """
    bend = skewness / math.sqrt(count)
    if abs(bend) < _ROUNDING:
        return quantile
    return 3 / bend * (float(np.cbrt(1 + bend * (quantile - bend / 6))) - 1)


_AT_ONCE = 1 << 22  # weights that are drawn together


@dataclass(frozen=True)
class QualityEstimate:
    """A metric with its interval.

    Attributes
    ----------
    value
        The metric of the samples at hand; NaN if it is not defined for them.
    low, high
        The ends of the interval; infinite if there is none, or samples without a finite answer
        count as the worst.
    samples
        The number of samples.
    """

    value: float
    low: float
    high: float
    samples: int


def compute_quality_estimate(
    metric: QualityMetric, evaluation: Evaluation, confidence: float = 0.95
) -> QualityEstimate:
    """Return a metric of an evaluation with its confidence interval."""
    check_call(compute_quality_estimate, locals())
    count = len(evaluation)
    if evaluation.not_finite.any():  # nobody knows how wrong these are
        return QualityEstimate(metric.compute(evaluation), -math.inf, math.inf, count)
    binary = _get_binary_values(metric, evaluation)
    if binary is not None:
        right, _ = binary
        interval = wilson_interval(int(right.sum()), len(right), confidence)
        return QualityEstimate(float(right.mean()), *interval, len(right))
    value = metric.compute(evaluation)
    parts = compute_contributions(metric, evaluation)
    low, high = compute_mean_interval(parts, value, confidence)
    # all samples are alike: others may not be
    if metric.kind == "share" and len(parts) and np.ptp(parts) == 0:
        counted = (
            count
            if metric.values is None
            else int(np.isfinite(metric.sample_values(evaluation)).sum())
        )
        low, high = wilson_interval(round(value * counted), counted, confidence)
    least, greatest = metric.limits
    low, high = max(low, least), min(high, greatest)
    return QualityEstimate(value, *_replace_empty_interval(low, high), count)


@dataclass(frozen=True)
class QualityDifference(QualityEstimate):
    """The metric of a second model less that of a first one, on the same samples.

    Attributes
    ----------
    gained, lost
        The numbers of samples on which the second model does better, and on which the first does;
        -1 if samples have no values.
    p_value
        The p-value of McNemar's exact test of the hypothesis that a sample that only one gets right
        is as likely to be right for either; NaN unless each sample is right or wrong.
    """

    gained: int = -1
    lost: int = -1
    p_value: float = math.nan


def compute_quality_difference(
    metric: QualityMetric, one: Evaluation, other: Evaluation, confidence: float = 0.95
) -> QualityDifference:
    """Return the metric of ``other`` less that of ``one`` on the same samples, with its
    confidence interval.
    """
    check_call(compute_quality_difference, locals())
    if one.not_finite.any() or other.not_finite.any():
        value = metric.compute(other) - metric.compute(one)
        value = value if math.isfinite(value) else math.nan
        return QualityDifference(
            value, -math.inf, math.inf, len(one), *_count_changes(metric, one, other)
        )
    binary, others = _get_binary_values(metric, one), _get_binary_values(metric, other)
    if binary is not None and others is not None and np.array_equal(binary[1], others[1]):
        first, second = binary[0], others[0]
        more, fewer = int((second & ~first).sum()), int((first & ~second).sum())
        found = compare_accuracies(more, fewer, len(first), confidence)
        gained, lost = (fewer, more) if metric.less_is_better else (more, fewer)
        return QualityDifference(
            *found, len(first), gained, lost, compute_mcnemar_p_value(gained, lost)
        )
    value = metric.compute(other) - metric.compute(one)
    mine, theirs = compute_paired_contributions(metric, (one, other))
    low, high = compute_mean_interval(theirs - mine, value, confidence, beside=(mine + theirs) / 2)
    most = metric.limits[1] - metric.limits[0]
    low, high = max(low, -most), min(high, most)
    return QualityDifference(
        value, *_replace_empty_interval(low, high), len(one), *_count_changes(metric, one, other)
    )


def _replace_empty_interval(low: float, high: float) -> tuple[float, float]:
    return (low, high) if low < high else (-math.inf, math.inf)


def _count_changes(metric: QualityMetric, one: Evaluation, other: Evaluation) -> tuple[int, int]:
    if metric.values is None:
        return -1, -1
    with np.errstate(invalid="ignore"):  # the worst value of a sample may be infinite
        change = metric.sample_values(other) - metric.sample_values(one)
    more, fewer = int((change > 0).sum()), int((change < 0).sum())
    return (fewer, more) if metric.less_is_better else (more, fewer)


def bootstrap_metrics(
    metric: QualityMetric, evaluations: Sequence[Evaluation], count: int, seed: int = _SEED
) -> Floats:
    """Return a metric of evaluations of the same samples, as if other samples had been drawn.

    Every draw is the same for all evaluations, so samples that are hard for all do not matter in
    differences.

    Returns
    -------
    ndarray
        Float64 ``(count, evaluations)``; NaN where a metric is not defined, or if there is only one
        cluster.
    """
    if metric.values is None or any(each.not_finite.any() for each in evaluations):
        computed = [metric.build_statistic(each) for each in evaluations]
        rows = [
            [compute(each) for compute in computed]
            for weights in _iter_bootstrap_weights(metric, evaluations[0], count, seed)
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
    for weights in _iter_bootstrap_weights(metric, evaluations[0], count, seed):
        times = weights.astype(kind)
        totals = times.sum(axis=1, keepdims=True) if counted is None else times @ counted
        with np.errstate(invalid="ignore"):
            found.append((times @ known).astype(np.float64) / totals)
    drawn = np.concatenate(found)
    return drawn if len(drawn) else np.full((count, len(evaluations)), np.nan)


def _iter_bootstrap_weights(
    metric: QualityMetric, evaluation: Evaluation, count: int, seed: int
) -> Iterator[Floats]:
    """Yield how often each sample was drawn, ``(some draws, samples)``, until there are
    ``count`` draws.
    """
    random = np.random.default_rng((seed, len(evaluation)))
    groups: npt.NDArray[np.integer] | None = (
        None if metric.clusters is None else metric.clusters(evaluation)
    )
    if groups is not None:
        _, groups = np.unique(groups, return_inverse=True)
    units = len(evaluation) if groups is None else int(groups.max(initial=-1)) + 1
    if units < _FEWEST:
        return
    step = max(1, _AT_ONCE // max(1, len(evaluation)))
    for begin in range(0, count, step):
        draws = min(step, count - begin)
        times = np.stack(
            [np.bincount(random.integers(0, units, units), minlength=units) for _ in range(draws)]
        )
        yield times.astype(np.float64) if groups is None else times.astype(np.float64)[:, groups]


def _get_binary_values(
    metric: QualityMetric, evaluation: Evaluation
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None:
    """Return the values of the samples that count, and which do, if each is 0 or 1 and no sample
    depends on another.
    """
    if metric.values is None or metric.clusters is not None:
        return None
    values = metric.sample_values(evaluation)
    counted = ~np.isnan(values)
    values = values[counted]
    return (
        (values.astype(bool), counted)
        if len(values) and bool(((values == 0) | (values == 1)).all())
        else None
    )
