"""Counters are read where the system has them, and left out where not."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from pathlib import Path

import pytest

from nnpipe.measuring.counters import (
    ClockRate,
    count_involuntary_switches,
    measure_ruler_ns,
    read_clock_and_wall,
    read_counters,
)


def put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_a_linux_machine_tells_of_waiting_and_throttling(tmp_path):
    cpus = "sys/devices/system/cpu"
    put(
        tmp_path,
        "proc/pressure/cpu",
        "some avg10=0.63 avg60=4.43 avg300=2.59 total=17122597\nfull total=9\n",
    )
    put(tmp_path, "proc/self/cgroup", "0::/a.slice/b.scope\n")
    put(
        tmp_path,
        "sys/fs/cgroup/a.slice/cpu.stat",
        "usage_usec 5\nnr_throttled 3\nthrottled_usec 1500\n",
    )
    put(tmp_path, "sys/fs/cgroup/a.slice/b.scope/cpu.stat", "usage_usec 5\nthrottled_usec 20\n")
    for core, kind, count in ((0, "core", 3), (0, "package", 4), (1, "core", 5)):
        put(tmp_path, f"{cpus}/cpu{core}/thermal_throttle/{kind}_throttle_count", f"{count}\n")
    found = read_counters(tmp_path)
    assert found["cpu_waiting_ns"] == 17_122_597_000
    assert found["quota_throttled_ns"] == 1_520_000
    assert found["thermal_throttles"] == 12


def test_the_older_control_groups_are_understood(tmp_path):
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.stat", "nr_periods 1\nnr_throttled 3\nthrottled_time 77\n")
    assert read_counters(tmp_path)["quota_throttled_ns"] == 77


@pytest.mark.parametrize("text", ["", "some avg10=1", "some total=", "some total=x"])
def test_what_cannot_be_read_is_left_out(tmp_path, text):
    put(tmp_path, "proc/pressure/cpu", text)
    assert (
        not {"cpu_waiting_ns", "quota_throttled_ns", "thermal_throttles"}
        & read_counters(tmp_path).keys()
    )


def test_counters_of_this_machine_only_grow():
    before, after = read_counters(), read_counters()
    assert before.keys() == after.keys()
    assert all(after[name] >= before[name] for name in before if name != "ruler_ns")
    assert after["clock_ns"] > before["clock_ns"]
    assert 1_000 < measure_ruler_ns() < 10**9


def test_clock_and_wall_are_read_at_one_moment_however_slow_a_reading_may_be():
    ticks = itertools.chain([0, 90_000, 100_000, 100_100, 200_000, 300_000, 400_000, 500_000])
    walls = itertools.count(1_000, 1_000)
    moment, wall = read_clock_and_wall(lambda: next(ticks), lambda: next(walls))
    assert (moment, wall) == (100_050, 2_000)


def test_a_thread_that_shares_its_core_loses_it():
    before = count_involuntary_switches()
    if sys.platform == "win32":
        assert before is None
        return
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    deadline = time.monotonic() + 0.05
    while time.monotonic() < deadline:
        pass
    stop.set()
    thread.join()
    assert count_involuntary_switches() >= before


def test_the_clock_rate_is_that_of_the_core_a_thread_runs_on(tmp_path):
    fields = " ".join(["S"] + [str(number) for number in range(4, 39)] + ["3", "0"])
    put(tmp_path, "proc/self/task/77/stat", f"77 (a name) with) spaces) {fields}\n")
    put(tmp_path, "sys/devices/system/cpu/cpu3/cpufreq/scaling_cur_freq", "2850123\n")
    rate = ClockRate(77, tmp_path)
    assert rate.known
    assert rate.read() == pytest.approx(2850.123)
    (tmp_path / "sys/devices/system/cpu/cpu3/cpufreq/scaling_cur_freq").write_text("<unknown>\n")
    assert rate.read() is None


def test_a_machine_without_a_driver_has_no_clock_rate(tmp_path):
    assert not ClockRate(1, tmp_path).known
