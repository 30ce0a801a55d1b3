"""A sweep with a budget: every candidate is measured a little, and further only while that can
change the result.

Loading a training framework can take longer than measuring.  So where a model as trained is
measured in full, since losses are told against it, the same model in larger batches is not looked
at before that can change the result: its predictions are the same, and a call takes no less time.
"""

from __future__ import annotations

import functools
import logging
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from nnpipe.analysis.quality_intervals import compute_quality_difference
from nnpipe.core.task import get_task
from nnpipe.measuring.constraints import Figure, MetricConstraint, get_metric_quantity
from nnpipe.measuring.quantities import Quantity
from nnpipe.measuring.racing import SHARES, Racer, find_front_places, find_leaders, open_for_choice
from nnpipe.measuring.run import Run
from nnpipe.measuring.statistics import count_samples_needed
from nnpipe.report.inputs.quality import Quality, is_comparable
from nnpipe.report.quantity_text import format_figure
from nnpipe.workflows.decision import Claim, format_barring_warnings
from nnpipe.workflows.journal import Outcome
from nnpipe.workflows.sweep.budget import BudgetUse, MeasuringTime
from nnpipe.workflows.sweep.estimates import Figures, on_samples_of, sample_count
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.points import Point
from nnpipe.workflows.sweep.run import FinishedPoint
from nnpipe.workflows.sweep.select import compute_race_level
from nnpipe.workflows.verification.compare_outputs import VerifyOptions

BETWEEN_STARTS = 0.05
"""By how much one start of a process may be faster or slower than another, as a share; one start
cannot tell.
"""

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
        The number of stages behind it.  In stage 0, ``run`` is that of the same model in smaller
        batches.
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
        return MeasuringTime.from_run(self.run)

    @functools.cached_property
    def racer(self) -> Racer:
        """What decides about it."""
        found = self.compute_bounds(self.sweep.choose)
        value, low, high = (_replace_unknown(end) for end in (found.value, found.low, found.high))
        return Racer(self.stage, not self.reason, self._unmet, value, low, high)

    @functools.cached_property
    def reason(self) -> str:
        """Why it can no longer be chosen, whatever the others are; empty if it can."""
        if not self.sweep.can_be_chosen(self.point):
            return "it is only there for comparison"
        if self.complete:
            barred = self.sweep.rule.find_barring_warnings(self.figures.doubts)
            if barred:
                return format_barring_warnings(barred)
            return "; ".join(
                claim.describe()
                for claim in self.sweep.rule.check_constraints(self.figures)
                if not claim.holds
            )
        return "; ".join(self._find_failures())

    def compute_bounds(self, metric: Quantity) -> Figure:
        """Return what the full measurement may still find of a metric: less is better in all
        that is returned.
        """
        if metric.name not in self._bounds:
            found = self._compute_interval(metric)
            if not metric.less_is_better:
                found = replace(found, value=None if found.value is None else -found.value)
                found = replace(found, low=-found.high, high=-found.low)
            self._bounds[metric.name] = found
        return self._bounds[metric.name]

    def is_known(self, metric: Quantity) -> bool:
        """Return whether the full measurement can find no other value."""
        return metric.name in _ONE_VALUE or (_is_quality_metric(metric) and self.judged_all)

    def is_dominated_by(self, leader: RaceStanding) -> bool:
        """Return whether it is surely worse than a candidate that was measured in full and
        qualifies.
        """
        metric = self.sweep.choose
        if self.is_known(metric) and leader.is_known(metric):
            # Among equals the full sweep takes the first by title.
            mine, best = self.racer.value, leader.racer.value
            return mine > best or (
                mine == best < math.inf and self.point.title > leader.point.title
            )
        if self.racer.low > leader.racer.high:
            return True
        low = self._compute_difference(leader)
        return low is not None and low > 0

    @functools.cached_property
    def twin(self) -> tuple[str, str]:
        """What candidates share that give the same outputs: the file and the kind of runtime."""
        return str(self.run.artifact.get("sha256", self.point.title)), type(
            self.point.runtime
        ).__name__

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
        return (
            int(np.max(inference["samples"]))
            if inference is not None and len(inference["samples"])
            else 1
        )

    @property
    def _unmet(self) -> int:
        """The number of constraints that the full measurement will probably not prove."""
        values = ((each, self._predict_figure(each.metric)) for each in self._constraints)
        return sum(
            known.value is not None and each.evaluate(known) is not True for each, known in values
        )

    def _predict_figure(self, metric: Quantity) -> Figure:
        """Return what the full measurement will probably find of a metric: the same value, told
        more exactly.
        """
        known = self.figures.get_figure(metric, self.sweep.rule.level)
        if known.value is None or self.is_known(metric):
            return known
        if not (math.isfinite(known.low) and math.isfinite(known.high)):
            return Figure.exactly(known.value)
        narrower = math.sqrt(SHARES[max(self.stage, 1) - 1])
        low, high = (
            known.value + narrower * (end - known.value) for end in (known.low, known.high)
        )
        return replace(known, low=low, high=high)

    @property
    def _constraints(self) -> tuple[MetricConstraint, ...]:
        return self.sweep.constraints

    def _choose_level(self, metric: Quantity) -> float:
        return self.sweep.rule.level if self.is_known(metric) else compute_race_level(self.sweep)

    def _find_failures(self) -> Iterator[str]:
        for each in self._constraints:
            known = self.figures.get_figure(each.metric, self._choose_level(each.metric))
            claim = Claim.check(each, known)
            # A full measurement of what is known would come to the same verdict, "cannot be told"
            # included.
            if (self.is_known(each.metric) and not claim.holds) or each.evaluate(
                self._compute_interval(each.metric)
            ) is False:
                undecided = claim.holds is None and known.value is not None
                yield (replace(claim, holds=False) if undecided else claim).describe()

    def _compute_interval(self, metric: Quantity) -> Figure:
        known = self.figures.get_figure(metric, self._choose_level(metric))
        if self.is_known(metric):
            return (
                known if known.value is None else replace(known, low=known.value, high=known.value)
            )
        if metric.name in _OF_ONE_RUN:
            # More samples take no less memory.
            least = (
                known.value if metric.name == "memory" and known.value is not None else -math.inf
            )
            return replace(known, low=least, high=math.inf)
        if (
            metric.percentile is not None
            and metric.percentile >= 0.5
            and not math.isfinite(known.low)
        ):
            median = self.figures.get_figure(
                get_metric_quantity("latency_median"), compute_race_level(self.sweep)
            )
            known = replace(
                known,
                value=known.value or median.value,
                low=max(median.low, self._fastest),
                high=math.inf,
            )
        if metric.percentile is not None or metric.name == "throughput":
            known = replace(
                known, low=known.low / (1 + BETWEEN_STARTS), high=known.high * (1 + BETWEEN_STARTS)
            )
        return known if self.stage else self._extrapolate_to_batch(metric, known)

    def _extrapolate_to_batch(self, metric: Quantity, known: Figure) -> Figure:
        """Return the bounds of a metric from those in smaller batches: a call takes no less time
        with more samples.
        """
        if metric.percentile is not None:
            return replace(known, high=math.inf)
        if metric.name == "throughput":
            size = self.point.measure.inference_batch_size
            return replace(known, low=0.0, high=known.high * size / self.measured_batch)
        return replace(known, low=-math.inf, high=math.inf)

    @functools.cached_property
    def _fastest(self) -> float:
        """The time of the fastest call in seconds, if there are enough for the median to be
        slower almost surely.
        """
        inference = self.run.series.get("inference")
        calls = () if inference is None else inference["latency_ns"]
        return (
            float(np.min(calls)) / 1e9
            if len(calls) >= count_samples_needed(0.5, compute_race_level(self.sweep))
            else -math.inf
        )

    def _compute_difference(self, leader: RaceStanding) -> float | None:
        """Return by how much it is worse at least in the quality to choose by, on the samples of
        both, if known.
        """
        metric = self.sweep.choose
        alike = not metric.compared or self.point.model.title == leader.point.model.title
        if not metric.metric or not alike:
            return None
        mine, theirs = (
            Quality.from_run(self.run),
            Quality.from_run(on_samples_of(leader.run, self.run, self.sweep) or leader.run),
        )
        if mine is None or theirs is None or not is_comparable(mine, theirs):
            return None
        computed = get_task(mine.evaluation.task).metric(metric.metric)
        gap = compute_quality_difference(
            computed, mine.evaluation, theirs.evaluation, compute_race_level(self.sweep)
        )
        return -gap.high if computed.less_is_better else gap.low


def _is_quality_metric(metric: Quantity) -> bool:
    return bool(metric.metric) or metric.name == "agreement"


def _replace_unknown(value: float | None) -> float:
    return math.inf if value is None else value


log = logging.getLogger("nnpipe")

_LEAST_SAMPLES = 16  # fewer tell nothing about quality, and cost next to nothing
ENDED = "the budget ended before it was measured in full"
"""The reason why a candidate was stopped that might have been chosen."""

Measure = Callable[[Point, VerifyOptions], FinishedPoint]


class SuccessiveHalving:
    """Measures the points of a sweep in stages, until the choice and the front are settled or the
    budget is spent.

    All decisions follow from the measurements, their times included, so that a race that
    was interrupted continues as it would have without.

    Parameters
    ----------
    sweep
        A sweep with a budget.
    measure
        Compiles and measures a point, each at most once.
    first
        The stage that every point is measured in at first, from 1.
    """

    def __init__(self, sweep: Sweep, measure: Measure, first: int = 1) -> None:
        assert sweep.budget is not None
        self._sweep, self._measure, self._budget, self._first = sweep, measure, sweep.budget, first
        self._samples = sample_count(sweep)
        self._spent = 0.0
        self._done: dict[str, FinishedPoint] = {}
        self._standings: dict[str, RaceStanding] = {}
        self._references: dict[str, Run] = {}
        self._cut: set[str] = set()  # candidates that the end of the budget left undecided

    @property
    def spent(self) -> BudgetUse:
        """What it took, and what it saved."""
        standings = self._standings.values()
        whole = sum(each.complete for each in standings)
        return BudgetUse(self._budget.text, self._spent, self._full_seconds, whole, len(standings))

    @property
    def _full_seconds(self) -> float:
        return sum(self._predict_cost(each, 1.0) for each in self._standings.values())

    def run(self) -> tuple[FinishedPoint, ...]:
        """Measure, and return all points in the order of the file, with the reason why each was
        stopped.
        """
        self._begin()
        self._settle_choice()
        self._settle_front()
        return tuple(self._add_stop_reason(point) for point in self._sweep.points)

    def _begin(self) -> None:
        """Measure the models that losses are told against in full, and others in the first
        stage.
        """
        by_model: dict[str, list[Point]] = {}
        for point in self._sweep.points:
            by_model.setdefault(point.model.title, []).append(point)
        for title, points in by_model.items():
            sources = [point for point in points if point.runtime is None]
            if sources and any(
                metric.compared or metric.name == "agreement" for metric in self._sweep.metrics
            ):
                first = min(sources, key=lambda point: point.measure.inference_batch_size)
                self._measure_stage(first, len(SHARES))
                run = self._done[first.title].outcome.run
                if run is not None:
                    self._references[title] = run
                    self._standings[first.title] = replace(
                        self._standings[first.title], reference=run
                    )
                    for point in sources:
                        if point is not first:
                            self._standings[point.title] = RaceStanding(
                                self._sweep, point, run, run, 0, True
                            )
                            self._done[point.title] = FinishedPoint(
                                point, point.title, Outcome(None), None, share=0.0
                            )
            waiting = [point for point in points if point.title not in self._done]
            random.Random(f"{self._sweep.seed} {title}").shuffle(waiting)
            for point in waiting:
                self._measure_stage(point, self._first)

    def _settle_choice(self) -> None:
        while True:
            standings = list(self._standings.values())
            racers = [each.racer for each in standings]
            best = [standings[place] for place in find_leaders(racers)]
            order = open_for_choice(
                racers, [any(map(each.is_dominated_by, best)) for each in standings]
            )
            if not order:
                return
            following = standings[order[0]]
            stage = following.stage + 1
            if best and not self._can_afford(following):
                self._cut = {standings[place].point.title for place in order}
                return
            # Without any candidate in full there is nothing to choose, so that one is measured in
            # any case.
            if not best and not self._can_afford(following, *{stage, len(SHARES)}):
                stage = len(SHARES)
            self._measure_stage(following.point, stage)

    def _settle_front(self) -> None:
        objectives = self._sweep.objectives
        while True:
            standings = list(self._standings.values())
            bounds = [[each.compute_bounds(metric) for metric in objectives] for each in standings]
            low, high = (
                np.array([[getattr(known, end) for known in row] for row in bounds]).reshape(
                    len(bounds), -1
                )
                for end in ("low", "high")
            )
            twins = {
                twin: number
                for number, twin in enumerate(dict.fromkeys(each.twin for each in standings))
            }
            numbers = np.array([twins[each.twin] for each in standings])
            shared = np.array(
                [
                    bool(metric.metric) or metric.name in ("agreement", "size")
                    for metric in objectives
                ]
            )
            dominated, surely = find_front_places(low, high, numbers, shared)
            undecided = [
                each
                for each, out, sure in zip(standings, dominated, surely, strict=True)
                if not (out or sure or each.complete or each.reason)
            ]
            undecided.sort(key=lambda each: (each.stage, each.racer.low, each.point.title))
            following = next(filter(self._can_afford, undecided), None)
            if following is None:
                self._cut |= {each.point.title for each in undecided}
                return
            self._measure_stage(following.point, following.stage + 1)

    def _can_afford(self, standing: RaceStanding, *stages: int) -> bool:
        """Return whether stages of a candidate, by default the next one, fit into the rest of
        the budget.
        """
        costs = (
            self._predict_cost(standing, SHARES[stage - 1])
            for stage in stages or (standing.stage + 1,)
        )
        full = sum(
            self._predict_cost(
                each, 1.0, each.time if each.complete else each.time.to_lower_bound()
            )
            for each in self._standings.values()
        )
        return self._spent + sum(costs) <= self._budget.limit(full)

    def _predict_cost(
        self, standing: RaceStanding, share: float, time: MeasuringTime | None = None
    ) -> float:
        point = standing.point
        staged = point if share >= 1 else make_staged_point(point, share, self._samples)
        samples = min(staged.measure.measure_samples or self._samples, self._samples)
        return (time or standing.time).estimate(
            samples, staged.measure.measure_seconds, point.measure.inference_batch_size
        )

    def _measure_stage(self, point: Point, stage: int) -> None:
        """Measure a candidate in a stage."""
        share = SHARES[stage - 1]
        full = share >= 1
        if full:
            staged, verify = point, self._sweep.verify
        else:
            staged, verify = (
                make_staged_point(point, share, self._samples),
                replace(self._sweep.verify, verify_samples=0),
            )
        log.info("\n[%g %% of %s]", 100 * share, point.title)
        found = self._measure(staged, verify)
        run = found.outcome.run
        reference = self._references.get(point.model.title)
        if run is not None:
            self._spent += MeasuringTime.from_run(run).seconds
            if reference is not None and not full:
                reference = on_samples_of(reference, run, self._sweep)
            judged_all = run.evaluation is not None and len(run.evaluation) >= self._samples
            self._standings[point.title] = RaceStanding(
                self._sweep, point, run, reference, stage, judged_all
            )
        else:
            self._standings.pop(point.title, None)
        self._done[point.title] = replace(
            found, point=point, share=share, reference=None if full else reference
        )

    def _add_stop_reason(self, point: Point) -> FinishedPoint:
        done = self._done[point.title]
        standing = self._standings.get(point.title)
        if standing is None or standing.complete:
            return done
        reason = self._explain_stop(standing)
        if not standing.stage:
            size = standing.measured_batch
            return replace(
                done,
                stopped=reason,
                outcome=Outcome(None, f"not measured, as in batches of {size}: {reason}"),
            )
        return replace(done, stopped=reason)

    def _explain_stop(self, standing: RaceStanding) -> str:
        """Return why a candidate was not measured in full."""
        if standing.reason:
            return standing.reason
        racers = list(self._standings.values())
        best = [racers[place] for place in find_leaders([each.racer for each in racers])]
        ahead = next(filter(standing.is_dominated_by, best), None)
        if ahead is not None:
            metric, level = self._sweep.choose, compute_race_level(self._sweep)
            mine, theirs = (
                format_figure(metric, each.figures.get_figure(metric, level))
                for each in (standing, ahead)
            )
            reason = f"worse than {ahead.point.title} in {metric.title}: {mine}, and {theirs}"
            return (
                f"{reason}; {ENDED}, so that its place at the front is open"
                if standing.point.title in self._cut
                else reason
            )
        return ENDED


def make_staged_point(point: Point, share: float, count: int) -> Point:
    """Return a point of which only a share is measured: speed and quality, but neither pace nor
    energy.

    Parameters
    ----------
    point
        The point.
    share
        The share of its samples and of its time.
    count
        The number of samples that are measured in full.
    """
    samples = min(count, max(_LEAST_SAMPLES, math.ceil(share * count)))
    seconds = share * point.measure.measure_seconds
    measure = replace(
        point.measure,
        measure_samples=samples,
        measure_seconds=seconds,
        pace=None,
        energy_meter=None,
    )
    return replace(point, measure=measure)
