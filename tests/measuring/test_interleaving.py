"""Candidates take turns in made-up time; whoever fails, or has lost, leaves."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest

from nnpipe.core.errors import NNPipeError
from nnpipe.measuring.interleaving import Block, interleave
from nnpipe.measuring.paired_comparison import ComparisonPlan, compare_all_pairs

OPENING = 100_000_000


class Hall:
    """A machine on which time passes only when candidates run; with luck in each start, and a
    speed that wanders.
    """

    def __init__(self, *times, luck=0.003, wander=0.2, seed=0):
        self.times, self.luck, self.wander = times, luck, wander
        self.now, self.random = 0, np.random.default_rng(seed)
        self.opened, self.closed, self.called = [], 0, []
        self.error = NNPipeError("crashed")
        self.failing = {}  # candidate: the number of its call that fails, or "open"

    def clock(self):
        return self.now

    @contextmanager
    def open(self, places):
        self.opened.append(tuple(places))
        self.now += OPENING
        yield {place: self.runner(place) for place in places}
        self.closed += 1

    def runner(self, place):
        if self.failing.get(place) == "open":
            return NNPipeError("cannot be opened")
        time = self.times[place] * np.exp(self.random.normal(0, self.luck))

        def run(calls):
            self.called.append((place, calls))
            if sum(1 for each, _ in self.called if each == place) == self.failing.get(place):
                raise self.error
            speed = np.exp(self.wander * np.sin(self.now / 3e8))
            latency = (time * speed * np.exp(self.random.normal(0, 0.02, calls))).astype(np.int64)
            self.now += int(latency.sum())
            return Block(np.cumsum(latency) - latency, latency)

        return run


def compare(hall, same_calls=False, **plan):
    return interleave(
        len(hall.times), hall.open, ComparisonPlan(**plan), same_calls=same_calls, clock=hall.clock
    )


def test_all_take_turns_once_a_round_in_random_order():
    hall = Hall(100_000, 100_000, 100_000)
    record = compare(hall, max_seconds=1.0, seed=3)
    rounds = {}
    for turn in record.turns:
        rounds.setdefault((turn.start, turn.round), []).append((turn.place, turn.candidate))
    assert all(
        sorted(candidate for _, candidate in found) == [0, 1, 2] for found in rounds.values()
    )
    assert all([place for place, _ in found] == [0, 1, 2] for found in rounds.values())
    orders = Counter(tuple(candidate for _, candidate in found) for found in rounds.values())
    assert len(orders) == 6
    begins = [turn.begin_ns for turn in record.turns]
    assert begins == sorted(begins)


def test_where_inputs_take_unlike_times_all_run_the_same_ones():
    hall = Hall(100_000, 20_000_000)
    compare(hall, same_calls=True, max_seconds=1.0)
    by_place = [[calls for place, calls in hall.called if place == each] for each in (0, 1)]
    assert by_place[0] == by_place[1]
    assert by_place[0][-1] < 10_000_000 // 100_000  # as few as the slow one has time for


def test_the_seed_decides_the_order():
    def order(seed):
        return [
            turn.candidate for turn in compare(Hall(1e5, 1e5), max_seconds=1.0, seed=seed).turns
        ]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_every_start_opens_all_anew_and_closes_them():
    hall = Hall(100_000, 101_000)
    record = compare(hall, max_seconds=3.0)
    starts = len({turn.start for turn in record.turns})
    assert starts >= 8
    assert len(hall.opened) == hall.closed == starts
    assert {tuple(sorted(places)) for places in hall.opened} == {(0, 1)}
    assert len(set(hall.opened)) == 2  # not always the same first


def test_rounds_take_about_half_as_long_as_opening():
    hall = Hall(100_000, 100_000, wander=0)
    record = compare(hall, max_seconds=1.0, block_seconds=0.002)
    assert max(turn.round for turn in record.turns) + 1 == pytest.approx(OPENING / 8e6, rel=0.3)


def test_a_small_difference_on_a_wandering_machine_is_found_and_the_loser_s_going_ends_it():
    hall = Hall(100_000, 102_000)
    record = compare(hall, max_seconds=100.0)
    (found,) = compare_all_pairs(record.compute_medians(2), ComparisonPlan())
    assert (found.kind, found.first, found.starts) == ("faster", 0, 8)
    assert found.interval[0] < 1.02 < found.interval[1]


def test_who_has_lost_runs_no_more_and_the_others_go_on():
    hall = Hall(100_000, 200_000, 100_300, luck=0.002)
    record = compare(hall, max_seconds=20.0)
    starts = [
        {turn.start for turn in record.turns if turn.candidate == place} for place in range(3)
    ]
    first_look = ComparisonPlan().list_evaluation_starts(3)[0]
    assert len(starts[1]) == first_look
    assert len(starts[0]) == len(starts[2]) > first_look


def test_what_is_the_same_within_the_margin_ends_early():
    hall = Hall(100_000, 100_000)
    record = compare(hall, margin=0.01, max_seconds=1000.0)
    assert len(hall.opened) < ComparisonPlan().list_evaluation_starts(2)[-1]
    assert (
        compare_all_pairs(record.compute_medians(2), ComparisonPlan(margin=0.01))[0].kind == "same"
    )


def test_without_an_answer_the_last_look_ends_it():
    hall = Hall(100_000, 100_000)
    compare(hall, max_seconds=1e6, block_seconds=0.006)
    assert len(hall.opened) == ComparisonPlan().list_evaluation_starts(2)[-1]


def test_no_start_begins_that_would_end_too_late():
    hall = Hall(100_000, 100_000)
    record = compare(hall, max_seconds=2.0)
    assert 1.5 < record.seconds <= 2.0


def test_equal_candidates_make_as_many_calls_and_far_slower_ones_fewer():
    hall = Hall(100_000, 150_000, 10_000_000, 1e9, wander=0)
    record = compare(hall, max_seconds=0.1, block_seconds=0.01)
    calls = {turn.candidate: len(turn.block.latency_ns) for turn in record.turns}
    assert calls[0] == calls[1] == pytest.approx(100, rel=0.1)
    assert calls[2] == pytest.approx(4, abs=1)
    assert calls[3] == 3  # a median of fewer is none


@pytest.mark.parametrize("when", ["open", 1, 2, 3, 40])
def test_who_fails_leaves_and_costs_the_others_nothing(when):
    hall = Hall(100_000, 100_000, 103_000)
    hall.failing = {1: when}
    record = compare(hall, max_seconds=50.0)
    assert list(record.failures) == [1]
    assert str(record.failures[1]) in ("cannot be opened", "crashed")
    gone = max((turn.start for turn in record.turns if turn.candidate == 1), default=0)
    assert all(1 not in places for places in hall.opened[gone + 1 :])
    (found,) = (
        each
        for each in compare_all_pairs(record.compute_medians(3), ComparisonPlan())
        if {each.first, each.second} == {0, 2}
    )
    assert (found.kind, found.first) == ("faster", 0)


def test_with_one_left_there_is_nothing_to_compare():
    hall = Hall(100_000, 100_000)
    hall.failing = {0: "open"}
    record = compare(hall)
    assert len(hall.opened) == 1
    assert set(record.failures) == {0}


def test_with_none_left_it_ends_too():
    hall = Hall(100_000, 100_000)
    hall.failing = {0: "open", 1: 1}
    record = compare(hall)
    assert set(record.failures) == {0, 1}
    assert record.turns == []


@pytest.mark.parametrize("when", [1, 2])
def test_ctrl_c_before_anything_was_recorded_ends_it(when):
    hall = Hall(100_000, 100_000)
    hall.failing, hall.error = {1: when}, KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        compare(hall)


def test_ctrl_c_later_loses_nothing():
    hall = Hall(100_000, 100_000)
    hall.failing, hall.error = {1: 40}, KeyboardInterrupt()
    record = compare(hall)
    assert record.interrupted
    assert sum(turn.candidate == 1 for turn in record.turns) > 30
    assert record.seconds > 0
    assert not record.failures
