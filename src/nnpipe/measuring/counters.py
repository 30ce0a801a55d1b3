"""System counters during a measurement, of the kernel and of NVIDIA GPUs."""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from typing_extensions import Self


# System counters during a measurement: context switches, waiting, throttling, and two clocks.
#
# They are read before and after a measurement, or by the sampler during it. Counters that a system
# does not have are left out.

_ROUNDS, _STEPS = 30, 5000


def read_counters(root: Path = Path("/")) -> dict[str, int]:
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
    found = {"ruler_ns": measure_ruler_ns()}
    found["clock_ns"], found["wall_ns"] = read_clock_and_wall()
    with contextlib.suppress(OSError, AttributeError):
        found["steal_ns"] = round(psutil.cpu_times().steal * 1e9)
    waiting = _read_field(root / "proc/pressure/cpu", "total=")
    if waiting is not None:
        found["cpu_waiting_ns"] = 1000 * waiting
    held_up = _read_throttled_ns(root)
    if held_up is not None:
        found["quota_throttled_ns"] = held_up
    throttles = [
        _read_number(path)
        for path in root.glob("sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_count")
    ]
    if throttles:
        found["thermal_throttles"] = sum(count for count in throttles if count is not None)
    return found


def read_clock_and_wall(
    clock: Callable[[], int] = time.perf_counter_ns, wall: Callable[[], int] = time.time_ns
) -> tuple[int, int]:
    """Read a clock and the time of day at the same moment, in nanoseconds; the closest of a few
    attempts is used.
    """
    attempts = []
    for _ in range(4):
        before, time_of_day, after = clock(), wall(), clock()
        attempts.append((after - before, (before + after) // 2, time_of_day))
        if 0 <= after - before < 5_000:
            break
    _, moment, time_of_day = min(attempts, key=lambda attempt: abs(attempt[0]))
    return moment, time_of_day


def measure_ruler_ns() -> int:
    """Return the least time of 30 runs of a fixed piece of work of about 0.1 ms, to show the
    processor's speed.
    """
    least = 1 << 62
    for _ in range(_ROUNDS):
        start = time.perf_counter_ns()
        total = 0
        for step in range(_STEPS):
            total += step * step
        least = min(least, time.perf_counter_ns() - start)
    return least


def count_involuntary_switches() -> int | None:
    """Return the number of involuntary context switches of this process; ``None`` if the system
    does not count them.
    """
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
        """Return the clock rate in MHz, or ``None`` without a driver, as in most virtual
        machines.
        """
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in brackets may contain spaces; the 39th field is the core.
            core = int(self._status.read_text("utf-8", "replace").rpartition(")")[2].split()[36])
            return (
                int((self._cores / f"cpu{core}/cpufreq/scaling_cur_freq").read_text("ascii")) / 1000
            )
        return None


def _read_throttled_ns(root: Path) -> int | None:
    """Return the total time for which this process's control group and its parents were
    throttled.
    """
    base = root / "sys/fs/cgroup"
    own = ""
    with contextlib.suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text("utf-8", "replace").splitlines()
        own = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    parts = [part for part in own.split("/") if part not in ("", "..")]
    groups = [base.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
    found = [_read_field(group / "cpu.stat", "throttled_usec ") for group in groups]
    known = [1000 * value for value in found if value is not None]
    older = _read_field(base / "cpu/cpu.stat", "throttled_time ")
    if older is not None:
        known.append(older)
    return sum(known) if known else None


def _read_field(path: Path, name: str) -> int | None:
    """Return the integer after the first occurrence of a name in a small file."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        _, found, rest = path.read_text("ascii", "replace").partition(name)
        return int(rest.split()[0]) if found else None
    return None


def _read_number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text("ascii", "replace"))
    return None


# Read the load and memory of NVIDIA GPUs through the driver's library.
#
# This needs ``nvidia-ml-py`` (``pip install nnpipe[gpu]``).  Without it, or without a driver,
# nothing is recorded.


class GPUs:
    """The machine's GPUs, to be used in a ``with`` block.

    Attributes
    ----------
    columns
        The names of the values that :meth:`read` returns: ``gpu_percent``, the
        load of the busiest GPU, and ``gpu_bytes``, the memory in use on all of
        them.  Either may be missing; without a GPU, both are.
    """

    def __init__(self) -> None:
        self.columns: tuple[str, ...] = ()
        self._library: Any = None
        self._handles: list[Any] = []

    def __enter__(self) -> Self:
        try:
            self._library = importlib.import_module("pynvml")
        except ImportError:
            return self
        try:
            self._library.nvmlInit()
        except self._library.NVMLError:  # no driver, or one that does not match the library
            self._library = None
            return self
        with contextlib.suppress(self._library.NVMLError):
            count = self._library.nvmlDeviceGetCount()
            self._handles = [
                self._library.nvmlDeviceGetHandleByIndex(index) for index in range(count)
            ]
        if self._handles:
            # A partitioned GPU (MIG) reports no load; one with unified memory reports no memory of
            # its own.
            self.columns = tuple(
                name
                for name, query in (
                    ("gpu_percent", self._read_percent),
                    ("gpu_bytes", self._read_bytes),
                )
                if self._can(query)
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._library is not None:
            with contextlib.suppress(self._library.NVMLError):
                self._library.nvmlShutdown()
        self._library, self._handles, self.columns = None, [], ()

    def read(self) -> tuple[float, ...]:
        """Return the present values of ``columns``."""
        queries = {"gpu_percent": self._read_percent, "gpu_bytes": self._read_bytes}
        return tuple(queries[name]() for name in self.columns)

    def get_facts(self) -> list[dict[str, Any]]:
        """Return the ``name``, ``memory_bytes`` and ``driver`` of each GPU."""
        found = []
        for handle in self._handles:
            fact: dict[str, Any] = {}
            for name, query in (
                ("name", lambda handle: _decode_text(self._library.nvmlDeviceGetName(handle))),
                (
                    "memory_bytes",
                    lambda handle: int(self._library.nvmlDeviceGetMemoryInfo(handle).total),
                ),
                ("driver", lambda _: _decode_text(self._library.nvmlSystemGetDriverVersion())),
            ):
                with contextlib.suppress(self._library.NVMLError):
                    fact[name] = query(handle)
            found.append(fact)
        return found

    def _read_percent(self) -> float:
        return float(
            max(self._library.nvmlDeviceGetUtilizationRates(handle).gpu for handle in self._handles)
        )

    def _read_bytes(self) -> float:
        return float(
            sum(self._library.nvmlDeviceGetMemoryInfo(handle).used for handle in self._handles)
        )

    def _can(self, query: Any) -> bool:
        try:
            query()
        except self._library.NVMLError:
            return False
        return True


def _decode_text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
