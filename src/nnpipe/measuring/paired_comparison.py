"""Compare the speed of two candidates by paired ratios with confidence intervals.

Two kinds of disturbances affect a comparison.

*During a run*, the machine becomes faster and slower, in drifts and bursts that
may be larger than the difference of the candidates.  So candidates are run in
turns in short blocks, in a random order each round, and only blocks of the same
round are compared.  Disturbances that last longer than a round cancel.

*At its start*, a process gets its place in memory and keeps it.  Two processes with the same model
differ constantly, by some tenths of a percent up to tens of percent, however long they run, and
more rounds make such a difference look more certain.  So all candidates are restarted many times.
A start is one observation: the centre of the logarithms of its rounds' ratios.  (T. Kalibera and R.
Jones, "Rigorous benchmarking in reasonable time", ISMM 2013; A. Georges, D. Buytaert and L.
Eeckhout, "Statistically rigorous Java performance evaluation", OOPSLA 2007.)

The interval is that of Wilcoxon's signed-rank test over starts.  It assumes that a
start is as likely to favour one candidate as the other, apart from their true
ratio.  Rounds may depend on each other.

The results are evaluated several times, and the comparison stops when it is
decided, which would increase the number of false positives.  Therefore each of at
most :data:`LOOKS` evaluations of each pair gets an equal part of the allowed error
(Bonferroni): all intervals together hold at the stated confidence, whenever the
comparison stops.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError

# Estimate the centre of symmetrically distributed differences, with an exact confidence interval.
#
# Symmetry is the only assumption.  It holds if two candidates differ by a constant only and are run
# in turns in random order: exchanging the two then only changes the sign of a difference.  No
# particular distribution is assumed, and an outlier moves the centre no further than any other
# value.

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Centre:
    """The centre of differences.

    Attributes
    ----------
    value
        The Hodges-Lehmann estimate: the median of the means of all pairs.
    interval
        The confidence interval of the centre; ``None`` if there are fewer values
        than ``needed``.
    number, needed
        The number of values, and the least number for an interval.
    """

    value: float
    interval: tuple[float, float] | None
    number: int
    needed: int

    @property
    def reach(self) -> float:
        """Half of the interval's width; infinite without an interval."""
        return math.inf if self.interval is None else (self.interval[1] - self.interval[0]) / 2


def compute_centre(values: npt.ArrayLike, confidence: float) -> Centre:
    """Estimate the centre of a symmetric distribution, by inverting Wilcoxon's signed-rank test.

    M. Hollander, D. A. Wolfe and E. Chicken, "Nonparametric Statistical
    Methods", 3rd edition, 2014, sections 3.2 and 3.3.

    Parameters
    ----------
    values
        ``(n,)`` finite numbers, at least one.
    confidence
        The least probability that the interval encloses the centre.

    Raises
    ------
    ValueError
        If there is no value, or the confidence is not between 0 and 1.
    """
    found = np.asarray(values, np.float64)
    if found.ndim != 1 or not len(found):
        raise ValueError(f"a centre needs values in a row, these are of shape {found.shape}")
    needed = count_values_needed(confidence)
    means = compute_walsh_averages(found)
    value = float(np.median(means))
    if len(found) < needed:
        return Centre(value, None, len(found), needed)
    left_out = _count_excluded_means(len(found), confidence)
    return Centre(value, (float(means[left_out]), float(means[-1 - left_out])), len(found), needed)


def count_values_needed(confidence: float) -> int:
    """Return the least number of values that support an interval: n with 2^(1 - n) <= 1 -
    confidence; 6 at 95 %.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, {confidence} does not")
    return max(1, math.ceil(1 - math.log2(1 - confidence) - 1e-9))


def compute_walsh_averages(values: Floats) -> Floats:
    """Return the sorted means of all pairs of values, including each with itself (Walsh
    averages): (n (n + 1) / 2,).
    """
    first, second = np.triu_indices(len(values))
    return np.sort((values[first] + values[second]) / 2)


@lru_cache(maxsize=512)
def _count_excluded_means(number: int, confidence: float) -> int:
    """Return how many pair means to exclude at each end: the largest k with 2 P(W <= k) <= 1 -
    confidence.
    """
    below = np.cumsum(_compute_signed_rank_distribution(number))
    most = int(np.searchsorted(2 * below, (1 - confidence) * (1 + 1e-9), side="right")) - 1
    return max(0, most)


@lru_cache(maxsize=256)
def _compute_signed_rank_distribution(number: int) -> Floats:
    """Return the probability of each sum of positive ranks, 0 to n (n + 1) / 2, if both signs
    are equally likely.
    """
    found = np.zeros(number * (number + 1) // 2 + 1)
    found[0] = 1.0
    for rank in range(1, number + 1):
        found[rank:] = (found[rank:] + found[:-rank]) / 2
        found[:rank] /= 2
    return found


LOOKS = 6
_GROWTH = 1.5  # of the number of starts from one evaluation to the next
_MOST_STARTS = 10_000  # larger estimates are not reported

Kind = Literal["faster", "same", "undecided"]


@dataclass(frozen=True, kw_only=True)
class ComparisonPlan:
    """The settings of a comparison.

    Parameters
    ----------
    confidence
        The least probability that all intervals of a comparison hold together.
    margin
        The greatest difference that is considered irrelevant, as a share of the
        time.  Candidates can be found equal only if there is a margin.
    precision
        The wanted half-width of each interval, as a share of the time; without
        it, the comparison ends when it is decided.
    max_seconds
        The time limit; no start begins that would probably end later.
    block_seconds
        The duration of a candidate's block.
    warmup_runs
        The calls in each start that are not recorded, in addition to a whole round.
    seed
        The seed of the random order.
    """

    confidence: float = 0.95
    margin: float | None = None
    precision: float | None = None
    max_seconds: float = 300.0
    block_seconds: float = 0.01
    warmup_runs: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        check_call(ComparisonPlan, vars(self))
        if not 0.5 <= self.confidence < 1:
            raise ConfigError(f"confidence: must be from 0.5 to below 1, not {self.confidence}")
        for name in ("margin", "precision"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise ConfigError(
                    f"{name}: must be above 0 % and below 100 %, not {100 * value:g} %"
                )
        for name in ("max_seconds", "block_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name}: must be above zero, not {getattr(self, name)}")
        if self.warmup_runs < 0:
            raise ConfigError(f"warmup_runs: must not be negative, {self.warmup_runs} is")

    def compute_pair_confidence(self, candidates: int) -> float:
        """Return the confidence of the interval of one pair at one evaluation."""
        pairs = max(1, candidates * (candidates - 1) // 2)
        return 1 - (1 - self.confidence) / (LOOKS * pairs)

    def list_evaluation_starts(self, candidates: int) -> tuple[int, ...]:
        """Return the numbers of starts after which to evaluate: 8, 12, 18, 27, 41, 61 for two
        candidates at 95 %.
        """
        first = count_values_needed(self.compute_pair_confidence(candidates))
        return tuple(math.ceil(first * _GROWTH**look - 1e-9) for look in range(LOOKS))


@dataclass(frozen=True)
class Verdict:
    """The result of comparing the times of two candidates.

    Attributes
    ----------
    first, second
        The numbers of the candidates; the first has the lower estimated time.
    kind
        ``faster`` (the first is), ``same`` (within the margin), ``undecided``.
    ratio, interval
        The second's time divided by the first's; no interval if there were too few starts.
    starts
        The number of starts in which both ran.
    more
        An estimate of how many more starts would decide; 0 if decided, ``None``
        if there would be too many.
    """

    first: int
    second: int
    kind: Kind
    ratio: float
    interval: tuple[float, float] | None
    starts: int
    more: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the verdict in its JSON form."""
        return {
            "first": self.first,
            "second": self.second,
            "kind": self.kind,
            "ratio": self.ratio,
            "interval": self.interval and list(self.interval),
            "starts": self.starts,
            "more_starts": self.more,
        }


Medians = Mapping[int, Mapping[int, float]]
"""By start and round: one time for each block of a candidate, in nanoseconds."""


def index_by_start(figures: Iterable[tuple[int, int, float]]) -> dict[int, dict[int, float]]:
    """Arrange ``(start, round, figure)`` by start and round."""
    check_call(index_by_start, locals())
    found: dict[int, dict[int, float]] = {}
    for start, round_, figure in figures:
        found.setdefault(start, {})[round_] = figure
    return found


def start_ratios(first: Medians, second: Medians) -> Floats:
    """Return ``log(second / first)`` of the times for each start in which both ran:
    ``(starts,)`` float64.
    """
    found = []
    for start in sorted(first.keys() & second.keys()):
        one, two = first[start], second[start]
        # A too coarse clock may show a time of zero, which gives no ratio.
        logs = [
            math.log(two[r] / one[r]) for r in one.keys() & two.keys() if one[r] > 0 and two[r] > 0
        ]
        if logs:
            found.append(float(np.median(compute_walsh_averages(np.array(logs)))))
    return np.array(found)


def compare_pair(
    places: tuple[int, int], logs: npt.NDArray[np.float64], plan: ComparisonPlan, candidates: int
) -> Verdict | None:
    """Compare two of ``candidates`` candidates by their :func:`start_ratios`; ``None`` if they
    never ran together.
    """
    if not len(logs):
        return None
    found = compute_centre(logs, plan.compute_pair_confidence(candidates))
    if found.value < 0:
        found = compute_centre(-logs, plan.compute_pair_confidence(candidates))
        places = places[1], places[0]
    ends = found.interval
    return Verdict(
        *places,
        _choose_kind(found, plan),
        math.exp(found.value),
        ends and (math.exp(ends[0]), math.exp(ends[1])),
        found.number,
        _compute_missing_starts(found, plan),
    )


def compare_all_pairs(
    medians: Sequence[Medians], plan: ComparisonPlan, candidates: int | None = None
) -> list[Verdict]:
    """Compare all pairs that ran together; ``candidates`` is the number of all candidates,
    including failed ones.
    """
    check_call(compare_all_pairs, locals())
    found = (
        compare_pair(
            (one, other),
            start_ratios(medians[one], medians[other]),
            plan,
            candidates or len(medians),
        )
        for one in range(len(medians))
        for other in range(one + 1, len(medians))
    )
    return [each for each in found if each is not None]


def is_settled(found: Verdict, plan: ComparisonPlan) -> bool:
    """Return whether a pair needs no more starts: it is decided, with the wanted precision."""
    if found.interval is None or found.kind == "undecided":
        return False
    return plan.precision is None or _compute_half_width(found.interval) <= plan.precision


def _choose_kind(found: Centre, plan: ComparisonPlan) -> Kind:
    if found.interval is None:
        return "undecided"
    low, high = found.interval
    # Check for equality first: with a margin of 1 %, a certain difference of 0.2 % still counts as
    # equal.
    if (
        plan.margin is not None
        and -math.log1p(plan.margin) <= low
        and high <= math.log1p(plan.margin)
    ):
        return "same"
    return "faster" if low > 0 else "undecided"


def _compute_missing_starts(found: Centre, plan: ComparisonPlan) -> int | None:
    """Estimate how many more starts would decide: the width is inversely proportional to the
    root of their number.
    """
    if found.interval is None:
        return found.needed - found.number
    aims = [] if plan.precision is None else [plan.precision]
    if _choose_kind(found, plan) == "undecided":
        # Both are decisions: that there is a difference, or that it is irrelevant.
        margin = math.log1p(plan.margin) if plan.margin else 0.0
        aims.append(max(abs(found.value), margin - abs(found.value)))
    aim = min(aims, default=math.inf)
    if found.reach <= aim and _choose_kind(found, plan) != "undecided":
        return 0
    if aim <= 0 or (needed := found.number * (found.reach / aim) ** 2) > _MOST_STARTS:
        return None
    return max(1, math.ceil(needed) - found.number)


def _compute_half_width(interval: tuple[float, float]) -> float:
    return math.log(interval[1] / interval[0]) / 2
