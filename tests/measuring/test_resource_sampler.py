from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError
from nnpipe.measuring.loop import Window
from nnpipe.measuring.resource_sampler import UsageSampler
from nnpipe.testing.fakes import FakeSession, spin

MS = 1_000_000
COLUMNS = ["time_ns", "cpu_percent", "process_bytes", "machine_cpu_percent", "memory_bytes"]


def the_thread_is_gone() -> bool:
    return not any(thread.name == "nnpipe-sampler" for thread in threading.enumerate())


def test_what_is_watched_is_recorded_at_intervals() -> None:
    origin = time.perf_counter_ns()
    with UsageSampler(0.01) as sampler:
        assert not the_thread_is_gone()
        with sampler.record():
            time.sleep(0.3)
    series = sampler.series(origin)
    assert the_thread_is_gone()
    assert list(series.columns)[:5] == COLUMNS
    assert 3 <= len(series) <= 31
    assert (np.diff(series["time_ns"]) > 0).all()
    assert series["time_ns"][0] > 0
    assert series["time_ns"][-1] < time.perf_counter_ns() - origin
    assert (series["process_bytes"] > 5_000_000).all()
    assert (series["memory_bytes"] > series["process_bytes"] / 2).all()
    for column in ("cpu_percent", "machine_cpu_percent"):
        assert (series[column][~np.isnan(series[column])] >= 0).all()


def test_a_busy_process_shows_load_and_a_sleeping_one_none() -> None:
    loads = []
    for action in (lambda: spin(200 * MS), lambda: time.sleep(0.2)):
        with UsageSampler(0.05) as sampler, sampler.record():
            action()
        loads.append(float(np.median(sampler.series()["cpu_percent"])))
    assert loads[0] > 3 * loads[1] + 10  # other processes may take their part of a core


def test_load_counts_the_threads_of_the_process() -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            np.sort(np.arange(200_000)[::-1])

    thread = threading.Thread(target=work)
    with UsageSampler(0.1) as sampler:
        thread.start()
        try:
            with sampler.record():
                time.sleep(0.3)  # this thread does nothing
        finally:
            stop.set()
            thread.join()
    assert sampler.series()["cpu_percent"].max() > 10


def test_a_pause_leaves_no_trace() -> None:
    with UsageSampler(0.02) as sampler:
        with sampler.record():
            time.sleep(0.1)
        watched = len(sampler.series())
        paused = time.perf_counter_ns()
        spin(100 * MS)
        resumed = time.perf_counter_ns()
        assert len(sampler.series()) == watched
        with sampler.record():
            time.sleep(0.1)
    series = sampler.series()
    assert not ((series["time_ns"] > paused) & (series["time_ns"] < resumed)).any()
    # The busy pause would show as a load of half a core and more in the first observation after it.
    assert series["cpu_percent"][watched] < 45


def test_even_a_moment_gives_one_observation() -> None:
    with UsageSampler(10.0) as sampler:
        with sampler.record():
            spin(1 * MS)
        for _ in range(5):
            with sampler.record():
                spin(1 * MS)
    series = sampler.series()
    assert len(series) == 1
    assert series["cpu_percent"][0] > 0


def test_nothing_watched_gives_an_empty_series_with_all_columns() -> None:
    with UsageSampler(0.01) as sampler:
        time.sleep(0.05)
    assert len(sampler.series()) == 0
    assert list(sampler.series().columns)[:5] == COLUMNS


def test_pausing_twice_does_no_harm() -> None:
    with UsageSampler(10.0) as sampler:
        sampler.pause()
        sampler.resume()
        sampler.pause()
        sampler.pause()
    assert len(sampler.series()) == 1


@pytest.mark.parametrize("interval", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_interval_is_refused(interval: float) -> None:
    with pytest.raises(ConfigError, match="interval"):
        UsageSampler(interval)


class Failing(UsageSampler):
    def _record(self) -> None:
        raise OSError("the sensor is gone")


def watch_until_the_thread_fails() -> None:
    with Failing(0.01) as sampler:
        sampler.resume()
        sampler._thread.join(10)


def fail_after_the_thread_failed() -> None:
    with Failing(0.01) as sampler:
        sampler.resume()
        sampler._thread.join(10)
        raise ZeroDivisionError


def test_what_stops_the_thread_is_raised_in_the_end() -> None:
    with pytest.raises(OSError, match="sensor is gone"):
        watch_until_the_thread_fails()
    assert the_thread_is_gone()


def test_an_error_of_the_block_itself_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        fail_after_the_thread_failed()
    assert the_thread_is_gone()


def test_ctrl_c_while_measuring_ends_the_thread() -> None:
    calls: list[Any] = []

    def spend() -> None:
        calls.append(None)
        time.sleep(0.03)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with (
            UsageSampler(0.01) as sampler,
            sampler.record(),
            Window(FakeSession(spend=spend)) as window,
        ):
            window.run_chunk([{"x": np.zeros((1, 4), np.float32)}] * 5, [1] * 5)
    assert the_thread_is_gone()
