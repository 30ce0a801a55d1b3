from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnpipe.core.tensors import Batch
from nnpipe.measuring.audit import Audit, audit_caching, audit_outputs
from nnpipe.measuring.load import Load, Scenario, Until
from nnpipe.testing.fakes import FakeClock, FakeSession

SERVICE_NS = 1_000_000


def batches(count: int = 120, seed: int = 0) -> list[Batch]:
    return list(np_batches(np.random.default_rng(seed), count))


def np_batches(random: np.random.Generator, count: int) -> Any:
    return ({"x": random.standard_normal((1, 4)).astype(np.float32)} for _ in range(count))


class Timed(FakeSession):
    """Takes a known time for each run, on the test's clock, or less where it remembers."""

    def __init__(
        self, clock: FakeClock, takes: Callable[[np.ndarray], int] = lambda array: SERVICE_NS
    ) -> None:
        super().__init__()
        self.clock, self.takes = clock, takes

    def _run(self) -> None:
        self.clock.advance(self.takes(self._inputs[0]))
        super()._run()


# -- outputs under load -----------------------------------------------------------------------


def outputs_audited(
    session: FakeSession, clock: FakeClock, scenario: Scenario = "single-stream", **given: Any
) -> Audit:
    load = Load(scenario=scenario, rate=500 if scenario == "server" else None)

    def wait(until: int) -> None:
        clock.now = max(clock.now, until)

    queries = given.pop("queries", None) or [[batch] for batch in batches(50)]
    return audit_outputs(
        session, queries, load, Until(queries=300), clock=clock, wait=wait, **given
    )


class Different(Timed):
    """Answers at random once it has been asked often in a short time, as when speed is measured."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.runs = 0

    def _run(self) -> None:
        super()._run()
        self.runs += 1
        if 100 < self.runs < 320:
            self._outputs = [np.zeros_like(array) for array in self._outputs]


@pytest.mark.parametrize("scenario", ["single-stream", "multi-stream", "server", "offline"])
def test_a_session_that_answers_differently_under_load_is_caught(scenario: Scenario) -> None:
    clock = FakeClock()
    found = outputs_audited(Different(clock), clock, scenario)
    assert found.verdict == "failed"
    assert "sampled under load are not those given when asked calmly" in found.reason
    assert found.figures["different"] > 0


@pytest.mark.parametrize("scenario", ["single-stream", "multi-stream", "server", "offline"])
def test_an_honest_session_passes(scenario: Scenario) -> None:
    clock = FakeClock()
    found = outputs_audited(Timed(clock), clock, scenario)
    assert (found.verdict, found.figures["largest_difference"]) == ("passed", 0.0)
    assert found.figures["compared"] >= 30


def test_outputs_of_several_calls_are_compared_too() -> None:
    clock = FakeClock()
    queries = [batches(3, seed) for seed in range(20)]
    assert outputs_audited(Timed(clock), clock, "multi-stream", queries=queries).verdict == "passed"
    assert (
        outputs_audited(Different(clock), clock, "multi-stream", queries=queries).verdict
        == "failed"
    )


def test_a_session_that_mixes_answers_up_under_load_is_caught() -> None:
    clock = FakeClock()

    class Stale(Timed):
        runs = 0

        def _run(self) -> None:
            before = self._outputs
            super()._run()
            self.runs += 1
            if 60 < self.runs < 330 and before:
                self._outputs = before

    assert outputs_audited(Stale(clock), clock).verdict == "failed"


@pytest.mark.parametrize(("off", "verdict"), [(1e-6, "passed"), (0.05, "failed")])
def test_real_numbers_may_differ_by_rounding_only(off: float, verdict: str) -> None:
    clock = FakeClock()

    class Near(Timed):
        runs = 0

        def _run(self) -> None:
            super()._run()
            self.runs += 1
            if 50 < self.runs <= 360:
                self._outputs = [(array * (1 + off)).astype(array.dtype) for array in self._outputs]

    assert outputs_audited(Near(clock), clock).verdict == verdict


def test_of_a_session_that_is_never_the_same_nothing_can_be_told() -> None:
    clock = FakeClock()
    noise = np.random.default_rng(0)

    class Noisy(Timed):
        def _run(self) -> None:
            super()._run()
            self._outputs = [
                array + noise.standard_normal(array.shape).astype(np.float32)
                for array in self._outputs
            ]

    assert outputs_audited(Noisy(clock), clock).verdict == "unknown"


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_numbers_that_are_none_are_not_passed_over(broken: float) -> None:
    clock = FakeClock()

    class Broken(Timed):
        runs = 0

        def _run(self) -> None:
            super()._run()
            self.runs += 1
            if 50 < self.runs <= 360:
                self._outputs = [np.full_like(array, broken) for array in self._outputs]

    found = outputs_audited(Broken(clock), clock)
    assert found.verdict == "failed"
    assert found.to_json()["largest_difference"] is None


# -- caching ----------------------------------------------------------------------------------


def by_content(array: np.ndarray) -> Any:
    return array.tobytes()


def by_place(array: np.ndarray) -> Any:
    return array.ctypes.data


@pytest.mark.parametrize("key", [by_content, by_place])
@pytest.mark.parametrize("most", [1, 10, 10**6])
def test_a_session_that_remembers_answers_is_caught(
    key: Callable[[np.ndarray], Any], most: int
) -> None:
    clock, known = FakeClock(), dict[Any, None]()

    def takes(array: np.ndarray) -> int:
        hit = key(array) in known
        known[key(array)] = None
        while len(known) > most:
            del known[next(iter(known))]
        return SERVICE_NS // 5 if hit else SERVICE_NS

    found = audit_caching(Timed(clock, takes), batches(), clock=clock)
    assert found.verdict == "failed"
    assert found.figures["ratio"] == pytest.approx(0.2)
    assert "remembered" in found.reason


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
def test_an_honest_session_whose_time_varies_passes(noise: float) -> None:
    clock, random = FakeClock(), np.random.default_rng(0)
    session = Timed(clock, lambda _: int(SERVICE_NS * np.exp(noise * random.standard_normal())))
    found = audit_caching(session, batches(400), clock=clock)
    assert found.verdict == "passed"
    assert found.figures["interval"][0] <= found.figures["ratio"] <= found.figures["interval"][1]


def test_samples_that_are_slow_or_fast_by_themselves_are_no_caching() -> None:
    clock = FakeClock()
    session = Timed(clock, lambda array: SERVICE_NS * (1 + int(array[0, 0] > 0)))
    assert audit_caching(session, batches(600), clock=clock).verdict == "passed"


def test_noise_that_hides_everything_is_said() -> None:
    clock, random = FakeClock(), np.random.default_rng(1)
    session = Timed(clock, lambda _: int(SERVICE_NS * np.exp(2 * random.standard_normal())))
    assert audit_caching(session, batches(30), clock=clock).verdict == "unknown"


def test_no_batch_serves_twice_but_to_be_repeated() -> None:
    clock, seen = FakeClock(), list[bytes]()

    def takes(array: np.ndarray) -> int:
        seen.append(array.tobytes())
        return SERVICE_NS

    audit_caching(Timed(clock, takes), batches(100), warmup=3, clock=clock)
    stretches = [key for key, _ in itertools.groupby(seen)]
    assert len(stretches) == len(set(stretches))
    assert len(set(stretches)) > 90


@pytest.mark.parametrize("count", [1, 5, 12])
def test_too_few_different_samples_are_said(count: int) -> None:
    clock = FakeClock()
    found = audit_caching(Timed(clock), batches(count) * 20, clock=clock)
    assert (found.verdict, found.reason) == (
        "unknown",
        f"needs 13 different samples, there are {count}",
    )


def test_it_stops_after_a_while() -> None:
    clock = FakeClock()
    found = audit_caching(Timed(clock), batches(400), most_seconds=0.5, clock=clock)
    assert clock.now < 0.55e9
    assert found.verdict == "passed"
    assert (
        audit_caching(Timed(clock), batches(400), most_seconds=1e-3, clock=clock).verdict
        == "unknown"
    )
