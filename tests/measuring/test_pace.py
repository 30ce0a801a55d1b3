from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.measuring.pace import Pace, run_paced
from nnpipe.testing.fakes import FakeClock, FakeSession

MS = 1_000_000
BATCH = {"x": np.zeros((1, 4), np.float32)}


@pytest.mark.parametrize(
    ("text", "period_ns"),
    [
        ("33ms", 33 * MS),
        (" 0.5 s ", 500 * MS),
        ("250us", 250_000),
        ("250µs", 250_000),
        ("1min", 60_000 * MS),
        ("30/s", 33_333_333),
        ("50Hz", 20 * MS),
        ("25 fps", 40 * MS),
        ("2/min", 30_000 * MS),
    ],
)
def test_a_pace_is_a_time_or_a_rate(text: str, period_ns: int) -> None:
    assert Pace.parse(text).period_ns == period_ns


@pytest.mark.parametrize(
    "text",
    ["", "33", "ms", "-3ms", "0/s", "33 parsecs", "1e3ms", "3ms 4ms", "1us", "2h", "9999min"],
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        Pace.parse(text)
    assert "\n" not in str(error.value)


@given(st.text(max_size=20))
def test_no_text_brings_the_reader_down(text: str) -> None:
    try:
        found = Pace.parse(text)
    except ConfigError:
        return
    assert 200_000 <= found.period_ns <= 3_600_000 * MS


@given(st.integers(200_000, 3_600_000 * MS))
def test_what_a_pace_is_called_is_read_as_that_pace(period_ns: int) -> None:
    assert Pace.parse(str(Pace(period_ns))).period_ns == pytest.approx(period_ns, rel=1e-3)


# nanoseconds; a process that stays awake until a turn looks at the clock all the time
STAMP = 2_000


class Cooling:
    """A clock, a way to sleep and a cost: a call takes longer where the one before lies far
    back, and after sleep.
    """

    def __init__(self, warm: int = 10_000, cold: int = 5_000, slept: int = 25_000) -> None:
        self.clock = FakeClock(step=STAMP)
        self.costs = warm, cold, slept
        self._slept = False
        self._last = 0

    def sleep(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1e9) + 60_000)  # who sleeps wakes up late
        self._slept = True

    def spend(self) -> None:
        warm, cold, slept = self.costs
        cost = (
            warm + (cold if self.clock.now - self._last > MS else 0) + (slept if self._slept else 0)
        )
        self.clock.advance(cost)
        self._slept, self._last = False, self.clock.now


def paced(cooling: Cooling, pace: str = "33ms", calls: int = 200, **given: Any) -> Any:
    session = FakeSession(spend=cooling.spend)
    return run_paced(
        session,
        [BATCH],
        Pace.parse(pace),
        calls=calls,
        clock=cooling.clock,
        sleep=cooling.sleep,
        **given,
    )


def test_a_penalty_for_calls_that_come_cold_is_read_exactly() -> None:
    found = paced(Cooling())
    series = found.series
    asleep = series["asleep"] == 1
    assert 0.1 < 1 - asleep.mean() < 0.4
    assert asleep[0]
    assert set(series["latency_ns"][asleep]) == {10_000 + 5_000 + 25_000 + STAMP}
    assert set(series["latency_ns"][~asleep]) == {10_000 + 5_000 + STAMP}
    assert found.missed == 0


def test_calls_come_at_their_turns_however_late_the_process_wakes() -> None:
    found = paced(Cooling(), calls=100)
    gaps = np.diff(found.series["scheduled_ns"])
    within_a_go = gaps[: 33_000 * MS // (33 * MS)]
    # one for each chunk of about a second
    assert np.count_nonzero(gaps == 33 * MS) >= len(gaps) - 4
    assert len(within_a_go) == len(gaps)
    late = found.series["start_ns"] - found.series["scheduled_ns"]
    assert (late >= 0).all()
    assert late.max() < 100_000


def test_an_inference_longer_than_the_pace_misses_turns_and_is_never_asked_twice_at_once() -> None:
    found = paced(Cooling(warm=80 * MS), calls=20)
    assert found.missed >= 2 * 18
    ends = found.series["start_ns"] + found.series["latency_ns"]
    assert (found.series["start_ns"][1:] >= ends[:-1]).all()


def test_batches_come_round_with_their_samples() -> None:
    batches = [{"x": np.zeros((n, 4), np.float32)} for n in (2, 3)]
    cooling = Cooling()
    found = run_paced(
        FakeSession(spend=cooling.spend),
        batches,
        Pace(MS),
        samples=[2, 1],
        calls=5,
        clock=cooling.clock,
        sleep=cooling.sleep,
    )
    assert found.series["samples"].tolist() == [2, 1, 2, 1, 2]


def test_what_the_session_does_not_take_is_refused_before_anything_runs() -> None:
    session = FakeSession()
    with pytest.raises(SpecMismatch):
        run_paced(session, [{"x": np.zeros((1, 5), np.float32)}], Pace(MS), calls=5)
    with pytest.raises(ConfigError):
        run_paced(session, [], Pace(MS), calls=5)
    assert session.calls == []


@pytest.mark.parametrize(
    ("pace", "seconds", "calls"),
    [
        ("33ms", None, 266),
        ("1ms", None, 1000),
        ("100ms", None, 100),
        ("10s", None, 12),
        ("1ms", 0.05, 50),
    ],
)
def test_a_pace_says_how_many_calls_are_enough(
    pace: str, seconds: float | None, calls: int
) -> None:
    assert Pace.parse(pace).calls(seconds) == calls
