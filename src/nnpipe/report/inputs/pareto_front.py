"""The Pareto front of time and accuracy, with the uncertainty of each candidate's place on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from nnpipe.measuring.pareto_front import front_shares, on_front
from nnpipe.report.charts import Floats
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.inputs.comparability import on_the_same_samples

_DRAWS, _WORK = 2000, 4_000_000  # greatest number of draws, and of comparisons of two candidates in all draws
_SEED = 0


@dataclass(frozen=True)
class Standing:
    """Whether a candidate is on the Pareto front of time and accuracy, and in which share of the draws."""

    on_front: bool
    share: float


def standings(candidates: Sequence[Candidate]) -> dict[int, Standing]:
    """Return which candidates are on the Pareto front of median time and accuracy, and how surely.

    The front is computed again for random values of the metrics: medians from
    lognormal distributions with the measured intervals, accuracies from a joint
    normal distribution with the covariance of the candidates' right answers, so that
    samples that are hard for all candidates do not matter.

    Returns
    -------
    dict
        Standings by the candidates' numbers; empty unless at least two were timed in the same way and evaluated on the
        same samples.
    """
    chosen = [(c, c.latency, c.quality) for c in candidates if c.latency is not None and c.quality is not None]
    alike = len({c.timed.name for c, _, _ in chosen}) == 1
    if len(chosen) < 2 or not alike or not on_the_same_samples(candidates):
        return {}
    medians = np.array([latency.median for _, latency, _ in chosen])
    spreads = np.array([_spread(latency.percentile(0.5).interval) for _, latency, _ in chosen])
    accuracies = np.array([quality.accuracy for _, _, quality in chosen])
    draws = min(_DRAWS, max(100, _WORK // len(chosen) ** 2))
    random = np.random.default_rng(_SEED)
    times = medians * np.exp(spreads * random.standard_normal((draws, len(chosen))))
    rights = accuracies + _errors([c for c, _, _ in chosen], draws, random)
    shares = front_shares(np.stack([times, -rights], axis=-1))
    best = on_front(np.stack([medians, -accuracies], axis=-1))
    return {
        candidate.number: Standing(bool(front), float(part))
        for (candidate, _, _), front, part in zip(chosen, best, shares, strict=True)
    }


def _spread(interval: tuple[float, float] | None) -> float:
    """Return the standard deviation of the logarithm of a median; 0 without a valid interval."""
    if interval is None or not 0 < interval[0] < interval[1]:
        return 0.0
    return math.log(interval[1] / interval[0]) / (2 * NormalDist().inv_cdf(0.975))


def _errors(candidates: Sequence[Candidate], draws: int, random: np.random.Generator) -> Floats:
    right = np.array([_right(candidate) for candidate in candidates], np.float32)
    samples = right.shape[1]
    covariance = np.atleast_2d(np.cov(right)) / samples if samples > 1 else np.zeros((len(right), len(right)))
    # Eigenvalues are 0 for candidates with the same answers, or slightly negative because of rounding.
    values, vectors = np.linalg.eigh(covariance)
    scatter = vectors * np.sqrt(np.maximum(values, 0))
    errors: Floats = random.standard_normal((draws, len(right))) @ scatter.T
    # Rounding makes candidates with the same answers exactly equal.
    return np.round(errors, 9)


def _right(candidate: Candidate) -> Floats:
    evaluation = candidate.run.evaluation
    arrays = evaluation.arrays if evaluation is not None else {}
    found: Floats = np.equal(arrays["truth"], arrays["predicted"])
    return found
