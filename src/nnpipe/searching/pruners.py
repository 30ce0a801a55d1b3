"""The pruners that end trials which are not worth going on with, by kind: median, asha and
hyperband.

They look at the intermediate values of trials alone.  A value of step 5 is that after 5 units of a
resource, such as epochs.
"""

from __future__ import annotations

import bisect
import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.core.errors import ConfigError
from nnpipe.searching.parameters import TaggedDataclass, create_by_kind

_FURTHEST = 10**9  # steps


class SearchPruner(TaggedDataclass, ABC):
    """Base of the settings of pruners: frozen, and written as ``{"kind": ..., ...}``."""

    @abstractmethod
    def create_judge(self) -> PruneJudge:
        """Return a judge that has seen no trial."""


class PruneJudge(ABC):
    """Remembers the losses of trials by step, and says which trials are to end."""

    def __init__(self) -> None:
        self._known: dict[int, dict[int, float]] = defaultdict(dict)

    def learn(self, number: int, losses: Mapping[int, float]) -> None:
        """Take over the losses of a trial by step, of which less is better; those that it had
        before are forgotten.
        """
        known = self._known[number]
        for step in [step for step in known if losses.get(step) != known[step]]:
            self._forget(number, step, known.pop(step))
        for step in sorted(losses.keys() - known.keys()):
            known[step] = losses[step]
            self._add(number, step, losses[step])

    @abstractmethod
    def should_prune(self, number: int, step: int) -> bool:
        """Return whether a trial is to end, the losses of which have been learnt up to a step."""

    @abstractmethod
    def _add(self, number: int, step: int, loss: float) -> None:
        """Take over the loss of a step that comes after those of the trial which are known."""

    @abstractmethod
    def _forget(self, number: int, step: int, loss: float) -> None:
        """Forget the loss of a step."""


@dataclass(frozen=True)
class MedianPruner(SearchPruner):
    """Ends a trial whose best value so far is worse than the median of the others at the same step.

    Parameters
    ----------
    startup
        At how many others at least a trial is measured.
    warmup
        Up to and with which step no trial ends.
    """

    kind: ClassVar[str] = "median"

    startup: int = 5
    warmup: int = 0

    def __post_init__(self) -> None:
        check_call(MedianPruner, vars(self))
        check_range("startup", self.startup, 1)
        check_range("warmup", self.warmup, 0)

    def create_judge(self) -> PruneJudge:
        """Return a judge that has seen no trial."""
        return _MedianJudge(self)


class _MedianJudge(PruneJudge):
    def __init__(self, settings: MedianPruner) -> None:
        super().__init__()
        self._settings = settings
        self._losses: dict[int, list[float]] = defaultdict(list)  # of all trials by step, sorted

    def should_prune(self, number: int, step: int) -> bool:
        losses, known = self._losses[step], self._known[number]
        if (
            step <= self._settings.warmup
            or step not in known
            or len(losses) <= self._settings.startup
        ):
            return False
        return min(known.values()) > _compute_median_without(losses, known[step])

    def _add(self, number: int, step: int, loss: float) -> None:
        bisect.insort(self._losses[step], loss)

    def _forget(self, number: int, step: int, loss: float) -> None:
        losses = self._losses[step]
        del losses[bisect.bisect_left(losses, loss)]


def _compute_median_without(values: list[float], one: float) -> float:
    """Return the median of sorted values without one of them."""
    place, count = bisect.bisect_left(values, one), len(values) - 1

    def get_remaining(index: int) -> float:
        return values[index + (index >= place)]

    return (get_remaining((count - 1) // 2) + get_remaining(count // 2)) / 2


@dataclass(frozen=True)
class ASHAPruner(SearchPruner):
    """Asynchronous successive halving (Li et al. 2020), which ends trials and never pauses them.

    A rung is a step: ``least`` times a power of ``reduction``.  A trial goes on beyond a rung if it
    is among the best of those that have reached it, one in ``reduction``.

    Parameters
    ----------
    least
        The first rung.
    reduction
        One in how many goes on.
    """

    kind: ClassVar[str] = "asha"

    least: int = 1
    reduction: int = 3

    def __post_init__(self) -> None:
        check_call(ASHAPruner, vars(self))
        check_range("least", self.least, 1)
        check_range("reduction", self.reduction, 2, 100)

    def create_judge(self) -> PruneJudge:
        """Return a judge that has seen no trial."""
        rungs = [self.least]
        while rungs[-1] < _FURTHEST:
            rungs.append(rungs[-1] * self.reduction)
        return _HalvingJudge(tuple(rungs), self.reduction, (1,))


@dataclass(frozen=True)
class HyperbandPruner(SearchPruner):
    """Hyperband (Li et al. 2018) of asynchronous brackets: some trials meet their first rung later
    than others.

    The rungs are ``most`` divided by powers of ``reduction``, rounded up.  A bracket begins at one
    of them, and follows from a trial's number; of each, there are ``reduction`` squared times as
    many trials as of the next.  Other than in the paper, a trial competes at a rung with those of
    all brackets, and fewer trials are in slow brackets: on learning curves, this reached the same
    accuracy earlier.

    Parameters
    ----------
    most
        The last step of a trial that is never pruned.
    least
        No rung comes before this step.
    reduction
        One in how many goes on.
    """

    kind: ClassVar[str] = "hyperband"

    most: int
    least: int = 1
    reduction: int = 3

    def __post_init__(self) -> None:
        check_call(HyperbandPruner, vars(self))
        check_range("least", self.least, 1)
        check_range("reduction", self.reduction, 2, 100)
        if self.most < self.least:
            raise ConfigError(
                f"expected most to be at least least, found {self.most} and {self.least}"
            )

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps at which trials compete."""
        found: list[int] = []
        divisor = self.reduction
        while divisor * self.least <= self.most:
            found.append(math.ceil(self.most / divisor))
            divisor *= self.reduction
        return tuple(sorted(found))

    def create_judge(self) -> PruneJudge:
        """Return a judge that has seen no trial."""
        rungs = self.rungs
        shares = tuple(self.reduction ** (2 * power) for power in range(len(rungs) - 1, -1, -1))
        return _HalvingJudge(rungs, self.reduction, shares or (1,))


class _HalvingJudge(PruneJudge):
    """Compares a trial at each of its rungs with all trials that have come as far, of whatever
    bracket.
    """

    def __init__(self, rungs: tuple[int, ...], reduction: int, shares: tuple[int, ...]) -> None:
        super().__init__()
        self._steps, self._reduction, self._shares = rungs, reduction, shares
        # the losses of all trials at each rung, sorted
        self._rungs: dict[int, list[float]] = defaultdict(list)
        # the step with which a trial reached a rung, by number and rung
        self._at: dict[tuple[int, int], int] = {}

    def should_prune(self, number: int, step: int) -> bool:
        for rung in range(self._choose_bracket(number), self._find_reached_rung(step) + 1):
            if self._at.get((number, rung)) == step:
                losses = self._rungs[rung]
                best = max(1, len(losses) // self._reduction)
                if self._known[number][step] > losses[best - 1]:
                    return True
        return False

    def _add(self, number: int, step: int, loss: float) -> None:
        for rung in range(self._find_reached_rung(step) + 1):
            if (number, rung) not in self._at:
                self._at[number, rung] = step
                bisect.insort(self._rungs[rung], loss)

    def _forget(self, number: int, step: int, loss: float) -> None:
        for rung in range(self._find_reached_rung(step) + 1):
            if self._at.get((number, rung)) == step:
                del self._at[number, rung]
                del self._rungs[rung][bisect.bisect_left(self._rungs[rung], loss)]

    def _choose_bracket(self, number: int) -> int:
        # The multiples of the golden ratio spread every number of trials over the brackets.
        place = (number + 1) * 0.6180339887498949 % 1.0 * sum(self._shares)
        for bracket, share in enumerate(self._shares):
            place -= share
            if place < 0:
                return bracket
        return len(self._shares) - 1

    def _find_reached_rung(self, step: int) -> int:
        """Return the last rung that a step reaches; -1 before the first one."""
        return bisect.bisect_right(self._steps, step) - 1


PRUNERS: dict[str, type[SearchPruner]] = {
    cls.kind: cls for cls in (MedianPruner, ASHAPruner, HyperbandPruner)
}
"""The pruners by kind."""


def parse_pruner(
    entry: str | Mapping[str, Any] | SearchPruner, where: str = "pruner"
) -> SearchPruner:
    """Return the pruner of an entry such as ``median`` or ``{"kind": "hyperband", "most": 27}``.

    Raises
    ------
    ConfigError
        If the entry is wrong; the message begins with ``where``.
    """
    return create_by_kind(entry, PRUNERS, where)
