"""Which candidates of a sweep qualify, which are on the front, and which one to ship."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnpipe.measuring.constraints import Figure, MetricConstraint
from nnpipe.measuring.doubt import BARRING, Doubt
from nnpipe.measuring.pareto_front import front_shares, on_front
from nnpipe.measuring.run import Run
from nnpipe.report.quantity_text import ranged, written
from nnpipe.workflows.sweep.estimates import Figures, drawn
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.run import Done

_DRAWS = 2000


@dataclass(frozen=True)
class Claim:
    """A constraint with the figure it was judged on; ``holds`` is ``None`` where that cannot be told."""

    constraint: MetricConstraint
    figure: Figure
    holds: bool | None

    @property
    def more(self) -> float | None:
        """How many times as many samples would decide it, if the figure stayed as it is; ``None`` if nobody knows."""
        value, bound = self.figure.value, self.constraint.bound
        if self.holds is not None or value is None or value == bound:
            return None
        half = max(self.figure.high - value, value - self.figure.low)
        return max(1.1, (half / abs(bound - value)) ** 2) if math.isfinite(half) else None


@dataclass(frozen=True, eq=False)
class Judged:
    """A measured point: its figures by metric, what each constraint says, and how surely it is on the front.

    ``barred`` holds the doubts for which it is not chosen, whatever its figures.
    """

    done: Done
    run: Run
    reference: Run | None
    figures: Mapping[str, Figure]
    claims: tuple[Claim, ...]
    on_front: bool
    front_share: float
    doubts: tuple[Doubt, ...]
    barred: tuple[Doubt, ...] = ()

    @property
    def title(self) -> str:
        """What the point is called."""
        return self.done.point.title

    @property
    def qualifies(self) -> bool:
        """Whether every constraint surely holds, and no doubt about its predictions bars it."""
        return not self.barred and all(claim.holds for claim in self.claims)

    @property
    def killed_by(self) -> tuple[Claim, ...]:
        """The constraints that surely fail, or whose figure is not known."""
        return tuple(claim for claim in self.claims if claim.holds is False or claim.figure.value is None)


def judge(sweep: Sweep, done: Sequence[Done]) -> tuple[Judged, ...]:
    """Judge every point that was measured, in the order of the file."""
    measured = [(each, each.outcome.run) for each in done if each.outcome.run is not None]
    if not measured:
        return ()
    references = _references(done)
    known = [Figures(run, references.get(each.point.model.title)) for each, run in measured]
    level = level_of(sweep)
    figures = [{metric.name: each.of(metric, level) for metric in sweep.metrics} for each in known]
    shares, best = _front(sweep, known, figures)
    return tuple(
        Judged(
            each,
            own.run,
            own.reference,
            told,
            claims_of(sweep, own),
            bool(front),
            float(share),
            own.doubts,
            barring(sweep, own.doubts),
        )
        for (each, _), own, told, front, share in zip(measured, known, figures, best, shares, strict=True)
    )


def barring(sweep: Sweep, doubts: Sequence[Doubt]) -> tuple[Doubt, ...]:
    """Return the doubts for which a sweep chooses no candidate."""
    return tuple(doubt for doubt in doubts if doubt.kind in BARRING and doubt.kind not in sweep.accept_doubts)


def told_barred(doubts: Sequence[Doubt]) -> str:
    """Put such doubts in words, with how to have the candidate chosen all the same."""
    kinds = ", ".join(dict.fromkeys(doubt.kind for doubt in doubts))
    return f"{'; '.join(doubt.reason for doubt in doubts)} (accept_doubts: [{kinds}] would let it be chosen)"


def level_of(sweep: Sweep) -> float:
    """Return the confidence of each interval, such that all claims hold together at the sweep's.

    Each has its share of the risk (C. E. Bonferroni, 1936).
    """
    return 1 - (1 - sweep.confidence) / max(len(sweep.constraints), 1)


def claims_of(sweep: Sweep, figures: Figures) -> tuple[Claim, ...]:
    """Judge the constraints on a run, each at :func:`level_of`."""
    found = []
    for constraint in sweep.constraints:
        known = figures.of(constraint.metric, level_of(sweep))
        found.append(Claim(constraint, known, constraint.judge(known)))
    return tuple(found)


def ranked(sweep: Sweep, judged: Sequence[Judged]) -> list[Judged]:
    """Return those that qualify, the best in the metric to choose by first."""
    name, sign = sweep.choose.name, 1 if sweep.choose.less_is_better else -1

    def place(one: Judged) -> tuple[float, str]:
        value = one.figures[name].value
        return (math.inf if value is None else sign * value), one.title

    return sorted((one for one in judged if one.qualifies), key=place)


def level_with(sweep: Sweep, chosen: Judged, others: Sequence[Judged]) -> list[str]:
    """Name those of others whose figure cannot be told from that of the chosen one in the metric to choose by."""
    mine = chosen.figures[sweep.choose.name]
    return [
        one.title
        for one in others
        if one is not chosen
        and (theirs := one.figures[sweep.choose.name]).value is not None
        and theirs.low <= mine.high
        and mine.low <= theirs.high
    ]


def why_none(judged: Sequence[Judged], refuted: Mapping[str, str]) -> list[str]:
    """Return for each candidate which constraint kills it, or what would have to be measured to tell.

    ``refuted`` tells of those that qualified what was found when they were measured again.
    """
    lines = []
    for one in judged:
        if one.title in refuted:
            reason = f"qualified, but did not hold when measured again: {refuted[one.title]}"
        elif one.qualifies:
            reason = f"qualifies, but was not measured again: better ones did not hold, and {len(refuted)} are the most"
            reason += " that this sweep measures again (confirmations)"
        elif one.barred and not one.killed_by:
            reason = told_barred(one.barred)
        else:
            killers = one.killed_by or tuple(claim for claim in one.claims if not claim.holds)
            reason = "; ".join(tell(claim) for claim in killers)
        lines.append(f"{one.title}: {reason}")
    return lines


def tell(claim: Claim) -> str:
    """Put a claim in words."""
    metric, known = claim.constraint.metric, claim.figure
    if known.value is None:
        return f"{claim.constraint.text}: not known, {known.reason}"
    if known.reason:
        return f"{claim.constraint.text}: cannot be told, {written(metric, known.value)}, {known.reason}"
    text = ranged(metric, known)
    if claim.holds is None:
        more = f"; {math.ceil((claim.more - 1) * known.count):,} more samples would be needed" if claim.more else ""
        return f"{claim.constraint.text}: cannot be told, {text}{more}"
    return f"{claim.constraint.text}: {'holds' if claim.holds else 'fails'}, {text}"


def _references(done: Sequence[Done]) -> dict[str, Run]:
    """Return the run of each model as trained; the smallest batch, if there are several."""
    found: dict[str, tuple[int, Run]] = {}
    for each in done:
        size, title = each.point.measure.inference_batch_size, each.point.model.title
        if each.point.runtime is None and each.outcome.run is not None and size < found.get(title, (size + 1,))[0]:
            found[title] = (size, each.outcome.run)
    return {title: run for title, (_, run) in found.items()}


def _front(
    sweep: Sweep, candidates: Sequence[Figures], figures: Sequence[Mapping[str, Figure]]
) -> tuple[np.ndarray, np.ndarray]:
    signs = [1.0 if metric.less_is_better else -1.0 for metric in sweep.objectives]
    points = np.array([[_number(each[metric.name]) for metric in sweep.objectives] for each in figures]) * signs
    draws = np.stack([drawn(candidates, metric, _DRAWS, sweep.seed) for metric in sweep.objectives], -1) * signs
    return front_shares(draws), on_front(points)


def _number(known: Figure) -> float:
    return math.nan if known.value is None else known.value
