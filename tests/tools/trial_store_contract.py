"""What every store of trials promises; a test module subclasses it and gives the fixture
``make``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from nnpipe.searching.trial_store import (
    EarlierTrial,
    LeaseLost,
    Proposal,
    SearchTrial,
    TrialResult,
    TrialStore,
)

Make = Callable[..., TrialStore]


def square(number: int) -> Proposal:
    return Proposal({"x": number}, {"from": "square"})


class Clock:
    """A clock that a test turns on."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class TrialStoreContract:
    """The contract of :class:`TrialStore`."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def make(self, clock: Clock) -> Iterator[Make]:
        """Return a function that makes an empty store with ``seconds``, ``repeats`` and
        ``clock``.
        """
        raise NotImplementedError

    def test_a_trial_goes_from_its_proposal_to_its_end(self, make: Make, clock: Clock) -> None:
        store = make(clock=clock)
        lease = store.lease("one", square, 5)
        assert lease is not None
        assert (lease.trial.number, lease.trial.configuration, lease.trial.state) == (
            0,
            {"x": 0},
            "running",
        )
        store.report(lease, 2, 0.5)
        store.report(lease, 1, 0.25)
        store.report(lease, 2, 0.75)
        clock.now += 3
        ended = store.finish(
            lease, TrialResult({"accuracy": 1}, {"accuracy": (0.5, 2)}, "0123abcd")
        )
        (trial,) = store.trials()
        assert replace(ended, reports=trial.reports) == trial
        assert (trial.intervals, trial.files) == ({"accuracy": (0.5, 2.0)}, "0123abcd")
        assert (trial.state, trial.values, trial.reports) == (
            "finished",
            {"accuracy": 1.0},
            ((1, 0.25), (2, 0.75)),
        )
        assert (trial.seconds, trial.notes, trial.worker) == (3.0, {"from": "square"}, "one")

    def test_it_fails_with_a_message_and_is_pruned_with_its_last_values(self, make: Make) -> None:
        store = make()
        for end in (
            lambda lease: store.fail(lease, "no memory"),
            lambda lease: store.prune(lease, {"loss": 2.0}),
        ):
            lease = store.lease("one", square, 5)
            assert lease is not None
            end(lease)
        failed, pruned = store.trials()
        assert (failed.state, failed.message, failed.values) == ("failed", "no memory", {})
        assert (pruned.state, pruned.values) == ("pruned", {"loss": 2.0})

    def test_there_are_never_more_trials_than_the_limit(self, make: Make) -> None:
        store = make()
        numbers: list[int] = []

        def work(name: str) -> None:
            while lease := store.lease(name, square, 20):
                numbers.append(lease.trial.number)
                store.finish(lease, {"y": 0.0})

        workers = [threading.Thread(target=work, args=(f"{i}",)) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        assert sorted(numbers) == list(range(20))
        assert [trial.state for trial in store.trials()] == ["finished"] * 20

    def test_an_expired_trial_goes_to_the_next_worker_and_the_first_one_is_refused(
        self, make: Make, clock: Clock
    ) -> None:
        store = make(seconds=10.0, clock=clock)
        first = store.lease("one", square, 1)
        assert first is not None
        store.report(first, 1, 0.5)
        clock.now += 9
        assert store.lease("two", square, 1) is None
        store.renew(first)
        clock.now += 9
        assert store.lease("two", square, 1) is None
        clock.now += 2
        second = store.lease("two", square, 1)
        assert second is not None
        assert (second.trial.number, second.trial.configuration) == (0, {"x": 0})
        assert second.fence > first.fence
        assert second.trial.reports == ()  # it starts anew
        for late in (
            lambda: store.renew(first),
            lambda: store.report(first, 1, 1.0),
            lambda: store.finish(first, {"y": 1.0}),
            lambda: store.prune(first),
            lambda: store.fail(first, "late"),
        ):
            with pytest.raises(LeaseLost):
                late()
        store.finish(second, {"y": 2.0})
        with pytest.raises(LeaseLost):
            store.finish(second, {"y": 3.0})
        assert [trial.values for trial in store.trials()] == [{"y": 2.0}]

    def test_a_worker_that_dies_before_its_proposal_loses_no_number(
        self, make: Make, clock: Clock
    ) -> None:
        store = make(seconds=10.0, clock=clock)

        def dies(number: int) -> Proposal:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.lease("one", dies, 1)
        clock.now += 11
        lease = store.lease("two", square, 1)
        assert lease is not None
        assert (lease.trial.number, lease.trial.configuration) == (0, {"x": 0})

    def test_those_that_have_not_ended_are_told(self, make: Make) -> None:
        store = make()
        store.enqueue({"x": 7})
        first, second = store.lease("one", square, 5), store.lease("two", square, 5)
        assert first is not None
        assert second is not None
        store.enqueue({"x": 9})
        store.finish(first, {"y": 1.0}, "all is well")
        assert [(trial.number, trial.state) for trial in store.list_unended()] == [
            (1, "running"),
            (2, "waiting"),
        ]
        assert store.trials()[0].message == "all is well"

    def test_no_two_trials_have_the_same_configuration(self, make: Make) -> None:
        store = make()
        assert store.enqueue({"a": 1, "x": 2})
        assert not store.enqueue({"x": 2, "a": 1})
        waiting = store.lease("one", square, 3)
        assert waiting is not None
        assert waiting.trial.configuration == {"a": 1, "x": 2}
        proposals = iter([{"a": 1, "x": 2}, {"x": 1}])
        lease = store.lease("one", lambda number: Proposal(next(proposals)), 3)
        assert lease is not None
        assert (lease.trial.number, lease.trial.configuration) == (1, {"x": 1})

    def test_they_may_where_repeats_are_asked_for(self, make: Make) -> None:
        store = make(repeats=True)
        for _ in range(3):
            assert store.lease("one", lambda number: Proposal({"x": 1}), 3) is not None
        assert [trial.configuration for trial in store.trials()] == [{"x": 1}] * 3

    def test_a_search_ends_where_nothing_is_left_to_propose(self, make: Make) -> None:
        store = make()
        lease = store.lease("one", square, 5)
        assert lease is not None
        before = store.list_changes(0).version
        assert store.lease("two", lambda number: None, 5) is None
        assert [trial.number for trial in store.trials()] == [0]
        store.finish(lease, {"y": 0.0})
        assert [trial.number for trial in store.list_changes(before).trials] == [0]

    def test_since_returns_what_changed(self, make: Make) -> None:
        store = make()
        leases = [store.lease("one", square, 3) for _ in range(3)]
        seen = store.list_changes(0)
        assert [trial.number for trial in seen.trials] == [0, 1, 2]
        assert store.list_changes(seen.version).trials == ()
        assert leases[1] is not None
        store.report(leases[1], 1, 0.5)
        (changed,) = store.list_changes(seen.version).trials
        assert isinstance(changed, SearchTrial)
        assert (changed.number, changed.reports) == (1, ((1, 0.5),))
        assert changed.version > seen.version

    def test_nobody_waits_for_a_worker_that_is_known_to_be_dead(self, make: Make) -> None:
        store = make()
        dead, other = (store.lease(name, square, 2) for name in ("dead", "other"))
        assert dead is not None
        assert store.release("dead") == 1
        lease = store.lease("new", square, 2)
        assert lease is not None
        assert (lease.trial.number, lease.fence) == (dead.trial.number, dead.fence + 1)
        with pytest.raises(LeaseLost):
            store.finish(dead, {"y": 0.0})
        assert store.lease("new", square, 2) is None  # the other worker goes on
        assert other is not None
        store.finish(other, {"y": 0.0})

    def test_what_was_tried_elsewhere_is_known_and_does_not_count(self, make: Make) -> None:
        store = make()
        assert store.enqueue({"x": 7})
        earlier = [EarlierTrial({"x": x}, {"y": float(x)}, "run 1") for x in (5, 6, 6, 7)]
        assert store.take_over(earlier) == 2
        assert store.take_over(earlier) == 0
        waiting, *taken = store.trials()
        assert waiting.state == "waiting"
        assert [(trial.state, trial.values, trial.origin) for trial in taken] == [
            ("finished", {"y": 5.0}, "run 1"),
            ("finished", {"y": 6.0}, "run 1"),
        ]
        proposals = iter(range(5, 10))
        found = []
        while lease := store.lease("one", lambda number: Proposal({"x": next(proposals)}), 3):
            found.append(lease.trial.configuration)
            store.finish(lease, {"y": 0.0})
        assert found == [{"x": 7}, {"x": 8}, {"x": 9}]
