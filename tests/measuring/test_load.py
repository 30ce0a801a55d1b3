from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from installed import ImportedWhenUsed
from property_examples import examples

from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec
from nnpipe.measuring.load import Load, LoadResult, Until
from nnpipe.measuring.load_generator import (
    LoadGenerator,
    Poisson,
    ScheduledLoop,
    compute_half_width,
    create_wait,
    run_load,
)
from nnpipe.measuring.punctuality import Punctuality, compute_lateness
from nnpipe.testing.fakes import FakeClock, FakeSession

stats = ImportedWhenUsed("scipy.stats")

SERVER = Load(scenario="server", rate=1000)


def queries(count: int = 10, samples: int = 1, calls: int = 1) -> list[list[Batch]]:
    return [
        [{"x": np.full((samples, 4), i, np.float32)} for _ in range(calls)] for i in range(count)
    ]


def driven(
    service_ns: Iterable[int] | int, load: Load, until: Until, late_ns: int = 0, **given: Any
) -> tuple[LoadResult, FakeSession]:
    """Put a load on a session of known service times, on a clock of the test's own; waking up
    may be late.
    """
    clock = FakeClock(start=10**15)
    times: Iterator[int] = (
        iter(service_ns) if not isinstance(service_ns, int) else iter(lambda: service_ns, None)
    )
    session = FakeSession(spend=lambda: clock.advance(next(times)))

    def wait(until: int) -> None:
        clock.now = max(clock.now, until) + late_ns

    asked = given.pop("queries", None) or queries()
    return run_load(session, asked, load, until, clock=clock, wait=wait, **given), session


# -- the four scenarios -----------------------------------------------------------------------


def test_single_stream_sends_a_query_when_the_one_before_has_been_answered() -> None:
    found, session = driven([100, 200, 300], Load(), Until(queries=3))
    assert found.series["start_ns"].tolist() == [0, 100, 300]
    assert found.series["latency_ns"].tolist() == [100, 200, 300]
    assert found.series["samples"].tolist() == [1, 1, 1]
    assert session.calls == ["put", "run", "get"] * 3
    assert found.busy_ns == 600
    assert found.rate == pytest.approx(3 / 600e-9)


def test_putting_and_getting_are_part_of_a_query() -> None:
    clock = FakeClock()

    class Slow(FakeSession):
        def _put(self, batch: Batch) -> None:
            clock.advance(7)
            super()._put(batch)

        def _get(self) -> dict[str, np.ndarray]:
            clock.advance(5)
            return super()._get()

    found = run_load(
        Slow(spend=lambda: clock.advance(100)), queries(), Load(), Until(queries=4), clock=clock
    )
    assert found.series["latency_ns"].tolist() == [112] * 4


def test_a_multi_stream_query_lasts_until_all_its_samples_are_answered() -> None:
    multi = Load(scenario="multi-stream")
    whole, session = driven(100, multi, Until(queries=3), queries=queries(samples=8))
    assert whole.series["latency_ns"].tolist() == [100] * 3
    assert whole.series["samples"].tolist() == [8] * 3
    assert session.calls.count("run") == 3
    parts, session = driven(100, multi, Until(queries=3), queries=queries(samples=2, calls=4))
    assert parts.series["latency_ns"].tolist() == [400] * 3
    assert parts.series["samples"].tolist() == [8] * 3
    assert session.calls.count("run") == 12


def test_offline_all_samples_come_in_order_and_times_add_up() -> None:
    seen: list[float] = []

    class Seeing(FakeSession):
        def _put(self, batch: Batch) -> None:
            seen.append(float(batch["x"][0, 0]))
            super()._put(batch)

    clock = FakeClock()
    found = run_load(
        Seeing(spend=lambda: clock.advance(50)),
        queries(10, samples=4),
        Load(scenario="offline"),
        Until(queries=25),
        clock=clock,
    )
    assert seen == [i % 10 for i in range(25)]
    assert found.series["latency_ns"].sum() == found.busy_ns == 25 * 50
    assert found.sample_rate == pytest.approx(4 / 50e-9)


def test_offline_takes_what_a_session_streams() -> None:
    clock = FakeClock()

    class Overlapping(FakeSession):
        def _stream(self, batches: Iterable[Batch]) -> Iterator[dict[str, np.ndarray]]:
            held = list(batches)
            clock.advance(1000)
            for batch in held:
                clock.advance(10)
                yield {"y": batch["x"]}

    found = run_load(
        Overlapping(), queries(5), Load(scenario="offline"), Until(queries=6), warmup=1, clock=clock
    )
    # the first chunk is one call
    assert found.series["latency_ns"].tolist() == [1010, 1010, 10, 10, 10, 10]
    assert found.busy_ns == found.series["latency_ns"].sum()


# -- the server scenario ----------------------------------------------------------------------


def lindley(due: np.ndarray, service: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return when each query of a single queue is sent and answered (D. V. Lindley 1952)."""
    starts, ends, free = [], [], 0
    for at, takes in zip(due.tolist(), service.tolist(), strict=True):
        starts.append(max(at, free))
        free = starts[-1] + takes
        ends.append(free)
    return np.array(starts), np.array(ends)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 400), st.floats(10, 1e5), st.integers(0, 3_000_000))
def test_latency_counts_from_when_a_query_was_due(
    seed: int, count: int, rate: float, mean_ns: int
) -> None:
    service = np.random.default_rng(seed).integers(0, 2 * mean_ns + 1, count)
    found, _ = driven(
        service.tolist(), Load(scenario="server", rate=rate, seed=seed), Until(queries=count)
    )
    due = np.cumsum(Poisson(rate, seed)(count))
    starts, ends = lindley(due, service)
    scheduled = found.series["scheduled_ns"]
    np.testing.assert_array_equal(scheduled, due)
    np.testing.assert_array_equal(found.series["start_ns"], starts)
    np.testing.assert_array_equal(found.series["latency_ns"], ends - due)
    assert found.busy_ns == ends[-1]


def test_what_is_done_between_goes_makes_no_query_late() -> None:
    clock = FakeClock()
    session = FakeSession(spend=lambda: clock.advance(1000))

    def wait(until: int) -> None:
        clock.now = max(clock.now, until)

    with LoadGenerator(session, queries(), SERVER, clock=clock, wait=wait) as generator:
        for _ in range(30):
            generator.run_chunk(3)
            clock.advance(10**10)  # someone draws a progress bar
        found = generator.build_result("queries")
    due = np.cumsum(Poisson(1000, 0)(len(found.series)))
    _, ends = lindley(due, np.full(len(due), 1000))
    np.testing.assert_array_equal(found.series["latency_ns"], ends - due)
    assert found.busy_ns == ends[-1]
    punctuality = Punctuality.from_series(found.series)
    assert punctuality is not None
    assert punctuality.worst_ns == 0


def test_waiting_for_another_query_is_queueing_and_oversleeping_is_not() -> None:
    found, _ = driven(1_500_000, SERVER, Until(queries=500), late_ns=200_000)
    after, queued = compute_lateness(found.series)
    assert set(after[queued].tolist()) == {0}
    assert set(after[~queued].tolist()) == {200_000}
    punctuality = Punctuality.from_series(found.series)
    assert punctuality is not None
    assert punctuality.late == np.count_nonzero(~queued) > 0
    assert punctuality.queued == np.count_nonzero(queued) > 400
    assert punctuality.worst_ns == 200_000


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no slack of timers")
def test_linux_may_not_prolong_the_sleep_before_a_query_to_save_power() -> None:
    def slack_ns() -> int:
        return ctypes.CDLL(None).prctl(30, 0, 0, 0, 0)  # PR_GET_TIMERSLACK

    before, seen = slack_ns(), set()
    session = FakeSession(spend=lambda: seen.add(slack_ns()))
    run_load(session, queries(), SERVER, Until(queries=3))
    assert (seen, slack_ns()) == ({1}, before)


def test_nothing_is_late_where_nothing_was_scheduled() -> None:
    assert Punctuality.from_series(driven(10, Load(), Until(queries=3))[0].series) is None


def test_arrivals_are_a_poisson_process() -> None:
    gaps = Poisson(1000, seed=3)(20_000)
    assert stats.kstest(gaps / 1e6, "expon").pvalue > 0.01
    counts = np.bincount((np.cumsum(gaps) // 10_000_000).astype(int))[:-1]  # in 10 ms
    assert counts.mean() == pytest.approx(10, rel=0.05)
    assert counts.var() == pytest.approx(10, rel=0.15)


def test_the_seed_alone_fixes_the_schedule() -> None:
    in_pieces = Poisson(50, seed=1)
    pieces = np.concatenate([in_pieces(n) for n in (1, 10, 100)])
    np.testing.assert_array_equal(pieces, Poisson(50, seed=1)(111))
    assert (pieces != Poisson(50, seed=2)(111)).any()


def test_a_queue_that_was_left_is_told() -> None:
    found, _ = driven(10_000_000, SERVER, Until(seconds=1))
    assert found.ended == "seconds"
    assert 95 <= len(found.series) <= 101
    assert found.unanswered == pytest.approx(900, rel=0.15)
    assert found.rate == pytest.approx(100, rel=0.05)


def test_waiting_sleeps_and_then_looks() -> None:
    clock, slept = FakeClock(step=100), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(round(seconds * 1e9))

    wait = create_wait(clock, sleep)
    wait(2_000_000)
    assert slept == [pytest.approx(0.00194, rel=1e-3)]
    assert 2_000_000 <= clock.now < 2_000_300
    wait(2_040_000)
    assert len(slept) == 1
    assert 2_040_000 <= clock.now < 2_040_300
    wait(0)
    assert len(slept) == 1


def test_whether_something_waits_is_known_before_the_next_go() -> None:
    clock = FakeClock()
    loop = ScheduledLoop(
        lambda count: np.full(count, 100, np.int64),
        lambda until: setattr(clock, "now", max(until, clock.now)),
    )
    assert loop.idle
    for takes, idle in ((10, True), (250, False)):
        session = FakeSession(spend=lambda takes=takes: clock.advance(takes))  # type: ignore[misc]
        stamps = np.zeros(1, np.int64).data
        loop(session, [{"x": np.zeros((1, 4), np.float32)}], clock, stamps, stamps, None)
        assert loop.idle is idle


# -- when it ends -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "load", [Load(), Load(scenario="multi-stream"), SERVER, Load(scenario="offline")]
)
def test_it_ends_after_the_count_or_the_time_given(load: Load) -> None:
    found, _ = driven(1_000_000 if load.rate is None else 1000, load, Until(queries=777), warmup=3)
    assert (len(found.series), found.ended) == (777, "queries")
    found, _ = driven(1_000_000 if load.rate is None else 1000, load, Until(seconds=2), warmup=3)
    assert found.ended == "seconds"
    expected = (
        2000 if load.rate is None else np.searchsorted(np.cumsum(Poisson(1000, 0)(4000)), 2 * 10**9)
    )
    assert len(found.series) == expected


def test_whichever_end_comes_first_counts() -> None:
    assert driven(10**6, Load(), Until(seconds=1, queries=10))[0].ended == "queries"
    assert driven(10**6, Load(), Until(seconds=1, queries=10**6))[0].ended == "seconds"
    assert driven(10**6, Load(), Until(seconds=1, precision=0.5))[0].ended == "precision"


@pytest.mark.parametrize("load", [Load(), Load(scenario="server", rate=100)])
def test_it_ends_when_a_percentile_is_known_well_enough(load: Load) -> None:
    takes = (np.random.default_rng(0).gamma(4.0, 2.5e5, 10**6)).astype(int)
    counts = []
    for precision in (0.1, 0.05, 0.02):
        found, _ = driven(takes.tolist(), load, Until(precision=precision, share=0.9))
        assert found.ended == "precision"
        assert compute_half_width(found.series["latency_ns"], 0.9) <= precision
        counts.append(len(found.series))
    assert counts[0] >= 100
    assert counts[0] < counts[1] < counts[2] < 20_000


def test_a_percentile_that_a_sample_cannot_support_ends_nothing() -> None:
    found, _ = driven(1000, Load(), Until(precision=0.5, share=0.999))
    assert len(found.series) >= 2995


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"seconds": 0},
        {"queries": -1},
        {"precision": 0.0},
        {"seconds": float("nan")},
        {"queries": 1, "share": 1.0},
    ],
)
def test_an_end_that_never_comes_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Until(**wrong)


@pytest.mark.parametrize("wrong", [{"scenario": "server"}, {"rate": 5.0}, {"scenario": "x"}])
def test_a_load_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Load(**wrong)


# -- what is asked ----------------------------------------------------------------------------


def test_queries_are_drawn_at_random_from_a_seed() -> None:
    def asked(seed: int) -> list[float]:
        seen: list[float] = []
        session = FakeSession(function=lambda array: (seen.append(float(array[0, 0])), array)[1])
        run_load(
            session, queries(10), Load(seed=seed), Until(queries=300), clock=FakeClock(step=10)
        )
        return seen[-300:]

    assert asked(1) == asked(1) != asked(2)
    assert set(asked(1)) == set(range(10))


def test_kept_outputs_belong_to_their_queries() -> None:
    found, _ = driven(1000, Load(), Until(queries=5000), sample_outputs=True)
    assert 0 < len(found.sampled) <= 256
    assert all(outputs["y"][0, 0] == number for number, outputs in found.sampled)
    assert driven(1000, Load(), Until(queries=50))[0].sampled == ()


def test_only_samples_that_count_count() -> None:
    found, _ = driven(
        10, Load(), Until(queries=6), queries=queries(3, samples=8), samples=[5, 5, 5]
    )
    assert found.series["samples"].tolist() == [5] * 6


def test_wrong_queries_are_refused_before_the_first_runs() -> None:
    session = FakeSession()
    for wrong in ([], [[{"x": np.zeros((1, 5), np.float32)}]]):
        with pytest.raises((ConfigError, SpecMismatch)):
            run_load(session, wrong, Load(), Until(queries=1))
    with pytest.raises(ConfigError, match="one batch"):
        run_load(session, queries(calls=2), Load(scenario="offline"), Until(queries=1))
    assert session.calls == []


@pytest.mark.usefixtures("nothing_frozen")
def test_the_session_and_the_garbage_collector_are_as_before_whatever_happens() -> None:
    io = IOSpec((TensorSpec("x", (None, 4), "float32"),), (TensorSpec("y", (None, 4), "float32"),))
    left = 3

    def spend() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_load(FakeSession(io, spend=spend), queries(), Load(), Until(queries=10))
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
