"""What a race knows of a candidate after some of its measuring: bounds of its metrics, and whether it may still win."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nnpipe.analysis.quality_intervals import quality_difference
from nnpipe.core.task import task_named
from nnpipe.measuring.constraints import Figure, MetricConstraint, metric_of
from nnpipe.measuring.quantities import Quantity
from nnpipe.measuring.racing import SHARES, Racer
from nnpipe.measuring.run import Run
from nnpipe.measuring.statistics import samples_needed
from nnpipe.report.inputs.quality import Quality, comparable
from nnpipe.workflows.sweep.budget import MeasuringTime
from nnpipe.workflows.sweep.estimates import Figures
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.points import Point
from nnpipe.workflows.sweep.samples import on_samples_of
from nnpipe.workflows.sweep.select import Claim, barring, claims_of, level_of, race_level, tell, told_barred

BETWEEN_STARTS = 0.05
"""By how much one start of a process may be faster or slower than another, as a share; one start cannot tell."""

_OF_ONE_RUN = ("load", "memory")  # a run tells one value, without an interval
_ONE_VALUE = ("size",)  # the same in every run


@dataclass(frozen=True, eq=False)
class RaceStanding:
    """A candidate after a stage of a race.

    Parameters
    ----------
    sweep, point
        The sweep and the combination.
    run, reference
        Its latest measurement, and the model as trained on the same samples.
    stage
        The number of stages behind it.  In stage 0, ``run`` is that of the same model in smaller batches.
    judged_all
        Whether all test samples were judged; then quality is as the full sweep would find it.
    """

    sweep: Sweep
    point: Point
    run: Run
    reference: Run | None
    stage: int
    judged_all: bool

    @property
    def complete(self) -> bool:
        """Whether it was measured in full."""
        return self.stage >= len(SHARES)

    @functools.cached_property
    def time(self) -> MeasuringTime:
        """What the latest measurement took."""
        return MeasuringTime.of(self.run)

    @functools.cached_property
    def racer(self) -> Racer:
        """What decides about it."""
        found = self.bounds(self.sweep.choose)
        value, low, high = (_unknown_is_worst(end) for end in (found.value, found.low, found.high))
        return Racer(self.stage, not self.reason, self._unmet, value, low, high)

    @functools.cached_property
    def reason(self) -> str:
        """Why it can no longer be chosen, whatever the others are; empty if it can."""
        if not self.sweep.competes(self.point):
            return "it is only there for comparison"
        if self.complete:
            barred = barring(self.sweep, self.figures.doubts)
            if barred:
                return told_barred(barred)
            return "; ".join(tell(claim) for claim in claims_of(self.sweep, self.figures) if not claim.holds)
        return "; ".join(self._failing())

    def bounds(self, metric: Quantity) -> Figure:
        """Return what the full measurement may still find of a metric: less is better in all that is returned."""
        if metric.name not in self._bounds:
            found = self._bounded(metric)
            if not metric.less_is_better:
                found = replace(found, value=None if found.value is None else -found.value)
                found = replace(found, low=-found.high, high=-found.low)
            self._bounds[metric.name] = found
        return self._bounds[metric.name]

    def is_known(self, metric: Quantity) -> bool:
        """Return whether the full measurement can find no other value."""
        return metric.name in _ONE_VALUE or (_of_quality(metric) and self.judged_all)

    def behind(self, leader: RaceStanding) -> bool:
        """Return whether it is surely worse than a candidate that was measured in full and qualifies."""
        metric = self.sweep.choose
        if self.is_known(metric) and leader.is_known(metric):
            # Among equals the full sweep takes the first by title.
            mine, best = self.racer.value, leader.racer.value
            return mine > best or (mine == best < math.inf and self.point.title > leader.point.title)
        if self.racer.low > leader.racer.high:
            return True
        low = self._difference(leader)
        return low is not None and low > 0

    @functools.cached_property
    def twin(self) -> tuple[str, str]:
        """What candidates share that give the same outputs: the file and the kind of runtime."""
        return str(self.run.artifact.get("sha256", self.point.title)), type(self.point.runtime).__name__

    @functools.cached_property
    def figures(self) -> Figures:
        """Its metrics as measured so far."""
        return Figures(self.run, self.reference)

    @functools.cached_property
    def _bounds(self) -> dict[str, Figure]:
        return {}

    @property
    def measured_batch(self) -> int:
        """The number of samples in a call of its measurement."""
        inference = self.run.series.get("inference")
        return int(np.max(inference["samples"])) if inference is not None and len(inference["samples"]) else 1

    @property
    def _unmet(self) -> int:
        """The number of constraints that the full measurement will probably not prove."""
        values = ((each, self._expected(each.metric)) for each in self._constraints)
        return sum(known.value is not None and each.judge(known) is not True for each, known in values)

    def _expected(self, metric: Quantity) -> Figure:
        """Return what the full measurement will probably find of a metric: the same value, told more exactly."""
        known = self.figures.of(metric, level_of(self.sweep))
        if known.value is None or self.is_known(metric):
            return known
        if not (math.isfinite(known.low) and math.isfinite(known.high)):
            return Figure.exactly(known.value)
        narrower = math.sqrt(SHARES[max(self.stage, 1) - 1])
        low, high = (known.value + narrower * (end - known.value) for end in (known.low, known.high))
        return replace(known, low=low, high=high)

    @property
    def _constraints(self) -> tuple[MetricConstraint, ...]:
        return self.sweep.constraints

    def _level(self, metric: Quantity) -> float:
        return level_of(self.sweep) if self.is_known(metric) else race_level(self.sweep)

    def _failing(self) -> Iterator[str]:
        for each in self._constraints:
            known = self.figures.of(each.metric, self._level(each.metric))
            claim = Claim(each, known, each.judge(known))
            # A full measurement of what is known would come to the same verdict, "cannot be told" included.
            if (self.is_known(each.metric) and not claim.holds) or each.judge(self._bounded(each.metric)) is False:
                yield tell(replace(claim, holds=False) if claim.holds is None and known.value is not None else claim)

    def _bounded(self, metric: Quantity) -> Figure:
        known = self.figures.of(metric, self._level(metric))
        if self.is_known(metric):
            return known if known.value is None else replace(known, low=known.value, high=known.value)
        if metric.name in _OF_ONE_RUN:
            # More samples take no less memory.
            least = known.value if metric.name == "memory" and known.value is not None else -math.inf
            return replace(known, low=least, high=math.inf)
        if metric.percentile is not None and metric.percentile >= 0.5 and not math.isfinite(known.low):
            median = self.figures.of(metric_of("latency_median"), race_level(self.sweep))
            known = replace(known, value=known.value or median.value, low=max(median.low, self._fastest), high=math.inf)
        if metric.percentile is not None or metric.name == "throughput":
            known = replace(known, low=known.low / (1 + BETWEEN_STARTS), high=known.high * (1 + BETWEEN_STARTS))
        return known if self.stage else self._in_larger_batches(metric, known)

    def _in_larger_batches(self, metric: Quantity, known: Figure) -> Figure:
        """Return the bounds of a metric from those in smaller batches: a call takes no less time with more samples."""
        if metric.percentile is not None:
            return replace(known, high=math.inf)
        if metric.name == "throughput":
            size = self.point.measure.inference_batch_size
            return replace(known, low=0.0, high=known.high * size / self.measured_batch)
        return replace(known, low=-math.inf, high=math.inf)

    @functools.cached_property
    def _fastest(self) -> float:
        """The time of the fastest call in seconds, if there are enough for the median to be slower almost surely."""
        inference = self.run.series.get("inference")
        calls = () if inference is None else inference["latency_ns"]
        return float(np.min(calls)) / 1e9 if len(calls) >= samples_needed(0.5, race_level(self.sweep)) else -math.inf

    def _difference(self, leader: RaceStanding) -> float | None:
        """Return by how much it is worse at least in the quality to choose by, on the samples of both, if known."""
        metric = self.sweep.choose
        alike = not metric.compared or self.point.model.title == leader.point.model.title
        if not metric.metric or not alike:
            return None
        mine, theirs = Quality.of(self.run), Quality.of(on_samples_of(leader.run, self.run, self.sweep) or leader.run)
        if mine is None or theirs is None or not comparable(mine, theirs):
            return None
        computed = task_named(mine.evaluation.task).metric(metric.metric)
        gap = quality_difference(computed, mine.evaluation, theirs.evaluation, race_level(self.sweep))
        return -gap.high if computed.less_is_better else gap.low


def _of_quality(metric: Quantity) -> bool:
    return bool(metric.metric) or metric.name == "agreement"


def _unknown_is_worst(value: float | None) -> float:
    return math.inf if value is None else value
