"""Deciding which candidates of a sweep qualify, which are on the Pareto front, and which one to
ship.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.pareto_front import compute_front_shares, on_front
from nnpipe.measuring.racing import compute_interval_confidence
from nnpipe.measuring.run import Run
from nnpipe.measuring.validity_warning import ValidityWarning
from nnpipe.workflows.decision import Claim, format_barring_warnings
from nnpipe.workflows.sweep.estimates import Figures, sample_metric
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.run import FinishedPoint

_DRAWS = 2000

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class EvaluatedPoint:
    """A measured point, with its metrics, its claims, and the probability that it is on the Pareto
    front.

    ``barred`` holds the doubts that keep it from being chosen, whatever its metrics.
    """

    done: FinishedPoint
    run: Run
    reference: Run | None
    figures: Mapping[str, Figure]
    claims: tuple[Claim, ...]
    on_front: bool
    front_share: float
    doubts: tuple[ValidityWarning, ...]
    barred: tuple[ValidityWarning, ...] = ()

    @property
    def title(self) -> str:
        """The point's title."""
        return self.done.point.title

    @property
    def qualifies(self) -> bool:
        """Whether every constraint holds with the sweep's confidence, and no doubt about its
        predictions bars it.

        A candidate that was not measured in full does not qualify.
        """
        return (
            not self.done.stopped and not self.barred and all(claim.holds for claim in self.claims)
        )

    @property
    def killed_by(self) -> tuple[Claim, ...]:
        """The constraints that fail with the sweep's confidence, or whose metric is not known."""
        return tuple(
            claim for claim in self.claims if claim.holds is False or claim.figure.value is None
        )


def evaluate_points(sweep: Sweep, done: Sequence[FinishedPoint]) -> tuple[EvaluatedPoint, ...]:
    """Return every measured point with its claims, in the order of the file."""
    measured = [(each, each.outcome.run) for each in done if each.outcome.run is not None]
    if not measured:
        return ()
    references = _find_references(done)
    known = [
        Figures(run, each.reference or references.get(each.point.model.title))
        for each, run in measured
    ]
    # A race stops a candidate because of its figures, so these have intervals that hold all the
    # same.
    levels = [
        compute_race_level(sweep) if each.stopped else sweep.rule.level for each, _ in measured
    ]
    figures = [
        {metric.name: each.get_figure(metric, level) for metric in sweep.metrics}
        for each, level in zip(known, levels, strict=True)
    ]
    barred = [sweep.rule.find_barring_warnings(own.doubts) for own in known]
    whole = np.array(
        [not each.stopped and not bars for (each, _), bars in zip(measured, barred, strict=True)]
    )
    shares, best = np.zeros(len(measured)), np.zeros(len(measured), bool)
    if whole.any():  # the others are not on the front, cannot be chosen, or it is not known
        shares[whole], best[whole] = _compute_front(
            sweep, list(_select_chosen(known, whole)), list(_select_chosen(figures, whole))
        )
    return tuple(
        EvaluatedPoint(
            each,
            own.run,
            own.reference,
            told,
            sweep.rule.check_constraints(own, level),
            bool(front),
            float(share),
            own.doubts,
            bars,
        )
        for (each, _), own, level, told, front, share, bars in zip(
            measured, known, levels, figures, best, shares, barred, strict=True
        )
    )


def compute_race_level(sweep: Sweep) -> float:
    """Return the confidence of each interval of a race, so that all hold together however often
    they are looked at.
    """
    return compute_interval_confidence(sweep.confidence, len(sweep.points), len(sweep.metrics))


def rank_candidates(sweep: Sweep, judged: Sequence[EvaluatedPoint]) -> list[EvaluatedPoint]:
    """Return the candidates that qualify, sorted by the metric ``choose``, the best first."""
    able = {
        one.title: one for one in judged if one.qualifies and sweep.can_be_chosen(one.done.point)
    }
    name = sweep.choose.name
    order = sweep.rule.sort_by_value({title: one.figures[name] for title, one in able.items()})
    return [able[title] for title in order]


def find_ties(sweep: Sweep, chosen: EvaluatedPoint, judged: Sequence[EvaluatedPoint]) -> list[str]:
    """Return the titles of the candidates on the same device that qualify, too, and do not differ
    significantly from the chosen one in the metric ``choose``.

    Nor do those whose calls are other work, such as longer answers, if it is a figure of calls.
    """
    name, device = sweep.choose.name, chosen.done.point.device
    return [
        one.title
        for one in rank_candidates(sweep, judged)
        if one is not chosen
        and one.done.point.device == device
        and sweep.rule.are_tied((chosen.figures[name], chosen.run), (one.figures[name], one.run))
    ]


def explain_no_winner(
    sweep: Sweep, judged: Sequence[EvaluatedPoint], refuted: Mapping[str, str]
) -> list[str]:
    """Return for each candidate the constraint that fails, or the number of samples that would
    decide it.

    ``refuted`` has the reasons why qualified candidates did not hold when they were measured again.
    """
    lines = []
    for one in judged:
        if one.title in refuted:
            reason = f"qualified, but did not hold when measured again: {refuted[one.title]}"
        elif one.qualifies and one.figures[sweep.choose.name].value is None:
            known = one.figures[sweep.choose.name]
            reason = f"{sweep.choose.name} is not known: {known.reason}"
        elif one.qualifies:
            reason = (
                f"qualifies, but was not measured again: better ones did not hold, and "
                f"{len(refuted)} are the most"
            )
            reason += " that this sweep measures again (confirmations)"
        elif one.done.stopped:
            reason = one.done.stopped
        elif one.barred and not one.killed_by:
            reason = format_barring_warnings(one.barred)
        else:
            killers = one.killed_by or tuple(claim for claim in one.claims if not claim.holds)
            reason = "; ".join(claim.describe() for claim in killers)
        lines.append(f"{one.title}: {reason}")
    return lines


def _find_references(done: Sequence[FinishedPoint]) -> dict[str, Run]:
    """Return the run of each model as trained; with several batch sizes, that of the smallest."""
    found: dict[str, tuple[int, Run]] = {}
    for each in done:
        size, title = each.point.measure.inference_batch_size, each.point.model.title
        if (
            each.point.runtime is None
            and each.outcome.run is not None
            and not each.stopped
            and size < found.get(title, (size + 1,))[0]
        ):
            found[title] = (size, each.outcome.run)
    return {title: run for title, (_, run) in found.items()}


def _compute_front(
    sweep: Sweep, candidates: Sequence[Figures], figures: Sequence[Mapping[str, Figure]]
) -> tuple[np.ndarray, np.ndarray]:
    signs = [1.0 if metric.less_is_better else -1.0 for metric in sweep.objectives]
    points = (
        np.array(
            [[_to_number(each[metric.name]) for metric in sweep.objectives] for each in figures]
        )
        * signs
    )
    draws = (
        np.stack(
            [sample_metric(candidates, metric, _DRAWS, sweep.seed) for metric in sweep.objectives],
            -1,
        )
        * signs
    )
    return compute_front_shares(draws), on_front(points)


def _select_chosen(values: Sequence[T], chosen: np.ndarray) -> Iterator[T]:
    return itertools.compress(values, chosen)


def _to_number(known: Figure) -> float:
    return math.nan if known.value is None else known.value
