"""The metrics of generated text, and of the times of its tokens.

The names are those of NVIDIA GenAI-Perf,
https://docs.nvidia.com/nim/benchmarking/llm/latest/metrics.html, and vLLM, https://docs.vllm.ai:
TTFT, TPOT, ITL.  TPOT is one number for each request, the mean time between its tokens; ITL is one
number for each token, so that a pause within a request shows in its percentiles and not in those of
TPOT. Percentiles are not defined for fewer values than an interval of them needs, 299 for p99.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic
from nnpipe.measuring.quantile_intervals import count_samples_needed

# Quantiles of values that belong to samples with weights.
#
# The estimate is that of F. E. Harrell and C. E. Davis, "A new distribution-free quantile
# estimator", Biometrika 69 (1982), 635-640: a mean of all ordered values, weighted by how likely
# each is to be the quantile.  Unlike a single ordered value, it changes smoothly when samples are
# left out, so that the jackknife tells how sure it is, as the authors propose.

_REACH = 9.0  # standard deviations of the rank beyond which weights are below 1e-15
# share of all values by which the rank may move when samples are left out, before all are looked at
_MARGIN = 0.02


def create_quantile_statistic(
    values: Floats, owners: npt.NDArray[np.integer], samples: int, share: float, fewest: int = 1
) -> Statistic:
    """Return a quantile as a function of the weights of samples.

    Parameters
    ----------
    values
        The values, ``(values,)``.
    owners
        The sample to which each belongs, ``(values,)`` integers; one may have any number of values.
    samples
        The number of samples.
    share
        The quantile, 0.99 for p99.
    fewest
        The number of values, weighted, below which it is not defined.

    Returns
    -------
    callable
        Takes ``(samples,)`` weights, and returns NaN if there are too few values.
    """
    order = np.argsort(values, kind="stable")
    ordered, of = values[order], owners[order]
    number = len(ordered)
    reach = math.ceil(_compute_rank_reach(number, share) + _MARGIN * number)
    first = max(0, math.floor(share * number) - reach)
    last = min(number, math.ceil(share * number) + reach)
    counts = np.bincount(of, minlength=samples).astype(np.float64)
    before = np.bincount(of[:first], minlength=samples).astype(np.float64)
    near, near_of = ordered[first:last], of[first:last]

    def statistic(weights: Floats) -> float:
        total = float(weights @ counts)
        if total < fewest:
            return math.nan
        if not (weights == 1).all():
            return compute_quantile(weights, total)
        return _compute_weighted_quantile(near, float(first), np.ones(last - first), total, share)

    def compute_quantile(weights: Floats, total: float) -> float:
        below, beside = float(weights @ before), weights[near_of]
        around = _compute_rank_reach(total, share) + 1
        enough = below <= share * total - around or first == 0
        if enough and (below + float(beside.sum()) >= share * total + around or last == number):
            return _compute_weighted_quantile(near, below, beside, total, share)
        return _compute_weighted_quantile(ordered, 0.0, weights[of], total, share)

    return statistic


def _compute_rank_reach(total: float, share: float) -> float:
    """Return how far from its place, in values, the quantile may be."""
    return _REACH * math.sqrt(share * (1 - share) * total) + _REACH**2


def _compute_weighted_quantile(
    values: Floats, below: float, weights: Floats, total: float, share: float
) -> float:
    """Return the mean of ordered values, each weighted by the part of the beta distribution over
    its ranks.
    """
    alpha, beta = (total + 1) * share, (total + 1) * (1 - share)
    ends = below + np.concatenate([[0.0], np.cumsum(weights)])
    low = max(math.floor(below), math.floor(share * total - _compute_rank_reach(total, share)), 0)
    high = min(
        math.ceil(ends[-1]),
        math.ceil(share * total + _compute_rank_reach(total, share)),
        math.ceil(total),
    )
    grid = np.arange(low, high + 1, dtype=np.float64)
    # The density in the middle of each rank; a constant factor does not matter.
    middles = (grid[:-1] + 0.5) / max(total, high)
    logarithm = (alpha - 1) * np.log(middles) + (beta - 1) * np.log1p(-middles)
    parts = np.exp(logarithm - logarithm.max())
    reached = np.concatenate([[0.0], np.cumsum(parts)])
    part = np.diff(np.interp(ends, grid, reached))
    return float(part @ values / part.sum())


PERCENTILES = (("median", 0.5), ("p90", 0.9), ("p99", 0.99))
_NS = 1e9
_NO_REFERENCE = -1

Times = Callable[[Evaluation], tuple[Floats, npt.NDArray[np.integer]]]
"""Returns times in seconds, ``(values,)``, and the sample to which each belongs."""


def get_first_token_times(found: Evaluation) -> tuple[Floats, npt.NDArray[np.integer]]:
    """Return the time from each request to its first token, in seconds, and the numbers of the
    requests.
    """
    rows = found.ragged["token_ns"]
    there = np.flatnonzero(rows.counts > 0)
    return rows.values[rows.starts[:-1][there]].astype(np.float64) / _NS, there


def get_token_intervals(found: Evaluation) -> tuple[Floats, npt.NDArray[np.integer]]:
    """Return the time between neighbouring tokens, in seconds, and the number of each one's
    request.
    """
    rows = found.ragged["token_ns"]
    later = np.ones(len(rows.values), bool)
    later[rows.starts[:-1][rows.counts > 0]] = False
    return rows.values[later].astype(np.float64) / _NS, rows.owners[later]


def compute_mean_intervals(found: Evaluation) -> tuple[Floats, npt.NDArray[np.integer]]:
    """Return the mean time between the tokens of each request, in seconds, and the numbers of
    the requests.
    """
    times, owners = get_token_intervals(found)
    counts = np.bincount(owners, minlength=len(found))
    sums = np.bincount(owners, times, len(found))
    there = np.flatnonzero(counts)
    return sums[there] / counts[there], there


def get_request_times(found: Evaluation) -> tuple[Floats, npt.NDArray[np.integer]]:
    """Return the time of each whole request, in seconds, and the numbers of the requests."""
    return found.arrays["request_ns"] / _NS, np.arange(len(found))


TIMES: tuple[tuple[str, str, str, str, Times], ...] = (
    (
        "ttft",
        "TTFT",
        "Time to first token",
        "from the request to its first token",
        get_first_token_times,
    ),
    (
        "tpot",
        "TPOT",
        "Time per output token",
        "mean time between the tokens of a request",
        compute_mean_intervals,
    ),
    (
        "itl",
        "ITL",
        "Inter-token latency",
        "time from each token to the next, of all requests",
        get_token_intervals,
    ),
    (
        "request",
        "End to end",
        "Time of a request",
        "from the request to the end of its answer",
        get_request_times,
    ),
)
"""Each kind of time: name, heading, title, definition, and the function that finds it."""


def _create_mean_statistic(times: Times) -> Callable[[Evaluation], Statistic]:
    def prepare(found: Evaluation) -> Statistic:
        values, owners = times(found)
        sums = np.bincount(owners, values, len(found))
        counts = np.bincount(owners, minlength=len(found)).astype(np.float64)
        return _create_ratio_statistic(sums.astype(np.float64), counts)

    return prepare


def _create_percentile_statistic(times: Times, share: float) -> Callable[[Evaluation], Statistic]:
    def prepare(found: Evaluation) -> Statistic:
        return create_quantile_statistic(
            *times(found), len(found), share, count_samples_needed(share)
        )

    return prepare


def _create_ratio_statistic(above: Floats, below: Floats) -> Statistic:
    def compute_ratio(weights: Floats) -> float:
        total = float(weights @ below)
        return float(weights @ above) / total if total > 0 else math.nan

    return compute_ratio


def _prepare_throughput(found: Evaluation) -> Statistic:
    return _create_ratio_statistic(
        found.ragged["token_ns"].counts.astype(np.float64), found.arrays["request_ns"] / _NS
    )


def _prepare_perplexity(found: Evaluation) -> Statistic:
    likelihood = found.arrays["log_likelihood"].astype(np.float64)
    known = ~np.isnan(likelihood)
    tokens = np.where(known, found.arrays["reference_tokens"], 0).astype(np.float64)
    impossible = np.isinf(likelihood)
    mean = _create_ratio_statistic(np.where(known & ~impossible, -likelihood, 0.0), tokens)

    def compute_perplexity(weights: Floats) -> float:
        if (weights[impossible] > 0).any():
            return math.inf
        return float(np.exp(min(mean(weights), 700.0)))  # beyond, a float is infinite

    return compute_perplexity


def _get_exact_matches(found: Evaluation) -> Floats:
    exact = found.arrays["exact"].astype(np.float64)
    return np.where(exact == _NO_REFERENCE, np.nan, exact)


def _create_time_metrics() -> tuple[QualityMetric, ...]:
    found = []
    for name, heading, title, meaning, times in TIMES:
        found.append(
            QualityMetric(
                f"{name}_mean",
                f"{heading} mean",
                f"Mean {title[0].lower()}{title[1:]}",
                f"{meaning}: the mean",
                "time",
                True,
                statistic=_create_mean_statistic(times),
            )
        )
        for word, share in PERCENTILES:
            what = "half of them take less" if share == 0.5 else f"{100 * share:g} % take less"
            found.append(
                QualityMetric(
                    f"{name}_{word}",
                    f"{heading} {word}",
                    f"{word.capitalize() if share == 0.5 else word} of the "
                    f"{title[0].lower()}{title[1:]}",
                    f"{meaning}: {what}",
                    "time",
                    True,
                    statistic=_create_percentile_statistic(times, share),
                    draws=200,
                )
            )
    return tuple(found)


METRICS = (
    QualityMetric(
        "exact_match", "Exact match", "Exact match",
        "share of the prompts with a reference whose answer is the reference, without space at the "
        "ends",
        "share", False, values=_get_exact_matches,
    ),
    QualityMetric(
        "perplexity", "Perplexity", "Perplexity of the references",
        "exponential of the mean negative log-likelihood of a reference's token, given the prompt "
        "and the tokens "
        "before it; only models with the same tokenizer can be compared", "ratio", True, statistic=_prepare_perplexity,
        bounds=(1.0, math.inf),
    ),
    *_create_time_metrics(),
    QualityMetric(
        "output_throughput", "Tokens/s", "Output throughput", "tokens generated by the time of "
        "all requests, one after "
        "the other", "rate", False, statistic=_prepare_throughput,
    ),
)  # fmt: skip
"""Exact match, perplexity, the mean and the percentiles of each time, and the throughput."""
