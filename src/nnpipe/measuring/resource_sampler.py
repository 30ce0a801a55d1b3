"""Sample the use of processor and memory in the background during a measurement."""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import psutil

from nnpipe.core.errors import ConfigError
from nnpipe.measuring.counters import (
    ClockRate,
    GPUs,
    count_involuntary_switches,
    read_clock_and_wall,
)
from nnpipe.measuring.loop import Clock
from nnpipe.measuring.series import Series

if TYPE_CHECKING:
    from typing_extensions import Self

_WHOLE = (
    "time_ns",
    "process_bytes",
    "memory_bytes",
    "gpu_bytes",
    "involuntary_switches",
    "wall_ns",
)


class UsageSampler:
    """Records processor load and memory at regular intervals in a separate thread.

    ::

        with UsageSampler(interval_seconds=0.05) as sampler:
            for batches in chunks:
                with sampler.watching():
                    ...
        series = sampler.series(origin_ns)

    Loads are means since the previous observation, without the time for which the
    sampler was paused.  Even a very short measurement has one observation, at its
    end.  The thread sleeps between observations.  An observation takes about
    60 µs and may delay the measured code through Python's interpreter lock
    (``benchmarks/loop_overhead.py`` shows by how much).

    The columns are:

    - ``time_ns``;
    - ``cpu_percent``: the load of this process, 100 for one core in full use;
    - ``process_bytes``: the resident memory of this process;
    - ``machine_cpu_percent``: the load of the machine, 100 for all cores in full
      use, NaN if the system's coarse clock had not advanced;
    - ``memory_bytes``: the machine's memory that is not available;
    - ``wall_ns``: the time of day, from the same origin as ``time_ns``; the two
      differ if a clock jumped;
    - ``steal_percent``: the time that the host took from a virtual machine, 100
      for all cores;
    - ``involuntary_switches``, if the system counts them: how often this process
      was preempted;
    - ``cpu_mhz``, if the system reports it: the clock rate of the core of the thread
      that opened the sampler;
    - ``gpu_percent`` and ``gpu_bytes``, if there is a GPU (see
      :class:`~nnpipe.measuring.counters.GPUs`).

    Parameters
    ----------
    interval_seconds
        The time between observations.  An interval of 10 ms increases the median
        latency by about 0.3 %, one of 1 ms by about 1.8 %.
    clock
        The clock of the measuring loop, so that times can be compared.

    Raises
    ------
    Exception
        The error that stopped the thread, if any; it is raised when the ``with`` block ends.
    """

    def __init__(self, interval_seconds: float = 0.05, clock: Clock = time.perf_counter_ns) -> None:
        if not 0 < interval_seconds <= 86_400:
            raise ConfigError(
                f"{interval_seconds} s is no interval to sample at; use more than nothing and at "
                f"most a day"
            )
        self._interval = interval_seconds
        self._clock = clock
        self._gpus = GPUs()
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self._keep_observing, name="nnpipe-sampler", daemon=True
        )
        self._error: BaseException | None = None
        self._active = False
        self._opened_ns = 0
        self._opened_wall_ns = 0
        self._counts_switches = count_involuntary_switches() is not None
        self._clock_rate: ClockRate | None = None
        self._columns: dict[str, array[float]] = {}
        self._since = _Counters()
        self._pending = _Counters()

    def __enter__(self) -> Self:
        self._gpus.__enter__()
        self._clock_rate = rate if (rate := ClockRate()).known else None
        self._opened_ns, self._opened_wall_ns = read_clock_and_wall(self._clock)
        self._columns = {name: array("d") for name in self._list_columns()}
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        try:
            if (
                error is None
                and self._error is None
                and self._pending.wall_ns
                and not self._columns["time_ns"]
            ):
                self._record()  # even the shortest measurement has one observation
        finally:
            self._gpus.__exit__(None, None, None)
        if self._error is not None and error is None:
            raise self._error

    @contextmanager
    def record(self) -> Iterator[None]:
        """Record during a ``with`` block."""
        self.resume()
        try:
            yield
        finally:
            self.pause()

    def resume(self) -> None:
        """Start or continue to record."""
        with self._lock:
            self._since = self._count()
            self._active = True

    def pause(self) -> None:
        """Pause the recording."""
        with self._lock:
            if not self._active:
                return
            self._active = False
            self._gather()
            self._record_unless_too_early()

    def series(self, origin_ns: int = 0) -> Series:
        """Return the observations, with times in nanoseconds since ``origin_ns``."""
        with self._lock:
            columns = {
                name: np.array(values, np.int64 if name in _WHOLE else np.float64)
                for name, values in self._columns.items()
            }
        for name in ("time_ns", "wall_ns"):
            columns[name] += self._opened_ns - origin_ns
        return Series(columns)

    def _keep_observing(self) -> None:
        try:
            while not self._stop.wait(self._interval):
                with self._lock:
                    if self._active:
                        self._gather()
                        self._record_unless_too_early()
        except BaseException as error:  # raised in the user's thread when the block ends
            self._error = error

    def _list_columns(self) -> tuple[str, ...]:
        """Return the names of the columns in the order of :meth:`_record`."""
        return (
            *("time_ns", "cpu_percent", "process_bytes", "machine_cpu_percent", "memory_bytes"),
            *("wall_ns", "steal_percent"),
            *(("involuntary_switches",) if self._counts_switches else ()),
            *(("cpu_mhz",) if self._clock_rate is not None else ()),
            *self._gpus.columns,
        )

    def _count(self) -> _Counters:
        machine = psutil.cpu_times()
        # Linux already includes the time of guests in user and nice.
        total = sum(machine) - getattr(machine, "guest", 0.0) - getattr(machine, "guest_nice", 0.0)
        idle = machine.idle + getattr(machine, "iowait", 0.0)
        steal = getattr(machine, "steal", 0.0)
        switches = count_involuntary_switches() or 0
        return _Counters(
            self._clock(), time.process_time_ns(), total - idle, total, steal, switches
        )

    def _gather(self) -> None:
        now = self._count()
        self._pending = self._pending.add_difference(now, self._since)
        self._since = now

    def _record_unless_too_early(self) -> None:
        # The load over a very short time is meaningless; it is added to the next observation.
        if self._pending.wall_ns >= 0.5e9 * self._interval:
            self._record()

    def _record(self) -> None:
        passed = self._pending
        moment, wall_ns = read_clock_and_wall(self._clock)
        values = (
            self._since.wall_ns - self._opened_ns,
            100.0 * passed.process_ns / max(passed.wall_ns, 1),
            self._process.memory_info().rss,
            passed.compute_machine_percent(passed.busy_s),
            _read_memory_in_use(),
            # The time at which the counters were read.
            wall_ns - self._opened_wall_ns - (moment - self._since.wall_ns),
            passed.compute_machine_percent(passed.steal_s),
            *((passed.switches,) if self._counts_switches else ()),
            *((self._clock_rate.read() or math.nan,) if self._clock_rate is not None else ()),
            *self._gpus.read(),
        )
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)
        self._pending = _Counters()


class _Counters(NamedTuple):
    """Values of increasing counters at one moment, or their differences."""

    wall_ns: int = 0
    process_ns: int = 0
    busy_s: float = 0.0
    total_s: float = 0.0
    steal_s: float = 0.0
    switches: int = 0

    def add_difference(self, now: _Counters, before: _Counters) -> _Counters:
        return _Counters(
            self.wall_ns + now.wall_ns - before.wall_ns,
            self.process_ns + now.process_ns - before.process_ns,
            self.busy_s + now.busy_s - before.busy_s,
            self.total_s + now.total_s - before.total_s,
            self.steal_s + now.steal_s - before.steal_s,
            self.switches + now.switches - before.switches,
        )

    def compute_machine_percent(self, seconds: float) -> float:
        """Return these seconds as a percentage of the time of all cores."""
        if self.total_s < 1e-3:  # the system counts in steps of 10 ms
            return math.nan
        return min(max(100.0 * seconds / self.total_s, 0.0), 100.0)


def _read_memory_in_use() -> int:
    memory = psutil.virtual_memory()
    return int(memory.total - memory.available)
