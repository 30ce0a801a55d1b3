"""System counters during a measurement: context switches, waiting, throttling, and two clocks.

They are read before and after a measurement, or by the sampler during it.
Counters that a system does not have are left out.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

_ROUNDS, _STEPS = 30, 5000


def counters(root: Path = Path("/")) -> dict[str, int]:
    """Read increasing counters, the clocks, and the present duration of a fixed piece of work.

    Parameters
    ----------
    root
        The folder of ``/proc`` and ``/sys``; tests give their own.

    Returns
    -------
    dict
        ``clock_ns`` and ``wall_ns`` (the monotonic clock and the time of day at
        the same moment), ``ruler_ns`` (the duration of the fixed work), and, if
        the system has them, ``steal_ns`` (time that the host took from this
        virtual machine), ``cpu_waiting_ns`` (time in which some task waited for a
        processor), ``quota_throttled_ns`` (time in which the container's CPU limit
        stopped the process) and ``thermal_throttles`` (how often a processor
        reduced its speed).
    """
    found = {"ruler_ns": ruler_ns()}
    found["clock_ns"], found["wall_ns"] = clock_and_wall()
    with contextlib.suppress(OSError, AttributeError):
        found["steal_ns"] = round(psutil.cpu_times().steal * 1e9)
    waiting = _field(root / "proc/pressure/cpu", "total=")
    if waiting is not None:
        found["cpu_waiting_ns"] = 1000 * waiting
    held_up = _quota_throttled_ns(root)
    if held_up is not None:
        found["quota_throttled_ns"] = held_up
    throttles = [
        _number(path) for path in root.glob("sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_count")
    ]
    if throttles:
        found["thermal_throttles"] = sum(count for count in throttles if count is not None)
    return found


def clock_and_wall(
    clock: Callable[[], int] = time.perf_counter_ns, wall: Callable[[], int] = time.time_ns
) -> tuple[int, int]:
    """Read a clock and the time of day at the same moment, in nanoseconds; the closest of a few attempts is used."""
    attempts = []
    for _ in range(4):
        before, time_of_day, after = clock(), wall(), clock()
        attempts.append((after - before, (before + after) // 2, time_of_day))
        if 0 <= after - before < 5_000:
            break
    _, moment, time_of_day = min(attempts, key=lambda attempt: abs(attempt[0]))
    return moment, time_of_day


def ruler_ns() -> int:
    """Return the least time of 30 runs of a fixed piece of work of about 0.1 ms, to show the processor's speed."""
    least = 1 << 62
    for _ in range(_ROUNDS):
        start = time.perf_counter_ns()
        total = 0
        for step in range(_STEPS):
            total += step * step
        least = min(least, time.perf_counter_ns() - start)
    return least


def involuntary_switches() -> int | None:
    """Return the number of involuntary context switches of this process; ``None`` if the system does not count them."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


class ClockRate:
    """The clock rate of the core on which a thread runs, read from the kernel's driver.

    Parameters
    ----------
    thread
        The kernel's ID of the thread, by default the calling one.
    root
        The folder of ``/proc`` and ``/sys``; tests give their own.
    """

    def __init__(self, thread: int | None = None, root: Path = Path("/")) -> None:
        self._status = root / f"proc/self/task/{thread or threading.get_native_id()}/stat"
        self._cores = root / "sys/devices/system/cpu"
        self.known = self.read() is not None

    def read(self) -> float | None:
        """Return the clock rate in MHz, or ``None`` without a driver, as in most virtual machines."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in brackets may contain spaces; the 39th field is the core.
            core = int(self._status.read_text("utf-8", "replace").rpartition(")")[2].split()[36])
            return int((self._cores / f"cpu{core}/cpufreq/scaling_cur_freq").read_text("ascii")) / 1000
        return None


def _quota_throttled_ns(root: Path) -> int | None:
    """Return the total time for which this process's control group and its parents were throttled."""
    base = root / "sys/fs/cgroup"
    own = ""
    with contextlib.suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text("utf-8", "replace").splitlines()
        own = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    parts = [part for part in own.split("/") if part not in ("", "..")]
    groups = [base.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
    found = [_field(group / "cpu.stat", "throttled_usec ") for group in groups]
    known = [1000 * value for value in found if value is not None]
    older = _field(base / "cpu/cpu.stat", "throttled_time ")
    if older is not None:
        known.append(older)
    return sum(known) if known else None


def _field(path: Path, name: str) -> int | None:
    """Return the integer after the first occurrence of a name in a small file."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        _, found, rest = path.read_text("ascii", "replace").partition(name)
        return int(rest.split()[0]) if found else None
    return None


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text("ascii", "replace"))
    return None
