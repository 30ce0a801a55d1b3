"""Ratios of pairs: what is decided, what is not, and how much more it would take."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.measuring.paired_comparison import (
    LOOKS,
    ComparisonPlan,
    compare_all_pairs,
    compare_pair,
    index_by_start,
    is_settled,
    start_ratios,
)


def logs(centre, spread, starts, seed=0):
    """Differences that lie evenly around their centre, so that the estimate is exact."""
    steps = np.linspace(-spread, spread, starts)
    return centre + np.random.default_rng(seed).permutation(steps)


@pytest.mark.parametrize(
    "wrong",
    [
        {"confidence": 0.3},
        {"confidence": 1.0},
        {"margin": 0.0},
        {"precision": 1.0},
        {"max_seconds": 0.0},
        {"block_seconds": math.inf},
        {"warmup_runs": -1},
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ConfigError, match=f"^{next(iter(wrong))}: "):
        ComparisonPlan(**wrong)


def test_each_look_at_each_pair_has_its_part_of_the_error():
    plan = ComparisonPlan(confidence=0.9)
    assert 1 - plan.compute_pair_confidence(2) == pytest.approx(0.1 / LOOKS)
    assert 1 - plan.compute_pair_confidence(4) == pytest.approx(0.1 / LOOKS / 6)
    assert ComparisonPlan().list_evaluation_starts(2) == (8, 12, 18, 27, 41, 61)
    # more pairs, more starts until all signs alike are proof
    assert ComparisonPlan().list_evaluation_starts(4)[0] == 11


def test_only_blocks_of_one_round_are_compared_and_a_start_gives_one_ratio():
    first = index_by_start(
        [(0, 0, 100.0), (0, 1, 200.0), (0, 2, 400.0), (1, 0, 100.0), (2, 1, 5.0)]
    )
    second = index_by_start([(0, 0, 110.0), (0, 1, 220.0), (1, 0, 90.0), (3, 0, 90.0)])
    assert np.exp(start_ratios(first, second)) == pytest.approx([1.1, 0.9])
    assert len(start_ratios({}, second)) == 0
    assert compare_pair((0, 1), np.array([]), ComparisonPlan(), 2) is None


def test_a_clock_too_coarse_gives_nothing_rather_than_nonsense():
    assert len(start_ratios(index_by_start([(0, 0, 0.0)]), index_by_start([(0, 0, 10.0)]))) == 0


def test_the_faster_one_is_named_first():
    found = compare_pair((3, 7), logs(math.log(0.9), 0.01, 12), ComparisonPlan(), 2)
    assert (found.kind, found.first, found.second, found.starts, found.more) == (
        "faster",
        7,
        3,
        12,
        0,
    )
    assert found.ratio == pytest.approx(1 / 0.9)
    assert found.interval[0] < found.ratio < found.interval[1]


def test_too_few_starts_have_no_interval_and_say_how_many_are_missing():
    found = compare_pair((0, 1), logs(0.1, 0.001, 5), ComparisonPlan(), 2)
    assert (found.kind, found.interval, found.more) == ("undecided", None, 3)
    assert not is_settled(found, ComparisonPlan())


def test_what_is_undecided_says_how_many_more_starts_would_decide():
    values = logs(0.002, 0.01, 12)
    found = compare_pair((0, 1), values, ComparisonPlan(), 2)
    assert found.kind == "undecided"
    reach = math.log(found.interval[1] / found.interval[0]) / 2
    assert found.more == math.ceil(12 * (reach / 0.002) ** 2) - 12
    # So many starts of the same kind do decide.
    more = compare_pair((0, 1), logs(0.002, 0.01, 12 + found.more), ComparisonPlan(), 2)
    assert more.kind == "faster"


def test_no_number_of_starts_tells_what_is_equal_apart():
    assert compare_pair((0, 1), logs(0.0, 0.01, 12), ComparisonPlan(), 2).more is None


def test_the_same_needs_a_margin_around_the_whole_interval():
    values = logs(0.001, 0.006, 12)
    assert compare_pair((0, 1), values, ComparisonPlan(), 2).kind == "undecided"
    assert compare_pair((0, 1), values, ComparisonPlan(margin=0.01), 2).kind == "same"
    some, narrow = (
        compare_pair((0, 1), values, ComparisonPlan(margin=margin), 2) for margin in (0.004, 0.003)
    )
    assert some.kind == narrow.kind == "undecided"
    assert 0 < some.more < narrow.more


def test_a_certain_difference_below_the_margin_does_not_matter():
    values = logs(0.003, 0.001, 12)
    assert compare_pair((0, 1), values, ComparisonPlan(), 2).kind == "faster"
    assert compare_pair((0, 1), values, ComparisonPlan(margin=0.01), 2).kind == "same"


def test_precision_asks_for_more_than_a_decision():
    values = logs(0.1, 0.03, 12)
    found = compare_pair((0, 1), values, ComparisonPlan(precision=0.005), 2)
    assert found.kind == "faster"
    assert found.more > 0
    assert not is_settled(found, ComparisonPlan(precision=0.005))
    assert is_settled(found, ComparisonPlan(precision=0.05))


def test_all_pairs_are_judged_and_those_who_never_met_are_left_out():
    def candidate(time, starts):
        return {start: dict.fromkeys(range(3), time) for start in starts}

    found = compare_all_pairs(
        [candidate(1.0, range(9)), candidate(2.0, range(9)), candidate(3.0, ())], ComparisonPlan()
    )
    assert [(each.first, each.second, each.ratio) for each in found] == [(0, 1, pytest.approx(2.0))]
    # That there was a third makes the others' interval wider all the same.
    assert found[0].more == 1
    assert (
        compare_all_pairs([candidate(1.0, range(9)), candidate(2.0, range(9))], ComparisonPlan())[
            0
        ].more
        == 0
    )
    assert (
        compare_all_pairs(
            [candidate(1.0, range(9)), candidate(2.0, range(9))], ComparisonPlan(), 3
        )[0].more
        == 1
    )


def test_verdicts_can_be_written():
    found = compare_pair((0, 1), logs(0.1, 0.001, 12), ComparisonPlan(), 2).to_json()
    assert found["kind"] == "faster"
    assert found["interval"][0] < found["ratio"] < found["interval"][1]


@pytest.mark.parametrize("kind", ["normal", "heavy", "two places in memory"])
def test_false_alarms_are_not_more_than_stated_though_one_looks_six_times(kind):
    plan, random, alarms = ComparisonPlan(confidence=0.8), np.random.default_rng(5), 0
    for _ in range(300):
        most = plan.list_evaluation_starts(2)[-1]
        luck = {
            "normal": random.normal(size=(2, most)),
            "heavy": random.standard_cauchy((2, most)),
            "two places in memory": random.choice([0.0, 30.0], p=[0.9, 0.1], size=(2, most))
            + random.random((2, most)),
        }[kind]
        differences = 0.01 * (luck[1] - luck[0])
        alarms += any(
            compare_pair((0, 1), differences[:look], plan, 2).kind == "faster"
            for look in plan.list_evaluation_starts(2)
        )
    assert alarms <= 78  # 60 would be the level; more than 78 once in 200
