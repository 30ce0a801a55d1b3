"""Confidence intervals of means of values that may be skewed and mostly equal, such as differences of two models.

With values of which few differ from the others, percentiles of resampled means are too narrow: with 10 % of 100 values
other than 0 they hold the true mean in 86 to 89 % of cases instead of 95 %.  Three steps mend that.

- Four values are added, two as far above and two as far below the others as the differing ones are on average, in the
  way of A. Agresti and B. Coull, "Approximate is better than 'exact' for interval estimation of binomial proportions",
  The American Statistician 52 (1998), 119-126.
- Student's distribution has as many degrees of freedom as there are differing values.
- The interval is shifted for the skewness of the values by P. Hall, "On the removal of skewness by transformation",
  Journal of the Royal Statistical Society B 54 (1992), 221-228.
"""

from __future__ import annotations

import math

import numpy as np

from nnpipe.core.distributions import student_quantile
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric

_GROUPS = 400  # of samples that are left out together where a metric follows from all samples
_FEWEST = 2  # values
_ADDED = 2  # values on either side
_ROUNDING = 1e-12
_SEED = 20_011


def mean_interval(
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
        If the values are differences from these, their scatter tells how large a difference may be where none was seen.

    Returns
    -------
    low, high
        Both are the centre if nothing tells how far it may be off.
    """
    if len(values) < _FEWEST or not np.isfinite(values).all() or not math.isfinite(centre):
        return centre, centre
    common = _common(values)
    squares = (values - common) ** 2
    differing = _differing(squares, common)
    if differing:
        reach = math.sqrt(float(squares.sum()) / differing)
    else:
        reach = 0.0 if beside is None else float(np.std(beside))
    if reach == 0:
        return centre, centre
    extended = np.concatenate([values, [common - reach, common + reach] * _ADDED])
    count, freedom = len(extended), differing + 1 if differing else math.inf
    deviation = float(np.std(extended, ddof=1))
    skewness = float(np.mean((extended - extended.mean()) ** 3)) / deviation**3
    quantile = student_quantile((1 + confidence) / 2, min(freedom, count - 1))
    middle = centre + float(extended.mean() - values.mean())
    ends = (middle - _transformed(sign * quantile, skewness, count) * deviation / math.sqrt(count) for sign in (1, -1))
    low, high = sorted(ends)
    return low, high


def contributions(metric: QualityMetric, evaluation: Evaluation) -> Floats:
    """Return values whose mean is the metric, and which vary as its parts do: one for each independent part.

    These are the values of samples where the metric is their mean.  Otherwise they are the pseudo-values of the
    jackknife: J. Tukey, "Bias and confidence in not quite large samples", Annals of Mathematical Statistics 29 (1958),
    614.  Many samples are left out in groups.

    Returns
    -------
    ndarray
        Float64 ``(parts,)``; NaN where the metric is not defined without a part.
    """
    clusters = None if metric.clusters is None else np.unique(metric.clusters(evaluation), return_inverse=True)[1]
    if metric.values is None:
        return _left_out(metric, evaluation, clusters)
    values = np.asarray(metric.values(evaluation), np.float64)
    there = ~np.isnan(values)
    if clusters is None and there.all():
        return values
    known, counted = np.where(there, values, 0.0), there.astype(np.float64)
    if clusters is not None:
        known = np.bincount(clusters, known).astype(np.float64)
        counted = np.bincount(clusters, counted).astype(np.float64)
    if not counted.sum():
        return np.full(len(known), np.nan)
    mean = known.sum() / counted.sum()
    return np.asarray(mean + len(known) * (known - mean * counted) / counted.sum())


def _left_out(metric: QualityMetric, evaluation: Evaluation, parts: np.ndarray | None) -> Floats:
    parts = np.arange(len(evaluation)) if parts is None else parts
    number = int(parts.max(initial=-1)) + 1
    if number > _GROUPS:
        parts = np.random.default_rng(_SEED).permutation(np.arange(number) % _GROUPS)[parts]
        number = _GROUPS
    statistic = metric.prepared(evaluation)
    whole = statistic(np.ones(len(evaluation)))
    without = np.array([statistic((parts != part).astype(np.float64)) for part in range(number)])
    found = number * whole - (number - 1) * without
    return np.asarray(found - found.mean() + whole)


def _differing(squares: Floats, common: float) -> float:
    """Return how many values differ from the common one; many small differences beside a few large ones count little.

    Of normally distributed values, three times the square of the sum of squares by the sum of fourth powers is their
    number.
    """
    number = int(np.count_nonzero(squares > (_ROUNDING * max(1.0, abs(common))) ** 2))
    return min(number, 3 * float(squares.sum()) ** 2 / float((squares**2).sum())) if number else 0.0


def _common(values: Floats) -> float:
    """Return the value of more than half of them, or the mean if there is none."""
    middle = float(np.median(values))
    return middle if np.count_nonzero(values == middle) > len(values) / 2 else float(values.mean())


def _transformed(quantile: float, skewness: float, count: int) -> float:
    """Return a quantile of the studentised mean of skewed values, by the inverse of Hall's cubic transformation."""
    bend = skewness / math.sqrt(count)
    if abs(bend) < _ROUNDING:
        return quantile
    return 3 / bend * (float(np.cbrt(1 + bend * (quantile - bend / 6))) - 1)
