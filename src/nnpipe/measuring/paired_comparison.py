"""Which of two is faster, and by how much: ratios of pairs, with an interval that holds.

What disturbs a measurement comes in two sizes, and each needs its remedy.

*While it runs*, the machine speeds up and slows down, in drifts and bursts that
dwarf what is to be found out.  So candidates take turns in short blocks, in a
random order each round, and only blocks of one round are compared: what lasts
longer than a round cancels.

*Once for all, when it starts*, a process gets its place in memory, and keeps
the luck of it: two processes with the same model differ steadily, by some
tenths of a percent up to tens, however long one measures.  More rounds make
such a difference look ever more certain.  So all candidates are started anew
many times, and a start is one observation: the centre of its rounds' ratios of
logarithms.  (T. Kalibera and R. Jones, "Rigorous benchmarking in reasonable
time", ISMM 2013; A. Georges, D. Buytaert and L. Eeckhout, "Statistically
rigorous Java performance evaluation", OOPSLA 2007.)

The interval is that of Wilcoxon's signed ranks over starts.  It assumes that a
start is as likely to favour the one as the other, beyond their true ratio.
Rounds may depend on each other as they like.

One looks several times and stops when the answer is there, which would make
false alarms more frequent.  Therefore each of at most :data:`LOOKS` looks, at
each pair, has an equal part of the error that is allowed (Bonferroni): all
intervals together, whenever one stops, hold at the stated confidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.measuring.signed_rank import Centre, Floats, centre, pair_means, values_needed

LOOKS = 6
_GROWTH = 1.5  # from look to look
_MOST_STARTS = 10_000  # beyond, the number is no plan any more

Kind = Literal["faster", "same", "undecided"]


@dataclass(frozen=True, kw_only=True)
class ComparisonPlan:
    """How candidates are compared.

    Parameters
    ----------
    confidence
        All intervals of one comparison hold together at least this often.
    margin
        The greatest difference that does not matter, as a share of the time;
        two candidates can be found the same only if there is one.
    precision
        Half of an interval's width that is wanted, as a share; none: whatever
        it takes to decide.
    max_seconds
        No start begins that would probably end later.
    block_seconds
        How long one candidate runs before it is the next one's turn.
    warmup_runs
        Calls in each start that are not recorded, beside a whole round.
    seed
        Of the order.
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
                raise ConfigError(f"{name}: must be above 0 % and below 100 %, not {100 * value:g} %")
        for name in ("max_seconds", "block_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name}: must be above zero, not {getattr(self, name)}")
        if self.warmup_runs < 0:
            raise ConfigError(f"warmup_runs: must not be negative, {self.warmup_runs} is")

    def level(self, candidates: int) -> float:
        """Return the confidence of the interval of one pair at one look."""
        pairs = max(1, candidates * (candidates - 1) // 2)
        return 1 - (1 - self.confidence) / (LOOKS * pairs)

    def looks(self, candidates: int) -> tuple[int, ...]:
        """Return the numbers of starts after which one looks: 8, 12, 18, 27, 41, 61 for two candidates at 95 %."""
        first = values_needed(self.level(candidates))
        return tuple(math.ceil(first * _GROWTH**look - 1e-9) for look in range(LOOKS))


@dataclass(frozen=True)
class Verdict:
    """What is known of two candidates' times.

    Attributes
    ----------
    first, second
        Their places; the first is the one whose time was found to be less.
    kind
        ``faster`` (the first is), ``same`` (within the margin), ``undecided``.
    ratio, interval
        The second's time by the first's; no interval where starts were too few.
    starts
        How often both were started.
    more
        About how many more starts would decide; 0 if it is decided, ``None``
        if more than anybody would make.
    """

    first: int
    second: int
    kind: Kind
    ratio: float
    interval: tuple[float, float] | None
    starts: int
    more: int | None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "first": self.first, "second": self.second, "kind": self.kind, "ratio": self.ratio,
            "interval": self.interval and list(self.interval), "starts": self.starts, "more_starts": self.more,
        }  # fmt: skip


Medians = Mapping[int, Mapping[int, float]]
"""By start and round: one figure for each block of a candidate, in nanoseconds."""


def by_start(figures: Iterable[tuple[int, int, float]]) -> dict[int, dict[int, float]]:
    """Arrange ``(start, round, figure)`` by start and round."""
    check_call(by_start, locals())
    found: dict[int, dict[int, float]] = {}
    for start, round_, figure in figures:
        found.setdefault(start, {})[round_] = figure
    return found


def start_ratios(first: Medians, second: Medians) -> Floats:
    """Return the logarithm of the second's time by the first's for each start in which both ran: (starts,)."""
    found = []
    for start in sorted(first.keys() & second.keys()):
        one, two = first[start], second[start]
        # A clock too coarse for what it times shows nothing.
        logs = [math.log(two[r] / one[r]) for r in one.keys() & two.keys() if one[r] > 0 and two[r] > 0]
        if logs:
            found.append(float(np.median(pair_means(np.array(logs)))))
    return np.array(found)


def verdict(
    places: tuple[int, int], logs: npt.NDArray[np.float64], plan: ComparisonPlan, candidates: int
) -> Verdict | None:
    """Judge two of so many candidates by what :func:`start_ratios` gave; ``None`` if they never ran together."""
    if not len(logs):
        return None
    found = centre(logs, plan.level(candidates))
    if found.value < 0:
        found = centre(-logs, plan.level(candidates))
        places = places[1], places[0]
    ends = found.interval
    return Verdict(
        *places,
        _kind(found, plan),
        math.exp(found.value),
        ends and (math.exp(ends[0]), math.exp(ends[1])),
        found.number,
        _more(found, plan),
    )


def verdicts(medians: Sequence[Medians], plan: ComparisonPlan, candidates: int | None = None) -> list[Verdict]:
    """Judge all pairs, as many as ran together; ``candidates`` says how many there were, where some have failed."""
    check_call(verdicts, locals())
    found = (
        verdict((one, other), start_ratios(medians[one], medians[other]), plan, candidates or len(medians))
        for one in range(len(medians))
        for other in range(one + 1, len(medians))
    )
    return [each for each in found if each is not None]


def is_settled(found: Verdict, plan: ComparisonPlan) -> bool:
    """Return whether more starts are of no use: it is decided, and as precisely as was wished."""
    if found.interval is None or found.kind == "undecided":
        return False
    return plan.precision is None or _reach(found.interval) <= plan.precision


def _kind(found: Centre, plan: ComparisonPlan) -> Kind:
    if found.interval is None:
        return "undecided"
    low, high = found.interval
    # The same first: less by 0.2 % for certain is still the same to whom 1 % does not matter.
    if plan.margin is not None and -math.log1p(plan.margin) <= low and high <= math.log1p(plan.margin):
        return "same"
    return "faster" if low > 0 else "undecided"


def _more(found: Centre, plan: ComparisonPlan) -> int | None:
    """Estimate how many more starts would decide: intervals shrink as the root of the number of starts."""
    if found.interval is None:
        return found.needed - found.number
    aims = [] if plan.precision is None else [plan.precision]
    if _kind(found, plan) == "undecided":
        # Either is an answer: that there is a difference, or that it does not matter.
        margin = math.log1p(plan.margin) if plan.margin else 0.0
        aims.append(max(abs(found.value), margin - abs(found.value)))
    aim = min(aims, default=math.inf)
    if found.reach <= aim and _kind(found, plan) != "undecided":
        return 0
    if aim <= 0 or (needed := found.number * (found.reach / aim) ** 2) > _MOST_STARTS:
        return None
    return max(1, math.ceil(needed) - found.number)


def _reach(interval: tuple[float, float]) -> float:
    return math.log(interval[1] / interval[0]) / 2
