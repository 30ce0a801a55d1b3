"""The metrics by which a candidate is judged, with intervals, and random draws of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.accuracy_difference import paired_difference
from nnpipe.analysis.classification import wilson_interval
from nnpipe.core.evaluation import Evaluation
from nnpipe.measuring.autocorrelation import mean_interval
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.doubt import Doubt
from nnpipe.measuring.quantities import Quantity
from nnpipe.measuring.run import Run
from nnpipe.measuring.statistics import samples_needed
from nnpipe.report.inputs.candidate import Candidate

Floats = npt.NDArray[np.float64]

_AT_ONCE = 1 << 22  # random samples that are drawn together
_AS_TRAINED = "the model as trained was not measured on the same samples"


class Figures:
    """The metrics of a run; intermediate results are computed once.

    Parameters
    ----------
    run
        The candidate.
    reference
        The model as trained, for ``accuracy_loss`` and ``agreement``.
    """

    def __init__(self, run: Run, reference: Run | None) -> None:
        self.run = run
        self.reference = reference
        self._candidate = Candidate.of(run)
        self._known: dict[tuple[str, float], Figure] = {}

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Reasons to doubt its times."""
        return self._candidate.doubts

    def of(self, metric: Quantity, confidence: float) -> Figure:
        """Return a metric with an interval of the given confidence."""
        key = metric.name, confidence
        if key not in self._known:
            self._known[key] = self._found(metric, confidence)
        return self._known[key]

    def _found(self, metric: Quantity, confidence: float) -> Figure:
        candidate = self._candidate
        if metric.percentile is not None:
            return _latency(candidate, metric.percentile, confidence)
        if metric.name == "throughput":
            return _throughput(candidate, confidence)
        if metric.name in ("load", "memory", "size"):
            value = {"load": candidate.load_ns, "memory": candidate.peak_memory, "size": candidate.size}[metric.name]
            if value is None:
                reason = "the model runs in its own framework" if metric.name == "size" else "not measured"
                return Figure.unknown(reason)
            return Figure.exactly(value / 1e9 if metric.name == "load" else value)
        return _quality(self.run, metric, self.reference, confidence)


def drawn(candidates: Sequence[Figures], metric: Quantity, count: int, seed: int) -> Floats:
    """Return random values of a metric of all candidates, as if all were measured again.

    Test samples are resampled, the same ones for all candidates, so samples that are
    hard for all do not matter.  Latencies are drawn from a lognormal distribution
    with the interval of the measured one.

    Returns
    -------
    ndarray
        Float64 ``(count, candidates)``; NaN where a metric is unknown.
    """
    figures = [each.of(metric, 0.95) for each in candidates]
    if metric.kind == "share":
        return _drawn_shares(candidates, metric, count, seed, figures)
    rng = np.random.default_rng((seed, *metric.name.encode()))
    found = np.full((count, len(candidates)), np.nan)
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
    found = candidate.latency.sample.interval(share, confidence)
    if found is None:
        reason = f"its {calls:,} calls depend on each other too much: raise measure.measure_seconds"
        return Figure(value, count=calls, reason=reason)
    return Figure(value, found[0] / 1e9, found[1] / 1e9, calls)


def _throughput(candidate: Candidate, confidence: float) -> Figure:
    """Return the samples per second; the interval follows from that of the mean time of a call."""
    if candidate.throughput is None or candidate.latency is None:
        return Figure.unknown("no inference was timed")
    found, calls = mean_interval(candidate.times, confidence), len(candidate.latency)
    if found is None or found[0] <= 0:
        return Figure(candidate.throughput, 0.0, math.inf, calls)
    work = candidate.throughput * candidate.latency.mean
    return Figure(candidate.throughput, work / found[1], work / found[0], calls)


def _quality(run: Run, metric: Quantity, reference: Run | None, confidence: float) -> Figure:
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
    candidates: Sequence[Figures], metric: Quantity, count: int, seed: int, figures: Sequence[Figure]
) -> Floats:
    found = np.full((count, len(candidates)), np.nan)
    known = [i for i, each in enumerate(figures) if each.value is not None]
    if not known:
        return found
    # The contribution of each sample; their mean is the metric.  Whole numbers below 2^24 are exact.
    worth = np.stack([_worth(candidates[i].run, metric, candidates[i].reference) for i in known], 1).astype(np.float32)
    samples = len(worth)
    rng = np.random.default_rng((seed, samples))
    step = max(1, _AT_ONCE // samples)
    for begin in range(0, count, step):
        rows = range(begin, min(begin + step, count))
        times = np.stack([np.bincount(rng.integers(0, samples, samples), minlength=samples) for _ in rows])
        found[np.ix_(rows, known)] = (times.astype(np.float32) @ worth).astype(np.float64) / samples
    return found


def _worth(run: Run, metric: Quantity, reference: Run | None) -> npt.NDArray[Any]:
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
