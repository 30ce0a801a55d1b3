"""What samplers see of many trials: the best half, and of the others evenly many of all times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nnpipe.searching.trial_mirror import ShownTrials


def expected(trials: dict[int, Any], ends: list[tuple[int, float]], most: int) -> list[Any]:
    """Choose anew from all trials."""
    numbers = np.array([number for number, _ in ends])
    if len(ends) > most:
        order = np.argsort(np.array([loss for _, loss in ends]), kind="stable")
        others = np.sort(order[most // 2 :])
        chosen = others[np.linspace(0, len(others) - 1, most - most // 2).astype(int)]
        numbers = numbers[np.concatenate([order[: most // 2], chosen])]
    running = [number for number in trials if number not in dict(ends)]
    return [trials[number] for number in sorted([*numbers.tolist(), *running])]


@pytest.mark.parametrize("most", [4, 7, 1000])
def test_what_is_shown_follows_from_all_trials_whatever_their_order(most: int) -> None:
    random = np.random.default_rng(0)
    shown, trials, running = ShownTrials(most), dict[int, Any](), list[int]()
    ends: list[tuple[int, float]] = []
    for number in range(60):
        trials[number] = SimpleNamespace(number=number, state="running")
        shown.put(number, trials[number], None)
        running.append(number)
        if number % 3:
            ended = running.pop(int(random.integers(len(running))))
            loss = float(random.integers(0, 9)) if number % 5 else float("inf")  # many are equal
            trials[ended] = SimpleNamespace(number=ended, state="ended")
            ends.append((ended, loss))
            shown.put(ended, trials[ended], loss)
        assert shown.list_shown() == expected(trials, ends, most)
    assert shown[17] is trials[17]


def test_all_are_shown_without_a_limit_and_none_that_was_dropped() -> None:
    shown = ShownTrials(None)
    for number in (2, 0, 1):
        shown.put(number, SimpleNamespace(number=number), 1.0)  # type: ignore[arg-type]
    shown.drop(1)
    shown.drop(7)
    found = shown.list_shown()
    assert [trial.number for trial in found] == [0, 2]
    found.clear()
    assert len(shown.list_shown()) == 2
