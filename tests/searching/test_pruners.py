"""Pruners: who ends at which step, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.searching.pruners import ASHAPruner, HyperbandPruner, MedianPruner, parse_pruner


def test_the_median_of_the_others_decides_after_the_warmup() -> None:
    judge = MedianPruner(startup=4, warmup=1).create_judge()
    for number, loss in enumerate([1.0, 2.0, 3.0, 4.0]):
        judge.learn(number, {1: loss, 2: loss})
    judge.learn(9, {1: 5.0})
    assert not judge.should_prune(9, 1)  # warming up
    judge.learn(9, {1: 5.0, 2: 2.6})
    assert judge.should_prune(9, 2)  # the median is 2.5
    judge.learn(9, {1: 2.4, 2: 2.6})
    assert not judge.should_prune(9, 2)  # its best so far is better


def test_one_in_three_passes_each_rung() -> None:
    judge = ASHAPruner(least=1, reduction=3).create_judge()
    ended = []
    for number in range(9):
        judge.learn(number, {1: float(number)})
        ended.append(judge.should_prune(number, 1))
    assert ended == [False] + [True] * 8  # later ones are worse
    judge.learn(20, {1: 1.5})
    assert not judge.should_prune(20, 1)  # third of ten
    judge.learn(20, {1: 1.5, 2: 9.0})
    assert not judge.should_prune(20, 2)  # no rung
    judge.learn(0, {1: 0.0, 3: 1.0})
    judge.learn(20, {1: 1.5, 2: 9.0, 3: 9.0})
    assert judge.should_prune(20, 3)


def test_a_trial_that_starts_again_is_counted_once() -> None:
    judge = ASHAPruner().create_judge()
    judge.learn(0, {1: 0.0})
    judge.learn(0, {})
    judge.learn(0, {1: 5.0})
    judge.learn(1, {1: 4.0})
    assert not judge.should_prune(1, 1)


def test_hyperband_has_brackets_that_begin_later() -> None:
    pruner = HyperbandPruner(most=27)
    assert pruner.rungs == (1, 3, 9)
    assert HyperbandPruner(most=52).rungs == (2, 6, 18)
    judge, first_ends = pruner.create_judge(), Counter()
    for number in range(182):
        losses = {}
        for step in range(1, 10):
            losses[step] = float(number)  # each is worse than all before
            judge.learn(number, dict(losses))
            if judge.should_prune(number, step):
                first_ends[step] += 1
                break
    # Of each bracket nine times as many trials as of the next, within one trial.
    assert [first_ends[step] for step in (1, 3, 9)] == [
        pytest.approx(share, abs=1) for share in (162, 18, 2)
    ]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            "mean",
            "pruner: expected an object with a kind \\(median, asha, hyperband\\), found 'mean'",
        ),
        ({"kind": "hyperband"}, "most"),
        (
            {"kind": "hyperband", "most": 1, "least": 3},
            "pruner: expected most to be at least least",
        ),
        ({"kind": "asha", "reduction": 1}, "pruner: reduction"),
        ({"kind": "median", "start": 1}, "startup"),
    ],
)
def test_a_bad_pruner_is_refused(entry: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_pruner(entry)
