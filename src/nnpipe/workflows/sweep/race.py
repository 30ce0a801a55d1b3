"""A sweep with a budget: every candidate is measured a little, and further only while that can change the result.

Loading a training framework can take longer than measuring.  So where a model as trained is measured in full, since
losses are told against it, the same model in larger batches is not looked at before that can change the result: its
predictions are the same, and a call takes no less time.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from nnpipe.measuring.racing import SHARES, front_places, leaders, open_for_choice
from nnpipe.measuring.run import Run
from nnpipe.report.quantity_text import ranged
from nnpipe.workflows.journal import Outcome
from nnpipe.workflows.sweep.budget import MeasuringTime, Spent
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.points import Point
from nnpipe.workflows.sweep.run import Done
from nnpipe.workflows.sweep.samples import on_samples_of, sample_count
from nnpipe.workflows.sweep.select import race_level
from nnpipe.workflows.sweep.standing import RaceStanding
from nnpipe.workflows.verification.compare_outputs import VerifyOptions

log = logging.getLogger("nnpipe")

_LEAST_SAMPLES = 16  # fewer tell nothing about quality, and cost next to nothing
ENDED = "the budget ended before it was measured in full"
"""The reason why a candidate was stopped that might have been chosen."""

Measure = Callable[[Point, VerifyOptions], Done]


class Race:
    """Measures the points of a sweep in stages, until the choice and the front are settled or the budget is spent.

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
        self._done: dict[str, Done] = {}
        self._standings: dict[str, RaceStanding] = {}
        self._references: dict[str, Run] = {}
        self._cut: set[str] = set()  # candidates that the end of the budget left undecided

    @property
    def spent(self) -> Spent:
        """What it took, and what it saved."""
        standings = self._standings.values()
        whole = sum(each.complete for each in standings)
        return Spent(self._budget.text, self._spent, self._full_seconds, whole, len(standings))

    @property
    def _full_seconds(self) -> float:
        return sum(self._cost(each, 1.0) for each in self._standings.values())

    def run(self) -> tuple[Done, ...]:
        """Measure, and return all points in the order of the file, with the reason why each was stopped."""
        self._begin()
        self._settle_choice()
        self._settle_front()
        return tuple(self._told(point) for point in self._sweep.points)

    def _begin(self) -> None:
        """Measure the models that losses are told against in full, and others in the first stage."""
        by_model: dict[str, list[Point]] = {}
        for point in self._sweep.points:
            by_model.setdefault(point.model.title, []).append(point)
        for title, points in by_model.items():
            sources = [point for point in points if point.runtime is None]
            if sources and any(metric.compared or metric.name == "agreement" for metric in self._sweep.metrics):
                first = min(sources, key=lambda point: point.measure.inference_batch_size)
                self._advance(first, len(SHARES))
                run = self._done[first.title].outcome.run
                if run is not None:
                    self._references[title] = run
                    self._standings[first.title] = replace(self._standings[first.title], reference=run)
                    for point in sources:
                        if point is not first:
                            self._standings[point.title] = RaceStanding(self._sweep, point, run, run, 0, True)
                            self._done[point.title] = Done(point, point.title, Outcome(None), None, share=0.0)
            waiting = [point for point in points if point.title not in self._done]
            random.Random(f"{self._sweep.seed} {title}").shuffle(waiting)
            for point in waiting:
                self._advance(point, self._first)

    def _settle_choice(self) -> None:
        while True:
            standings = list(self._standings.values())
            racers = [each.racer for each in standings]
            best = [standings[place] for place in leaders(racers)]
            order = open_for_choice(racers, [any(map(each.behind, best)) for each in standings])
            if not order:
                return
            following = standings[order[0]]
            stage = following.stage + 1
            if best and not self._affords(following):
                self._cut = {standings[place].point.title for place in order}
                return
            # Without any candidate in full there is nothing to choose, so that one is measured in any case.
            if not best and not self._affords(following, *{stage, len(SHARES)}):
                stage = len(SHARES)
            self._advance(following.point, stage)

    def _settle_front(self) -> None:
        objectives = self._sweep.objectives
        while True:
            standings = list(self._standings.values())
            bounds = [[each.bounds(metric) for metric in objectives] for each in standings]
            low, high = (
                np.array([[getattr(known, end) for known in row] for row in bounds]).reshape(len(bounds), -1)
                for end in ("low", "high")
            )
            twins = {twin: number for number, twin in enumerate(dict.fromkeys(each.twin for each in standings))}
            numbers = np.array([twins[each.twin] for each in standings])
            shared = np.array([bool(metric.metric) or metric.name in ("agreement", "size") for metric in objectives])
            dominated, surely = front_places(low, high, numbers, shared)
            undecided = [
                each
                for each, out, sure in zip(standings, dominated, surely, strict=True)
                if not (out or sure or each.complete or each.reason)
            ]
            undecided.sort(key=lambda each: (each.stage, each.racer.low, each.point.title))
            following = next(filter(self._affords, undecided), None)
            if following is None:
                self._cut |= {each.point.title for each in undecided}
                return
            self._advance(following.point, following.stage + 1)

    def _affords(self, standing: RaceStanding, *stages: int) -> bool:
        """Return whether stages of a candidate, by default the next one, fit into the rest of the budget."""
        costs = (self._cost(standing, SHARES[stage - 1]) for stage in stages or (standing.stage + 1,))
        full = sum(
            self._cost(each, 1.0, each.time if each.complete else each.time.at_least())
            for each in self._standings.values()
        )
        return self._spent + sum(costs) <= self._budget.limit(full)

    def _cost(self, standing: RaceStanding, share: float, time: MeasuringTime | None = None) -> float:
        point = standing.point
        staged = point if share >= 1 else staged_point(point, share, self._samples)
        samples = min(staged.measure.measure_samples or self._samples, self._samples)
        return (time or standing.time).estimate(
            samples, staged.measure.measure_seconds, point.measure.inference_batch_size
        )

    def _advance(self, point: Point, stage: int) -> None:
        """Measure a candidate in a stage."""
        share = SHARES[stage - 1]
        full = share >= 1
        if full:
            staged, verify = point, self._sweep.verify
        else:
            staged, verify = staged_point(point, share, self._samples), replace(self._sweep.verify, verify_samples=0)
        log.info("\n[%g %% of %s]", 100 * share, point.title)
        found = self._measure(staged, verify)
        run = found.outcome.run
        reference = self._references.get(point.model.title)
        if run is not None:
            self._spent += MeasuringTime.of(run).seconds
            if reference is not None and not full:
                reference = on_samples_of(reference, run, self._sweep)
            judged_all = run.evaluation is not None and len(run.evaluation) >= self._samples
            self._standings[point.title] = RaceStanding(self._sweep, point, run, reference, stage, judged_all)
        else:
            self._standings.pop(point.title, None)
        self._done[point.title] = replace(found, point=point, share=share, reference=None if full else reference)

    def _told(self, point: Point) -> Done:
        done = self._done[point.title]
        standing = self._standings.get(point.title)
        if standing is None or standing.complete:
            return done
        reason = self._why(standing)
        if not standing.stage:
            size = standing.measured_batch
            return replace(
                done, stopped=reason, outcome=Outcome(None, f"not measured, as in batches of {size}: {reason}")
            )
        return replace(done, stopped=reason)

    def _why(self, standing: RaceStanding) -> str:
        """Return why a candidate was not measured in full."""
        if standing.reason:
            return standing.reason
        racers = list(self._standings.values())
        best = [racers[place] for place in leaders([each.racer for each in racers])]
        ahead = next(filter(standing.behind, best), None)
        if ahead is not None:
            metric, level = self._sweep.choose, race_level(self._sweep)
            mine, theirs = (ranged(metric, each.figures.of(metric, level)) for each in (standing, ahead))
            reason = f"worse than {ahead.point.title} in {metric.title}: {mine}, and {theirs}"
            return (
                f"{reason}; {ENDED}, so that its place at the front is open"
                if standing.point.title in self._cut
                else reason
            )
        return ENDED


def staged_point(point: Point, share: float, count: int) -> Point:
    """Return a point of which only a share is measured: speed and quality, but neither pace nor energy.

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
    measure = replace(point.measure, measure_samples=samples, measure_seconds=seconds, pace=None, energy_meter=None)
    return replace(point, measure=measure)
