"""Which trials a sampler sees: all, or of many the best and some of all times."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


class ShownTrials:
    """The trials of a search in Optuna's form, of which so many are shown at most.

    A change costs hardly more with many trials than with few.

    Parameters
    ----------
    most
        How many ended trials are shown at most: the best half, and of the others evenly many of all times.  ``None``
        shows all.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._by_number: dict[int, FrozenTrial] = {}
        self._numbers: list[int] = []  # ascending
        self._trials: list[FrozenTrial] = []  # in the same order
        self._running: set[int] = set()
        self._count = 0  # of ends so far
        self._best: list[tuple[float, int, int]] = []  # losses, places among the ends, and numbers of the best half
        self._others: list[tuple[int, int]] = []  # places and numbers of the others

    def __getitem__(self, number: int) -> FrozenTrial:
        """Return the trial of a number."""
        return self._by_number[number]

    def put(self, number: int, trial: FrozenTrial, loss: float | None) -> None:
        """Add a trial, or replace it by what it is now; ``loss`` is ``None`` while it runs."""
        self.drop(number)
        place = bisect.bisect_left(self._numbers, number)
        self._numbers.insert(place, number)
        self._trials.insert(place, trial)
        self._by_number[number] = trial
        if loss is None:
            self._running.add(number)
        elif self._most is not None:
            bisect.insort(self._best, (loss, self._count, number))
            self._count += 1
            if len(self._best) > self._most // 2:
                _, at, worst = self._best.pop()
                bisect.insort(self._others, (at, worst))

    def drop(self, number: int) -> None:
        """Forget a trial, if it is known."""
        if self._by_number.pop(number, None) is None:
            return
        place = bisect.bisect_left(self._numbers, number)
        del self._numbers[place], self._trials[place]
        if number in self._running:
            self._running.remove(number)
        elif self._most is not None:  # an ended trial does not change, so this is rare
            self._best = [each for each in self._best if each[-1] != number]
            self._others = [each for each in self._others if each[-1] != number]

    def shown(self) -> list[FrozenTrial]:
        """Return the trials that are shown, by number, in a new list."""
        if self._most is None or len(self._best) + len(self._others) <= self._most:
            return list(self._trials)
        places = np.linspace(0, len(self._others) - 1, self._most - self._most // 2).astype(np.int64)
        numbers = [number for _, _, number in self._best]
        numbers += [self._others[place][1] for place in places.tolist()]
        return [self._by_number[number] for number in sorted([*numbers, *self._running])]
