from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError, NNPipeError, SpecMismatch
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch
from nnpipe.measuring.loop import Clock, Window
from nnpipe.measuring.series import Series
from nnpipe.testing.fakes import FakeClock, FakeSession, spin


def some(count: int, samples: int = 1) -> list[dict[str, np.ndarray]]:
    return [{"x": np.full((samples, 4), i, np.float32)} for i in range(count)]


def measure(
    session: InferenceSession,
    batches: Sequence[Batch],
    *,
    warmup: int = 0,
    clock: Clock = time.perf_counter_ns,
    consume: Callable[[int, dict[str, np.ndarray]], object] | None = None,
    **until: Any,
) -> Series:
    """Run every batch once, then go round them again until there are calls and seconds enough."""
    with Window(session, clock) as window:
        samples = window.check(batches)
        window.warm_up(batches, warmup)
        outputs = window.run_chunk(batches, samples, keep=consume is not None)
        window.repeat(batches, samples, **until)
        for number, found in enumerate(outputs):
            assert consume is not None
            consume(number, found)
        return window.series()


@pytest.fixture(autouse=True)
def _garbage_collection_ends_as_it_began() -> Iterator[None]:
    assert gc.isenabled()
    yield
    assert gc.isenabled()


# -- what is timed ----------------------------------------------------------------------------


class Costly(FakeSession):
    """Every step takes a known time on a clock of the test's own."""

    def __init__(self, clock: FakeClock, put: int, run: int, get: int) -> None:
        super().__init__(spend=lambda: clock.advance(run))
        self.clock, self.put_ns, self.get_ns = clock, put, get

    def _put(self, batch: Batch) -> None:
        self.clock.advance(self.put_ns)
        super()._put(batch)

    def _get(self) -> dict[str, np.ndarray]:
        self.clock.advance(self.get_ns)
        return super()._get()


@given(
    st.integers(0, 10**12),
    st.integers(0, 10**9),
    st.integers(1, 10**9),
    st.integers(0, 10**9),
    st.integers(1, 50),
)
def test_the_latency_is_that_of_the_run_alone(
    start: int, put: int, run: int, get: int, count: int
) -> None:
    clock = FakeClock(start)
    series = measure(Costly(clock, put, run, get), some(count), clock=clock)
    assert series["latency_ns"].tolist() == [run] * count
    assert series["start_ns"].tolist() == [put + i * (put + run + get) for i in range(count)]
    assert series["samples"].tolist() == [1] * count
    assert {column.dtype for column in series.columns.values()} == {np.dtype(np.int64)}


def test_a_call_costs_two_looks_at_the_clock() -> None:
    looks = []
    for count in (10, 19):
        clock = FakeClock(step=1)
        measure(FakeSession(), some(count), clock=clock)
        looks.append(clock.looks)
    assert looks[1] - looks[0] == 2 * 9


def test_a_real_wait_is_measured_with_a_real_clock() -> None:
    series = measure(FakeSession(spend=lambda: spin(2_000_000)), some(5))
    assert (series["latency_ns"] >= 2_000_000).all()
    assert np.median(series["latency_ns"]) < 20_000_000
    assert (np.diff(series["start_ns"]) >= series["latency_ns"][:-1]).all()
    assert series["start_ns"][0] >= 0


def test_every_call_is_put_run_get_in_order() -> None:
    session = FakeSession()
    measure(session, some(3), warmup=2)
    assert session.calls == ["put", "run", "get"] * 5


def test_warm_up_runs_are_not_recorded() -> None:
    clock = FakeClock()
    costs = iter([100, 100, 100, 7, 7])
    series = measure(
        FakeSession(spend=lambda: clock.advance(next(costs))), some(2), warmup=3, clock=clock
    )
    assert series["latency_ns"].tolist() == [7, 7]
    assert series["start_ns"].tolist() == [0, 7]


def test_samples_are_counted_by_batch() -> None:
    assert measure(FakeSession(), [*some(1, samples=8), *some(1, samples=3)])[
        "samples"
    ].tolist() == [8, 3]


def test_calls_that_settle_the_caches_are_not_recorded() -> None:
    seen: list[float] = []

    class Seeing(FakeSession):
        def _put(self, batch: Batch) -> None:
            seen.append(float(batch["x"][0, 0]))
            super()._put(batch)

    found: list[float] = []
    series = measure(
        Seeing(), some(60), consume=lambda _, outputs: found.append(float(outputs["y"][0, 0]))
    )
    assert len(series) == 60
    assert seen == [57, 58, 59, *range(60)]
    assert found == list(range(60))


# -- how long ---------------------------------------------------------------------------------


def test_without_more_wishes_each_batch_runs_once() -> None:
    assert len(measure(FakeSession(), some(7))) == 7


@pytest.mark.parametrize("calls", [1, 5, 6, 23])
def test_batches_are_gone_round_until_there_are_calls_enough(calls: int) -> None:
    session = FakeSession()
    assert len(measure(session, some(5), min_calls=calls)) == max(calls, 5)


def test_batches_are_gone_round_until_there_is_time_enough() -> None:
    clock = FakeClock()
    # 1 µs at 100 ns a call
    series = measure(Costly(clock, 30, 50, 20), some(5), min_seconds=1e-6, clock=clock)
    assert len(series) == 10


def test_the_longer_wish_counts() -> None:
    clock = FakeClock()
    assert (
        len(measure(Costly(clock, 0, 100, 0), some(5), min_calls=12, min_seconds=1e-6, clock=clock))
        == 12
    )


def test_a_bound_on_calls_ends_any_repetition() -> None:
    # a clock that stands still would never be satisfied
    with Window(FakeSession(), FakeClock()) as window:
        window.run_chunk(some(4), [1] * 4)
        window.repeat(some(4), [1] * 4, min_seconds=1, max_calls=10)
        assert window.calls == 10


def test_goes_share_one_timeline() -> None:
    clock = FakeClock(start=1000)
    with Window(Costly(clock, 0, 10, 0), clock) as window:
        window.run_chunk(some(2), [1, 1])
        clock.advance(500)
        window.run_chunk(some(1), [1])
        assert window.origin_ns == 1000
        assert window.busy_ns == 30
        assert window.series()["start_ns"].tolist() == [0, 10, 520]


def test_a_window_in_which_nothing_ran_is_empty() -> None:
    with Window(FakeSession()) as window:
        assert len(window.series()) == 0


# -- outputs ----------------------------------------------------------------------------------


def test_outputs_come_with_the_number_of_their_batch_and_once_each() -> None:
    found: dict[int, float] = {}

    def consume(number: int, outputs: dict[str, np.ndarray]) -> None:
        assert number not in found
        assert gc.isenabled()
        found[number] = float(outputs["y"][0, 0])

    measure(FakeSession(), some(5), min_calls=20, consume=consume)
    assert found == {i: float(i) for i in range(5)}


def test_outputs_that_nobody_wants_are_not_kept() -> None:
    with Window(FakeSession()) as window:
        assert window.run_chunk(some(3), [1] * 3, keep=False) == []


# -- what is refused --------------------------------------------------------------------------


def test_all_batches_are_checked_before_the_first_runs() -> None:
    session = FakeSession()
    for wrong in (
        {"x": np.zeros((1, 5), np.float32)},
        {"x": np.zeros((1, 4))},
        {"z": np.zeros((1, 4), np.float32)},
    ):
        with pytest.raises(SpecMismatch):
            measure(session, [*some(3), wrong, *some(2)])
    assert session.calls == []


def test_no_batch_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="no batch"):
        measure(FakeSession(), [])


def test_a_closed_session_is_not_run() -> None:
    session = FakeSession()
    session.close()
    with pytest.raises(NNPipeError, match="closed"):
        measure(session, some(1))


def test_the_session_can_be_used_afterwards() -> None:
    session = FakeSession()
    measure(session, some(3))
    assert session.get()["y"][0, 0] == 2  # the last batch's
    assert session.infer(some(2)[1])["y"][0, 0] == 1


# -- garbage ----------------------------------------------------------------------------------


def test_garbage_is_collected_before_and_left_alone_while_measuring() -> None:
    class Node:
        def __init__(self) -> None:
            self.itself = self

    before = weakref.ref(Node())
    alive: list[tuple[bool, bool]] = []
    collections = gc.get_stats()[0]["collections"]
    during = 0

    def spend() -> None:
        nonlocal during
        _ = [[] for _ in range(5000)]  # would set a collection off
        alive.append((gc.isenabled(), before() is None))
        during = gc.get_stats()[0]["collections"] - collections

    measure(FakeSession(spend=spend), some(3))
    assert alive == [(False, True)] * 3
    assert during == 0


def test_garbage_collection_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        measure(FakeSession(), some(2))
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.usefixtures("nothing_frozen")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_in_the_window_leaves_everything_as_it_was(error: type[BaseException]) -> None:
    states: list[bool] = []

    def spend() -> None:
        states.append(gc.isenabled())
        if len(states) == 3:
            raise error

    with pytest.raises(error):
        measure(FakeSession(spend=spend), some(5))
    assert states == [False] * 3
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_what_someone_else_froze_stays_frozen(
    monkeypatch: pytest.MonkeyPatch, counting_frozen_objects: Callable[[], int]
) -> None:
    monkeypatch.setattr(gc, "get_freeze_count", counting_frozen_objects)
    frozen = gc.get_freeze_count()
    measure(FakeSession(), some(2))
    assert gc.get_freeze_count() >= frozen - 100 > 0  # objects that die leave
