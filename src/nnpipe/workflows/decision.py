"""The rule by which every command chooses among measured candidates.

A candidate qualifies if every constraint holds for the whole interval of its figure, no warning
bars it, and the figure to choose by is known.  The best value wins, and equal values are ordered by
title.  Those whose interval overlaps the winner's are ties.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nnpipe.measuring.constraints import Figure, MetricConstraint
from nnpipe.measuring.quantities import Quantity
from nnpipe.measuring.run import Run
from nnpipe.measuring.validity_warning import BARRING, ValidityWarning
from nnpipe.report.inputs.candidate import explain_unequal_work
from nnpipe.report.inputs.quality import Quality
from nnpipe.report.quantity_text import format_figure, format_quantity


class CandidateFigures(Protocol):
    """The figures of a candidate, and what there is to doubt about them."""

    run: Run
    reference: Run | None

    @property
    def doubts(self) -> tuple[ValidityWarning, ...]:
        """Reasons to doubt its times or its predictions."""

    def get_figure(self, metric: Quantity, confidence: float) -> Figure:
        """Return a metric with an interval of the given confidence."""


@dataclass(frozen=True)
class Claim:
    """A constraint with its measured metric; ``holds`` is ``None`` if the data cannot decide."""

    constraint: MetricConstraint
    figure: Figure
    holds: bool | None

    @classmethod
    def check(cls, constraint: MetricConstraint, figure: Figure) -> Claim:
        """Return the claim that a figure satisfies a constraint."""
        return cls(constraint, figure, constraint.evaluate(figure))

    @property
    def more(self) -> float | None:
        """The factor of samples that would decide it if the metric kept its value; ``None`` if
        it is unknown.
        """
        value, bound = self.figure.value, self.constraint.bound
        if self.holds is not None or value is None or value == bound:
            return None
        half = max(self.figure.high - value, value - self.figure.low)
        return max(1.1, (half / abs(bound - value)) ** 2) if math.isfinite(half) else None

    def describe(self) -> str:
        """Return the claim as text, with what would decide it."""
        metric, known, text = self.constraint.metric, self.figure, self.constraint.text
        if known.value is None:
            return f"{text}: not known, {known.reason}"
        if known.reason:
            value = format_quantity(metric, known.value)
            return f"{text}: cannot be told, {value}, {known.reason}"
        value = format_figure(metric, known)
        if self.holds is None:
            more = math.ceil((self.more - 1) * known.count) if self.more else 0
            needed = f"; {more:,} more samples would be needed" if self.more else ""
            return f"{text}: cannot be told, {value}{needed}"
        return f"{text}: {'holds' if self.holds else 'fails'}, {value}"


@dataclass(frozen=True)
class DecisionRule:
    """What a candidate must satisfy, and the metric by which the best is chosen.

    Parameters
    ----------
    constraints
        The constraints that must hold.
    choose
        The metric to choose by.
    confidence
        The confidence with which all claims about one candidate hold together.
    accepted_warnings
        Kinds of warnings with which a candidate may be chosen all the same.
    """

    constraints: tuple[MetricConstraint, ...]
    choose: Quantity
    confidence: float = 0.95
    accepted_warnings: frozenset[str] = frozenset()

    @property
    def level(self) -> float:
        """The confidence of each interval, so that all claims hold together.

        The risk is divided equally among the claims (C. E. Bonferroni, 1936).
        """
        return 1 - (1 - self.confidence) / max(len(self.constraints), 1)

    def check_constraints(
        self, figures: CandidateFigures, level: float | None = None
    ) -> tuple[Claim, ...]:
        """Return a claim for each constraint, by default with the confidence :attr:`level`."""
        level = self.level if level is None else level
        return tuple(
            Claim.check(each, _get_figure(figures, each.metric, level)) for each in self.constraints
        )

    def find_barring_warnings(
        self, warnings: Iterable[ValidityWarning]
    ) -> tuple[ValidityWarning, ...]:
        """Return the warnings that keep a candidate from being chosen."""
        return tuple(
            each
            for each in warnings
            if each.kind in BARRING and each.kind not in self.accepted_warnings
        )

    def explain_exclusion(self, figures: CandidateFigures) -> list[str]:
        """Return why a candidate cannot be chosen; an empty list if it qualifies."""
        claims = self.check_constraints(figures)
        reasons = [claim.describe() for claim in claims if not claim.holds]
        reasons += [each.reason for each in self.find_barring_warnings(figures.doubts)]
        known = figures.get_figure(self.choose, self.level)
        if not _is_known(known):
            reasons.append(f"{self.choose.name} is not known: {known.reason}")
        return reasons

    def rank(self, candidates: Mapping[str, CandidateFigures]) -> list[str]:
        """Return the titles of the candidates that qualify, the best first."""
        able = {
            title: each.get_figure(self.choose, self.level)
            for title, each in candidates.items()
            if not self.explain_exclusion(each)
        }
        return self.sort_by_value(able)

    def sort_by_value(self, figures: Mapping[str, Figure]) -> list[str]:
        """Return titles by the values of the metric to choose by, the best first.

        Those without a value are left out.
        """
        sign = 1 if self.choose.less_is_better else -1
        able = [
            (sign * each.value, title)
            for title, each in figures.items()
            if each.value is not None and _is_known(each)
        ]
        return [title for _, title in sorted(able)]

    def are_tied(self, one: tuple[Figure, Run], other: tuple[Figure, Run]) -> bool:
        """Return whether two candidates do not differ significantly in the metric to choose by.

        Nor do those whose calls are other work, such as longer answers, if it is a figure of calls.
        """
        (mine, run), (theirs, other_run) = one, other
        if not _is_known(theirs):
            return False
        overlap = theirs.low <= mine.high and mine.low <= theirs.high
        return overlap or bool(self.explain_unequal_work(run, other_run))

    def explain_unequal_work(self, one: Run, other: Run) -> str:
        """Return why a figure of calls cannot compare two runs; an empty string if it can."""
        if not self.choose.of_calls:
            return ""
        return explain_unequal_work(Quality.from_run(one), Quality.from_run(other))


def format_barring_warnings(warnings: Sequence[ValidityWarning]) -> str:
    """Return such warnings as text, with the setting that would accept them."""
    kinds = ", ".join(dict.fromkeys(each.kind for each in warnings))
    reasons = "; ".join(each.reason for each in warnings)
    return f"{reasons} (accept_doubts: [{kinds}] would let it be chosen)"


def _get_figure(figures: CandidateFigures, metric: Quantity, level: float) -> Figure:
    if metric.compared and figures.reference is figures.run:  # compared with itself
        return Figure.exactly(0.0)
    return figures.get_figure(metric, level)


def _is_known(figure: Figure) -> bool:
    return figure.value is not None and not math.isnan(figure.value)
