"""Checking in one call whether a result is worse than a baseline by more than is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.core.errors import ConfigError
from nnpipe.core.foreign_text import join_lines, show_text
from nnpipe.measuring.comparison import Comparison
from nnpipe.measuring.constraints import MetricConstraint
from nnpipe.measuring.diagnosis import diagnose
from nnpipe.measuring.quality_warnings import check_quality
from nnpipe.measuring.run import Run
from nnpipe.report.formatting import clean
from nnpipe.workflows.comparison.result import ComparisonResult
from nnpipe.workflows.verification.gate_criterion import (
    Criterion,
    GatedCandidate,
    check_constraint,
    check_quality_loss,
    check_slowdown,
    find_candidate,
    read_candidate,
)

Undecided = Literal["pass", "fail"]


@dataclass(frozen=True)
class GateResult:
    """The result of each criterion.

    Parameters
    ----------
    criteria
        One for each limit that was given.
    undecided
        How a criterion counts if the data cannot decide it.
    doubts
        Reasons to doubt the compared results, as text.

    Examples
    --------
    Of the example of :func:`nnpipe.gate`:


    >>> [(criterion.name, criterion.status) for criterion in found.criteria]
    [('slowdown', 'pass')]
    """

    criteria: tuple[Criterion, ...]
    undecided: Undecided = "fail"
    doubts: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every criterion holds."""
        return all(self._resolve_status(criterion) == "pass" for criterion in self.criteria)

    def show(self) -> None:
        """Print one line for each criterion, and one for each doubt."""
        show_text(str(self))

    def __str__(self) -> str:
        """Return one line for each criterion, and one for each doubt."""
        return join_lines(
            [
                *map(self._format_criterion, self.criteria),
                *(f"mind: {doubt}" for doubt in self.doubts),
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """Return the criteria and the doubts as JSON can hold them."""
        return {
            "passed": self.passed,
            "criteria": [criterion.to_json() for criterion in self.criteria],
        }

    def _resolve_status(self, criterion: Criterion) -> str:
        if criterion.status != "undecided":
            return criterion.status
        return "fail" if criterion.blocks else self.undecided

    def _format_criterion(self, criterion: Criterion) -> str:
        if criterion.status != "undecided":
            return str(criterion)
        wanted = f"; {criterion.more} would decide" if criterion.more else ""
        return f"{criterion}{wanted}; counts as {self._resolve_status(criterion)}"


def gate(
    baseline: str | Path | Run | tuple[Comparison | ComparisonResult, str],
    new: str | Path | Run | tuple[Comparison | ComparisonResult, str],
    *,
    max_slowdown: float | None = None,
    max_accuracy_loss: float | None = None,
    max_loss: Mapping[str, float] = MappingProxyType({}),
    constraints: Sequence[str] = (),
    confidence: float = 0.95,
    undecided: Undecided = "fail",
    judge_unknown: bool = False,
) -> GateResult:
    """Return whether a result is slower or less good than a baseline by more than is allowed.

    A criterion passes if its whole interval lies within its limit, and fails if
    the whole interval lies beyond.  Otherwise the data cannot decide.

    Parameters
    ----------
    baseline, new
        The path of a result file, ``FILE#TITLE`` for a candidate in the file of a comparison, a
        :class:`~nnpipe.measuring.run.Run`, or ``(comparison, title)``.  Two candidates of one
        comparison took turns on one machine, which detects the smallest differences.
    max_slowdown
        The greatest relative increase of the median time: 0.02 for 2 %; from -0.99 to 10.
    max_accuracy_loss
        The greatest loss of accuracy, as a share of samples: 0.005 for half a percentage point;
        from -0.99 to 10.
    max_loss
        The greatest loss of other metrics of quality, by the metric's name, in its unit: ``{"mae":
        0.1}``.
    constraints
        What the new result must keep by itself, such as ``"flash <= 256 KiB"``.
    confidence
        The confidence of each interval, from 0.5 to 0.9999.
    undecided
        How a criterion counts if the data cannot decide it.
    judge_unknown
        Whether to judge the quality of models even if their preprocessing is not known.

    Returns
    -------
    GateResult
        The criteria; ``passed`` summarises them and ``show()`` prints them.

    Raises
    ------
    ConfigError
        If no limit is given, an argument is out of range, or a result holds nothing to compare.
    ArtifactError
        If a file is missing or damaged, or is not a result.

    Examples
    --------
    In continuous integration, against the result that the last release had:

    >>> found = gate("baseline.json", "new.json", max_slowdown=0.02)
    >>> found.passed
    True
    """
    check_call(gate, locals())
    check_range("gate: max_slowdown", max_slowdown, -0.99, 10.0)
    check_range("gate: max_accuracy_loss", max_accuracy_loss, -0.99, 10.0)
    check_range("gate: confidence", confidence, 0.5, 0.9999)
    losses = (
        dict(max_loss) if max_accuracy_loss is None else {"accuracy": max_accuracy_loss, **max_loss}
    )
    wanted = [MetricConstraint.parse(text) for text in constraints]
    if max_slowdown is None and not losses and not wanted:
        raise ConfigError(
            "nothing to check: give --max-slowdown 2%, --max-accuracy-loss 0.5%, --max-loss "
            "METRIC=LIMIT, --constraint 'flash <= 256 KiB', or several of them (in Python, "
            "max_slowdown=0.02)"
        )
    one, two = _find_gated_candidate(baseline), _find_gated_candidate(new)
    criteria: list[Criterion] = []
    doubts: list[str] = []
    if max_slowdown is not None:
        criteria.append(check_slowdown(one, two, max_slowdown, confidence))
        if one.whole is None or two.whole is None:
            doubts += [
                f"{clean(each.name)} is in doubt ({doubt.kind}): {clean(doubt.reason)}"
                for each in (one, two)
                for doubt in diagnose(each.run)
            ]
    criteria += [
        check_quality_loss(one, two, limit, confidence, judge_unknown, name)
        for name, limit in losses.items()
    ]
    criteria += [check_constraint(one, two, constraint, confidence) for constraint in wanted]
    if losses:
        doubts += [
            f"the quality of {clean(each.name)} is in doubt ({doubt.kind}): "
            f"{clean(doubt.reason, 600)}"
            for each in (one, two)
            for doubt in check_quality(each.run)
        ]
    return GateResult(tuple(criteria), undecided, tuple(dict.fromkeys(doubts)))


def _find_gated_candidate(
    given: str | Path | Run | tuple[Comparison | ComparisonResult, str],
) -> GatedCandidate:
    if isinstance(given, Run):
        return GatedCandidate(given.title, given)
    if not isinstance(given, tuple):
        return read_candidate(str(given))
    whole = given[0].comparison if isinstance(given[0], ComparisonResult) else given[0]
    return GatedCandidate(given[1], find_candidate(whole, given[1]), whole)
