from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from installed import ImportedWhenUsed

from nnpipe.core.errors import ConfigError
from nnpipe.measuring.early_stopping import compute_least_samples
from nnpipe.measuring.load_generator import Poisson
from nnpipe.measuring.max_rate import LatencyBound, MaxRate, describe, find_max_rate
from nnpipe.testing.fakes import FakeClock, FakeSession

stats = ImportedWhenUsed("scipy.stats")

QUERIES = [[{"x": np.full((1, 4), i, np.float32)}] for i in range(10)]


def searched(service: Callable[[], int], bound: str, **given: Any) -> MaxRate:
    clock = FakeClock()

    def wait(until: int) -> None:
        clock.now = max(clock.now, until)

    session = FakeSession(spend=lambda: clock.advance(service()))
    return find_max_rate(
        session, QUERIES, LatencyBound.parse(bound), clock=clock, wait=wait, **given
    )


def share_in_time(rate: float, service_ns: int, bound_ns: int) -> float:
    """Simulate a single queue with a fixed service time, by Lindley's recursion."""
    gaps = Poisson(rate, seed=99)(300_000)
    steps = np.concatenate([[0], np.cumsum(service_ns - gaps[1:])])
    waits = steps - np.minimum.accumulate(steps)
    return float(np.mean(waits + service_ns <= bound_ns))


@pytest.mark.parametrize(("bound", "share"), [("5ms@p99", 0.99), ("3ms@p90", 0.9)])
def test_the_rate_found_is_that_of_the_queue(bound: str, share: float) -> None:
    found = searched(lambda: 1_000_000, bound)
    assert found.rate is not None
    assert found.refused is not None
    bound_ns = LatencyBound.parse(bound).bound_ns
    assert share_in_time(found.rate, 1_000_000, bound_ns) > share
    # What is shown with 99 % confidence is somewhat below what would do.
    assert share_in_time(found.rate * 1.2, 1_000_000, bound_ns) < share
    assert f"p{100 * share:g} <= " in found.reason
    assert f"is kept at {found.rate:.4g} queries a second" in found.reason


def test_what_is_found_has_been_confirmed_with_other_arrivals_for_longer() -> None:
    found = searched(lambda: 1_000_000, "5ms@p99")
    last = found.trials[-1]
    assert (last.rate, last.verdict) == (found.rate, "kept")
    assert last.queries > 0.8 * last.rate * 4 * 2 * 5e-3 / 0.05
    assert len(found.confirmed.series) == last.queries
    assert "scheduled_ns" in found.confirmed.series
    assert any(trial.verdict != "kept" for trial in found.trials if trial.rate == found.refused)


def test_a_session_that_is_too_slow_by_itself_is_told_so() -> None:
    found = searched(lambda: 20_000_000, "10ms@p99")
    assert found.rate is None
    assert len(found.trials) == 1
    assert "p99 <= 10 ms is not kept even without load" in found.reason


@pytest.mark.slow
def test_an_outlier_now_and_then_may_be_too_many() -> None:
    random = np.random.default_rng(0)
    found = searched(
        lambda: 50_000_000 if random.random() < 0.02 else 100_000, "10ms@p99", most_seconds=20
    )
    assert found.rate is None
    found = searched(
        lambda: 50_000_000 if random.random() < 0.002 else 100_000, "10ms@p90", most_seconds=20
    )
    assert found.rate is not None


def test_what_was_luck_is_not_confirmed() -> None:
    """A session that becomes slow after a while keeps its bound in trials and not in the
    confirmation.
    """
    calls = 0

    def service() -> int:
        nonlocal calls
        calls += 1
        return 1_000_000 if calls < 12_000 else 2_000_000

    found = searched(service, "5ms@p99")
    assert found.rate is not None
    assert found.rate < 450
    assert sum(trial.verdict != "kept" for trial in found.trials[-6:]) >= 1


def test_progress_is_told_of_every_second() -> None:
    told: list[Any] = []

    def progress(items: Iterable[Any], what: str, total: int | None = None) -> Iterable[Any]:
        for item in items:
            told.append((what, item))
            yield item

    found = searched(lambda: 1_000_000, "5ms@p90", progress=progress)
    assert len(told) >= len(found.trials) - 1
    assert told[0] == ("the most queries a second with p90 <= 5 ms", "without load")


@pytest.mark.parametrize(
    ("queries", "over", "verdict"), [(459, 0, "kept"), (458, 0, "open"), (662, 1, "kept")]
)
def test_a_bound_is_kept_when_early_stopping_says_so(queries: int, over: int, verdict: str) -> None:
    assert LatencyBound(0.99, 1).compute_verdict(queries, over) == verdict
    assert (queries >= compute_least_samples(0.99, over)) == (verdict == "kept")


@pytest.mark.parametrize("queries", [10, 100, 1000])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_bound_is_broken_when_so_many_over_it_are_not_by_chance(
    queries: int, share: float
) -> None:
    for over in range(queries + 1):
        by_chance = stats.binom.sf(over - 1, queries, 1 - share)
        assert (LatencyBound(share, 1).compute_verdict(queries, over) == "broken") == (
            by_chance <= 0.01
        )


@pytest.mark.parametrize(
    ("text", "bound", "shown"),
    [
        ("10ms@p99", LatencyBound(0.99, 10_000_000), "p99 <= 10 ms"),
        ("10 ms", LatencyBound(0.99, 10_000_000), "p99 <= 10 ms"),
        ("1.5us@p99.9", LatencyBound(0.999, 1500), "p99.9 <= 1.5 µs"),
        ("2s@p50", LatencyBound(0.5, 2 * 10**9), "p50 <= 2 s"),
    ],
)
def test_bounds_are_read_and_shown(text: str, bound: LatencyBound, shown: str) -> None:
    found = LatencyBound.parse(text)
    assert found.bound_ns == bound.bound_ns
    assert found.share == pytest.approx(bound.share)
    assert describe(found) == shown


@pytest.mark.parametrize(
    "text", ["", "10", "10ms@99", "0ms", "10ms@p100", "10ms@p0", "-1ms", "10 m", "ms@p99"]
)
def test_what_is_no_bound_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="such as 10ms@p99"):
        LatencyBound.parse(text)
