"""The beta distribution and Student's t distribution, computed with the standard library alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

_PRECISION = 1e-15
_TINY = 1e-300
_MANY, _FAR_OUT = (
    3000.0,
    5.0,
)  # degrees of freedom and normal quantile from and up to which the expansion is exact to 1e-12


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I(x; a, b), which is also the beta
    distribution's CDF.

    It is evaluated as a continued fraction (https://dlmf.nist.gov/8.17.E22) with
    Lentz's algorithm, on the side of the mean where it converges fast.

    Raises
    ------
    ValueError
        Unless ``0 <= x <= 1`` and both parameters are positive.
    """
    if not (0 <= x <= 1 and a > 0 and b > 0):
        raise ValueError(f"I({x}; {a}, {b}) is not defined")
    if x in (0, 1):
        return float(x)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return front / (a * _evaluate_continued_fraction(x, a, b)) if front else 0.0


def _evaluate_continued_fraction(x: float, a: float, b: float) -> float:
    value = numerator = 1.0
    denominator = change = 0.0
    step = 0
    while abs(change - 1) > _PRECISION and step < 200_000:
        step += 1
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominator = 1 / (1 + term * denominator or _TINY)
        numerator = 1 + term / numerator or _TINY
        change = numerator * denominator
        value *= change
    return value


def beta_quantile(probability: float, a: float, b: float) -> float:
    """Return the x at which the CDF of the beta distribution reaches a probability."""
    return _find_by_bisection(lambda x: incomplete_beta(x, a, b), probability, 0.0, 1.0)


def student_quantile(probability: float, freedom: float) -> float:
    """Return a quantile of Student's t distribution; infinite degrees of freedom give the normal
    distribution.
    """
    if math.isinf(freedom):
        return NormalDist().inv_cdf(probability)
    if probability == 0.5:
        return 0.0
    if freedom >= _MANY and abs(z := NormalDist().inv_cdf(probability)) < _FAR_OUT:
        return _compute_quantile_expansion(z, freedom)
    tail = 2 * min(probability, 1 - probability)
    # The square of t follows from a beta variate: https://dlmf.nist.gov/8.17 and Abramowitz-Stegun
    # 26.7.1.
    x = beta_quantile(tail, freedom / 2, 0.5)
    return math.copysign(math.sqrt(freedom * (1 / max(x, _TINY) - 1)), probability - 0.5)


def _compute_quantile_expansion(z: float, freedom: float) -> float:
    """Return a quantile of Student's t from the normal one, by Abramowitz-Stegun 26.7.5."""
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def _find_by_bisection(
    function: Callable[[float], float], wanted: float, low: float, high: float
) -> float:
    """Return where an increasing function reaches a value, by bisection to the last bit."""
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return middle
        if function(middle) < wanted:
            low = middle
        else:
            high = middle
