"""The Pareto front of time and quality, with the uncertainty of each candidate's place on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from nnpipe.analysis.quality_intervals import compute_paired_contributions
from nnpipe.measuring.pareto_front import compute_front_shares, on_front
from nnpipe.measuring.validity_warning import BARRING
from nnpipe.report.charts import Floats
from nnpipe.report.inputs.candidate import Candidate, explain_unequal_work, have_same_samples
from nnpipe.report.inputs.quality import Quality

# greatest number of draws, and of comparisons of two candidates in all draws
_DRAWS, _WORK = 2000, 4_000_000
_SEED = 0


@dataclass(frozen=True)
class ParetoStanding:
    """Whether a candidate is on the Pareto front of time and quality, and in which share of the
    draws.
    """

    on_front: bool
    share: float


def compute_pareto_standings(candidates: Sequence[Candidate]) -> dict[int, ParetoStanding]:
    """Return which candidates are on the Pareto front of median time and quality, and how surely.

    The front is computed again for random values of the metrics: medians from lognormal
    distributions with the measured intervals, metrics of quality from a joint normal distribution
    with the covariance of what samples contribute to them
    (:func:`~nnpipe.analysis.quality_intervals.compute_contributions`), so that samples that are
    hard for all candidates do not matter.

    Returns
    -------
    dict
        Standings by the candidates' numbers; empty unless at least two were timed in the same way
        and evaluated on the same samples, with the same work.  Candidates with doubts that keep
        them from being chosen are left out.
    """
    known = [
        (c, c.latency, c.quality)
        for c in candidates
        if c.latency is not None and c.quality is not None
    ]
    chosen = [each for each in known if not is_barred(each[0])]
    alike = len({c.timed.name for c, _, _ in chosen}) == 1 and chosen[0][0].timed.ranks
    if any(explain_unequal_work(chosen[0][2], quality) for _, _, quality in chosen[1:]):
        return {}
    if len(chosen) < 2 or not alike or not have_same_samples(candidates):
        return {}
    medians = np.array([latency.median for _, latency, _ in chosen])
    spreads = np.array(
        [_estimate_log_deviation(latency.percentile(0.5).interval) for _, latency, _ in chosen]
    )
    ranks = np.array([quality.rank for _, _, quality in chosen])
    if not np.isfinite(ranks).all():
        return {}
    draws = min(_DRAWS, max(100, _WORK // len(chosen) ** 2))
    random = np.random.default_rng(_SEED)
    times = medians * np.exp(spreads * random.standard_normal((draws, len(chosen))))
    drawn = ranks + _sample_errors([quality for _, _, quality in chosen], draws, random)
    shares = compute_front_shares(np.stack([times, -drawn], axis=-1))
    best = on_front(np.stack([medians, -ranks], axis=-1))
    return {
        candidate.number: ParetoStanding(bool(front), float(part))
        for (candidate, _, _), front, part in zip(chosen, best, shares, strict=True)
    }


def is_barred(candidate: Candidate) -> bool:
    """Return whether a doubt about its predictions keeps a candidate from being chosen."""
    return any(doubt.kind in BARRING for doubt in candidate.doubts)


def _estimate_log_deviation(interval: tuple[float, float] | None) -> float:
    """Return the standard deviation of the logarithm of a median; 0 without a valid interval."""
    if interval is None or not 0 < interval[0] < interval[1]:
        return 0.0
    return math.log(interval[1] / interval[0]) / (2 * NormalDist().inv_cdf(0.975))


def _sample_errors(qualities: Sequence[Quality], draws: int, random: np.random.Generator) -> Floats:
    """Return random errors of the metric of all candidates, ``(draws, candidates)``, with the
    sign of their rank.
    """
    metric, evaluations = qualities[0].metric, [each.evaluation for each in qualities]
    sign = -1.0 if metric.less_is_better else 1.0
    values = compute_paired_contributions(metric, evaluations)
    there = np.isfinite(values).all(axis=0)
    values = values if there.all() else values[:, there]
    parts = values.shape[1]
    covariance = (
        np.atleast_2d(np.cov(values)) / parts if parts > 1 else np.zeros((len(values), len(values)))
    )
    # Eigenvalues are 0 for candidates with the same answers, or slightly negative because of
    # rounding.
    eigenvalues, vectors = np.linalg.eigh(covariance)
    scatter = vectors * np.sqrt(np.maximum(eigenvalues, 0))
    errors: Floats = sign * (random.standard_normal((draws, len(values))) @ scatter.T)
    # Rounding makes candidates with the same answers exactly equal.
    return np.round(errors, 9)
