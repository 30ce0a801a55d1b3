"""The metrics by which a candidate is judged, with intervals, and random draws of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from nnpipe.analysis.quality_intervals import bootstrap_metrics, compute_quality_difference
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import get_task
from nnpipe.measuring.benchmark import choose_samples
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.quantile_intervals import compute_correlated_mean_interval
from nnpipe.measuring.quantities import Quantity
from nnpipe.measuring.run import Run
from nnpipe.measuring.run_figures import (
    BOARD_FIGURES,
    COUNTERS,
    compute_count_figure,
    compute_energy_figure,
    get_board_figure,
    get_counter,
)
from nnpipe.measuring.series import ROUND_TRIP
from nnpipe.measuring.statistics import count_samples_needed
from nnpipe.measuring.validity_warning import ValidityWarning
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.inputs.quality import (
    Quality,
    as_figure,
    compute_agreement,
    compute_metric_figure,
    is_comparable,
)
from nnpipe.workflows.sweep.file import Sweep

Floats = npt.NDArray[np.float64]

_AS_TRAINED = "the model as trained was not measured on the same samples"


class Figures:
    """The metrics of a run; intermediate results are computed once.

    Parameters
    ----------
    run
        The candidate.
    reference
        The model as trained, for losses of quality and for ``agreement``.
    """

    def __init__(self, run: Run, reference: Run | None) -> None:
        self.run = run
        self.reference = reference
        self._candidate = Candidate.from_run(run)
        self._known: dict[tuple[str, float], Figure] = {}

    @property
    def doubts(self) -> tuple[ValidityWarning, ...]:
        """Reasons to doubt its times."""
        return self._candidate.doubts

    def get_figure(self, metric: Quantity, confidence: float) -> Figure:
        """Return a metric with an interval of the given confidence."""
        key = metric.name, confidence
        if key not in self._known:
            self._known[key] = self._compute_figure(metric, confidence)
        return self._known[key]

    def _compute_figure(self, metric: Quantity, confidence: float) -> Figure:
        candidate = self._candidate
        if metric.name in COUNTERS:
            return compute_count_figure(self.run, metric.name, confidence)
        if metric.name in BOARD_FIGURES:
            return get_board_figure(self.run, metric.name)
        if candidate.timed is ROUND_TRIP and (
            metric.percentile is not None or metric.name == "throughput"
        ):
            return Figure.unknown(
                f"the target counts {get_counter(self.run) or 'something else'} instead of time"
            )
        if metric.percentile is not None:
            return _compute_latency(candidate, metric.percentile, confidence)
        if metric.name == "throughput":
            return _compute_throughput(candidate, confidence)
        if metric.name == "energy":
            return compute_energy_figure(self.run, confidence) or Figure.unknown(
                "name a meter in measure.energy_meter"
            )
        if metric.name in ("load", "memory", "size"):
            value = {
                "load": candidate.load_ns,
                "memory": candidate.peak_memory,
                "size": candidate.size,
            }[metric.name]
            if value is None:
                return Figure.unknown(
                    _explain_missing_size(self.run) if metric.name == "size" else "not measured"
                )
            return Figure.exactly(value / 1e9 if metric.name == "load" else value)
        return _compute_quality(self.run, metric, self.reference, confidence)


def sample_metric(candidates: Sequence[Figures], metric: Quantity, count: int, seed: int) -> Floats:
    """Return random values of a metric of all candidates, as if all were measured again.

    Test samples are resampled, the same ones for all candidates, so samples that are
    hard for all do not matter.  Latencies are drawn from a lognormal distribution
    with the interval of the measured one.

    Returns
    -------
    ndarray
        Float64 ``(count, candidates)``; NaN where a metric is unknown.
    """
    figures = [each.get_figure(metric, 0.95) for each in candidates]
    if metric.metric or metric.name == "agreement":
        return _sample_quality(candidates, metric, count, seed, figures)
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


def _explain_missing_size(run: Run) -> str:
    if not run.artifact:
        return "the model runs in its own framework"
    return "what was built from its C source is not told; it has no size that compares with files"


def _compute_latency(candidate: Candidate, share: float, confidence: float) -> Figure:
    if candidate.latency is None:
        return Figure.unknown("no inference was timed")
    calls = len(candidate.latency)
    needed = count_samples_needed(share, confidence)
    if calls < needed:
        return Figure.unknown(
            f"{calls:,} calls cannot tell it, {needed:,} can: raise measure.measure_seconds"
        )
    value = candidate.latency.quantile(share) / 1e9
    found = candidate.latency.sample.interval(share, confidence)
    if found is None:
        reason = f"its {calls:,} calls depend on each other too much: raise measure.measure_seconds"
        return Figure(value, count=calls, reason=reason)
    return Figure(value, found[0] / 1e9, found[1] / 1e9, calls)


def _compute_throughput(candidate: Candidate, confidence: float) -> Figure:
    """Return the samples per second; the interval follows from that of the mean time of a call."""
    if candidate.throughput is None or candidate.latency is None:
        return Figure.unknown("no inference was timed")
    found, calls = (
        compute_correlated_mean_interval(candidate.times, confidence),
        len(candidate.latency),
    )
    if found is None or found[0] <= 0:
        return Figure(candidate.throughput, 0.0, math.inf, calls)
    work = candidate.throughput * candidate.latency.mean
    return Figure(candidate.throughput, work / found[1], work / found[0], calls)


def _compute_quality(
    run: Run, metric: Quantity, reference: Run | None, confidence: float
) -> Figure:
    own = Quality.from_run(run)
    if own is None:
        return Figure.unknown("no predictions were judged")
    if metric.name == "agreement" or metric.compared:
        other = None if reference is None else Quality.from_run(reference)
        if other is None or not is_comparable(own, other):
            return Figure.unknown(_AS_TRAINED)
        if metric.name == "agreement":
            return compute_agreement(own.task, own.evaluation, other.evaluation, confidence)
    try:
        computed = own.task.metric(metric.metric)
    except KeyError:
        return Figure.unknown(f"the task {own.task.name!r} has no metric {metric.metric!r}")
    if not metric.compared:
        return compute_metric_figure(computed, own.evaluation, confidence)
    assert other is not None
    first, second = (other, own) if computed.less_is_better else (own, other)
    gap = compute_quality_difference(computed, first.evaluation, second.evaluation, confidence)
    return as_figure(gap, own.evaluation, other.evaluation)


def _sample_quality(
    candidates: Sequence[Figures],
    metric: Quantity,
    count: int,
    seed: int,
    figures: Sequence[Figure],
) -> Floats:
    found = np.full((count, len(candidates)), np.nan)
    known = [i for i, each in enumerate(figures) if each.value is not None]
    if not known:
        return found
    runs = [candidates[i].run for i in known]
    if metric.name == "agreement":
        own = [_require_evaluation(run) for run in runs]
        others = [_require_evaluation(candidates[i].reference) for i in known]
        task = get_task(own[0].task)
        same = {
            id(one): np.asarray(task.agreement(one, other))
            for one, other in zip(own, others, strict=True)
        }
        computed = QualityMetric(
            "agreement",
            "",
            "",
            "",
            "share",
            False,
            values=lambda one: same[id(one)].astype(np.float64),
        )
        found[:, known] = bootstrap_metrics(computed, own, count, seed)
        return found
    computed = get_task(_require_evaluation(runs[0]).task).metric(metric.metric)
    if not metric.compared:
        found[:, known] = bootstrap_metrics(
            computed, [_require_evaluation(run) for run in runs], count, seed
        )
        return found
    # Candidates of one model share a reference, whose metric is computed once.
    references = {id(candidates[i].reference): candidates[i].reference for i in known}
    both = [*runs, *references.values()]
    drawn = bootstrap_metrics(computed, [_require_evaluation(run) for run in both], count, seed)
    place = {key: len(runs) + number for number, key in enumerate(references)}
    of_reference = drawn[:, [place[id(candidates[i].reference)] for i in known]]
    sign = -1.0 if computed.less_is_better else 1.0
    found[:, known] = sign * (of_reference - drawn[:, : len(runs)])
    return found


def _require_evaluation(run: Run | None) -> Evaluation:
    assert run is not None  # otherwise the figure would be unknown
    assert run.evaluation is not None
    return run.evaluation


def test_samples(sweep: Sweep) -> npt.NDArray[np.int64]:
    """Return the numbers of the test samples that a sweep measures."""
    return _select_samples(sweep.dataset, sweep.points[0].measure.measure_samples)


def sample_count(sweep: Sweep) -> int:
    """Return the number of test samples that a sweep measures."""
    return len(test_samples(sweep))


def on_samples_of(run: Run, other: Run, sweep: Sweep) -> Run | None:
    """Return the predictions of a run on the samples of another; ``None`` if it was not judged on
    all of these.

    Its times are left out: they belong to all of its samples.
    """
    if run.evaluation is None or other.evaluation is None:
        return None
    places = find_chosen_places(sweep.dataset, len(run.evaluation), len(other.evaluation))
    return (
        None if places is None else replace(run, evaluation=run.evaluation.take(places), series={})
    )


def find_chosen_places(dataset: Dataset, count: int, fewer: int) -> npt.NDArray[np.int64] | None:
    """Return the places of ``fewer`` chosen test samples among ``count``; ``None`` if these do
    not hold all.
    """
    mine, theirs = _select_samples(dataset, count), _select_samples(dataset, fewer)
    places = np.minimum(np.searchsorted(mine, theirs), len(mine) - 1)
    return places if np.array_equal(mine[places], theirs) else None


@functools.lru_cache(maxsize=16)
def _select_samples(dataset: Dataset, count: int | None) -> npt.NDArray[np.int64]:
    chosen = choose_samples(dataset.split("test"), count, dataset.is_stream)
    if not len(chosen):
        raise ConfigError("the test split is empty")
    return np.asarray(chosen)
