"""Searching for the fewest tensors to keep in floats, with few evaluations.

The tensors are ranked by the noise that rounding adds to them.  Evaluating one tensor at a time
fails, because several faults hide each other: each alone mends nothing.  So the worst 1, 2, 4, ...
are kept in floats until the loss is small enough, and the number is bisected.  Then tensors are
rounded again one by one, those with the least noise first, since a ranking is not perfect and each
tensor in floats takes time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MixStep:
    """A model that was tried.

    Attributes
    ----------
    kept
        The tensors that it keeps in floats, those with the most noise first.
    loss
        How much worse than the model in floats it is on the samples of the search, in the unit of
        the metric; a negative loss is a gain.
    low, high
        The ends of the loss's 95 % interval.
    time
        The time of a call as a multiple of that of the model in floats, measured side by side.
    time_interval
        The ends of its 95 % interval.
    """

    kept: tuple[str, ...]
    loss: float
    low: float
    high: float
    time: float
    time_interval: tuple[float, float]


Evaluate = Callable[[tuple[str, ...]], MixStep]


def search_floats(
    ranked: Sequence[str], evaluate: Evaluate, allowed: float, budget: int
) -> list[MixStep]:
    """Return the models that were tried, in order.

    Parameters
    ----------
    ranked
        The tensors, those with the most noise first.
    evaluate
        Makes and judges the model that keeps some tensors in floats.
    allowed
        The greatest loss.
    budget
        The greatest number of evaluations.

    Examples
    --------
    >>> def evaluate(kept):
    ...     missing = {"a", "c"}.difference(kept)
    ...     return MixStep(kept, 0.3 * len(missing), 0.0, 1.0, 0.5, (0.4, 0.6))
    >>> found = search_floats(["a", "b", "c", "d", "e"], evaluate, 0.01, 20)
    >>> [step.kept for step in found if step.loss <= 0.01][-1]
    ('a', 'c')
    """
    search = _Search(evaluate, allowed, budget)
    search.run(tuple(ranked))
    return search.steps


def find_fastest(steps: Sequence[MixStep], allowed: float) -> MixStep | None:
    """Return the fastest model whose loss is allowed.

    One with more tensors in floats than another is only chosen if the intervals of their times
    prove that it is faster.
    """
    best: MixStep | None = None
    for step in sorted(steps, key=lambda step: (len(step.kept), step.time)):
        if step.loss <= allowed and (best is None or step.time_interval[1] < best.time_interval[0]):
            best = step
    return best


class _Search:
    def __init__(self, evaluate: Evaluate, allowed: float, budget: int) -> None:
        self.steps: list[MixStep] = []
        self._evaluate, self._allowed, self._budget = evaluate, allowed, budget
        self._known: dict[tuple[str, ...], bool] = {}

    def run(self, ranked: tuple[str, ...]) -> None:
        fewest = self._find_fewest(ranked)
        if not fewest:
            return
        kept = list(ranked[:fewest])
        # The last of them is needed, as bisection has shown.
        for tensor in reversed(kept[:-1]):
            without = tuple(each for each in kept if each != tensor)
            if self._left and self._is_allowed(without):
                kept.remove(tensor)

    def _find_fewest(self, ranked: tuple[str, ...]) -> int:
        """Return how many of the worst tensors have to be kept; 0 for none, or if none suffice."""
        if self._is_allowed(()):
            return 0
        fails, count = 0, 1
        while self._left and not self._is_allowed(ranked[:count]):
            if count == len(ranked):
                return 0
            fails, count = count, min(2 * count, len(ranked))
        if not self._known.get(ranked[:count], False):
            return 0
        while count - fails > 1 and self._left:
            middle = (fails + count) // 2
            if self._is_allowed(ranked[:middle]):
                count = middle
            else:
                fails = middle
        return count

    @property
    def _left(self) -> bool:
        return len(self.steps) < self._budget

    def _is_allowed(self, kept: tuple[str, ...]) -> bool:
        if kept not in self._known:
            step = self._evaluate(kept)
            self.steps.append(step)
            self._known[kept] = step.loss <= self._allowed
        return self._known[kept]
