"""The figures that a candidate is judged by, each with its interval, and draws from what they might be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.classification import wilson_interval
from nnpipe.analysis.paired import paired_difference
from nnpipe.core.evaluation import Evaluation
from nnpipe.measure.constraints import Figure, Metric
from nnpipe.measure.dependence import mean_interval, quantile_interval
from nnpipe.measure.run import Run
from nnpipe.measure.statistics import samples_needed
from nnpipe.report.candidate import Candidate

Floats = npt.NDArray[np.float64]

_AS_TRAINED = "the model as trained was not measured on the same samples"


def figure(run: Run, metric: Metric, reference: Run | None, confidence: float) -> Figure:
    """Give a metric of a run.

    Parameters
    ----------
    run
        The candidate.
    metric
        What is wanted.
    reference
        The model as trained, for ``accuracy_loss`` and ``agreement``.
    confidence
        Of the interval.
    """
    candidate = Candidate.of(run)
    if metric.percentile is not None:
        return _latency(candidate, metric.percentile, confidence)
    if metric.name == "throughput":
        return _throughput(candidate, confidence)
    if metric.name in ("load", "memory", "size"):
        value = {"load": candidate.load_ns, "memory": candidate.peak_memory, "size": candidate.size}[metric.name]
        if value is None:
            return Figure.unknown("the model runs in its own framework" if metric.name == "size" else "not measured")
        return Figure.exactly(value / 1e9 if metric.name == "load" else value)
    return _quality(run, metric, reference, confidence)


def drawn(runs: Sequence[Run], metric: Metric, references: Sequence[Run | None], count: int, seed: int) -> Floats:
    """Draw what a metric of all candidates might be, were all measured again.

    Test samples are drawn anew, the same ones for all candidates, so what makes
    a sample hard for all cancels.  Latencies are drawn from a normal
    distribution of their logarithm that has the interval of the measured one.

    Returns
    -------
    ndarray
        Shape (count, candidates), float64; NaN where a figure is unknown.
    """
    figures = [figure(run, metric, reference, 0.95) for run, reference in zip(runs, references, strict=True)]
    if metric.kind == "share":
        return _drawn_shares(runs, metric, references, count, seed, figures)
    rng = np.random.default_rng((seed, *metric.name.encode()))
    found = np.full((count, len(runs)), np.nan)
    for column, known in enumerate(figures):
        if known.value is None:
            continue
        found[:, column] = known.value
        if 0 < known.low < known.high < math.inf:
            spread = math.log(known.high / known.low) / (2 * NormalDist().inv_cdf(0.975))
            found[:, column] *= np.exp(spread * rng.standard_normal(count))
    return found


def _latency(candidate: Candidate, share: float, confidence: float) -> Figure:
    if candidate.latency is None:
        return Figure.unknown("no inference was timed")
    calls = len(candidate.latency)
    needed = samples_needed(share, confidence)
    if calls < needed:
        return Figure.unknown(f"{calls:,} calls cannot tell it, {needed:,} can: raise measure.measure_seconds")
    value = candidate.latency.quantile(share) / 1e9
    found = quantile_interval(candidate.times, share, confidence)
    if found is None:
        reason = f"its {calls:,} calls depend on each other too much: raise measure.measure_seconds"
        return Figure(value, count=calls, reason=reason)
    return Figure(value, found[0] / 1e9, found[1] / 1e9, calls)


def _throughput(candidate: Candidate, confidence: float) -> Figure:
    """Samples a second; the interval is that of the mean time of a call."""
    if candidate.throughput is None or candidate.latency is None:
        return Figure.unknown("no inference was timed")
    found, calls = mean_interval(candidate.times, confidence), len(candidate.latency)
    if found is None or found[0] <= 0:
        return Figure(candidate.throughput, 0.0, math.inf, calls)
    work = candidate.throughput * candidate.latency.mean
    return Figure(candidate.throughput, work / found[1], work / found[0], calls)


def _quality(run: Run, metric: Metric, reference: Run | None, confidence: float) -> Figure:
    own = _classes(run.evaluation)
    if own is None:
        return Figure.unknown("no classes were predicted")
    truth, predicted = own
    count, right = len(truth), predicted == truth
    if metric.name == "accuracy":
        return Figure(float(right.mean()), *wilson_interval(int(right.sum()), count, confidence), count)
    other = _classes(reference.evaluation) if reference is not None else None
    if other is None or not np.array_equal(truth, other[0]):
        return Figure.unknown(_AS_TRAINED)
    if metric.name == "agreement":
        same = predicted == other[1]
        return Figure(float(same.mean()), *wilson_interval(int(same.sum()), count, confidence), count)
    source_right = other[1] == truth
    lost, gained = int((source_right & ~right).sum()), int((right & ~source_right).sum())
    return Figure(*paired_difference(lost, gained, count, confidence), count)


def _drawn_shares(
    runs: Sequence[Run], metric: Metric, references: Sequence[Run | None], count: int, seed: int,
    figures: Sequence[Figure],
) -> Floats:  # fmt: skip
    found = np.full((count, len(runs)), np.nan)
    known = [i for i, each in enumerate(figures) if each.value is not None]
    if not known:
        return found
    # What each sample adds to the figure; the mean of these is the figure.
    worth = np.stack([_worth(runs[i], metric, references[i]) for i in known], axis=1).astype(np.float64)
    rng = np.random.default_rng((seed, len(worth)))
    for row in range(count):
        times = np.bincount(rng.integers(0, len(worth), len(worth)), minlength=len(worth))
        found[row, known] = times @ worth / len(worth)
    return found


def _worth(run: Run, metric: Metric, reference: Run | None) -> npt.NDArray[Any]:
    own = _classes(run.evaluation)
    assert own is not None
    truth, predicted = own
    found: npt.NDArray[Any] = np.equal(predicted, truth)
    if metric.name == "accuracy":
        return found
    other = _classes(reference.evaluation) if reference is not None else None
    assert other is not None
    if metric.name == "agreement":
        found = np.equal(predicted, other[1])
    else:
        found = np.subtract(np.equal(other[1], truth), found, dtype=np.int8)
    return found


def _classes(evaluation: Evaluation | None) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    if evaluation is None or evaluation.task != "classification" or not len(evaluation):
        return None
    return evaluation.arrays["truth"], evaluation.arrays["predicted"]
