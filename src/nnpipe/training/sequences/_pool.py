"""A pool of worker processes that carry out the jobs of a map, in order.

Sending to a worker never blocks: batches are in shared memory, and the messages
in the pipes are so short and so few that the pipes never fill.  There are no
threads, locks or queues between the processes that a killed worker could leave
in a bad state.  So the pool ends by killing its processes.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic, perf_counter_ns
from typing import Any

from nnpipe.core.child_processes import get_signal_name
from nnpipe.core.errors import ConfigError
from nnpipe.training.sequences._batch_work import (
    BatchWork,
    ProcessedBatch,
    TransformError,
    WorkerError,
    format_ids,
)
from nnpipe.training.sequences._worker import JOB, RESULT, Slot, main

_LOG = logging.getLogger(__name__)
STARTS = ("spawn", "forkserver")
_KILLED_WITHIN = 5.0
"""Seconds to wait for a killed process; only a disk that hangs can delay its end."""


@dataclass(kw_only=True, eq=False)
class _Worker:
    process: BaseProcess
    connection: Connection
    life: Connection
    slots: list[Slot]
    free: list[int]
    ids: dict[int, Any] = field(default_factory=dict)
    """Sample ids of its current jobs, by number."""
    said: str = ""
    dead: bool = False


class Pool:
    """Processes that apply one function to batches.

    Parameters
    ----------
    work
        The function to apply.
    workers
        Number of processes.
    prefetch
        Number of batches that each worker has in progress or waiting.
    time_limit
        Seconds to wait for one batch; None for no limit.
    start
        ``"spawn"`` or ``"forkserver"``.
    """

    def __init__(
        self, work: BatchWork, workers: int, prefetch: int, time_limit: float | None, start: str
    ) -> None:
        try:
            packed = pickle.dumps(work)
        except Exception as error:
            raise ConfigError(
                f"{work.name} cannot be sent to worker processes: {error}; "
                "define it at the top level of a module, or use workers=0"
            ) from error
        context: Any = multiprocessing.get_context(start)
        self._work = work
        self._limit = 2 * workers * prefetch
        self._time_limit = time_limit
        self._number = self._first = 0
        self._done: dict[int, ProcessedBatch | TransformError] = {}
        self._workers: list[_Worker] = []
        self.busy_ns = self.wall_ns = self.samples = 0
        self._seen_ns: int | None = None
        self._closed = _Flag()
        self._end = weakref.finalize(self, _end, self._workers, self._closed, os.getpid())
        try:
            for _ in range(workers):
                ours, theirs = context.Pipe()
                # One pipe for each worker: the process that the kernel signals is a property of the
                # pipe.
                life, held = context.Pipe(duplex=False)
                slots = [Slot() for _ in range(prefetch)]
                process = context.Process(
                    target=main,
                    args=(theirs, life, slots, packed),
                    name=f"nnpipe map {work.name}",
                    daemon=True,
                )
                process.start()
                theirs.close()
                life.close()
                self._workers.append(
                    _Worker(
                        process=process,
                        connection=ours,
                        life=held,
                        slots=slots,
                        free=list(range(prefetch)),
                    )
                )
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        """Whether the pool is closed."""
        return self._closed.set

    @property
    def pids(self) -> list[int]:
        """The ids of the processes."""
        return [worker.process.pid for worker in self._workers if worker.process.pid is not None]

    def close(self) -> None:
        """Kill the processes; a thread that waits for a result gets a :class:`WorkerError`."""
        self._end()

    def run(
        self, jobs: Iterator[tuple[dict[str, Any], Any]], epoch: int
    ) -> Iterator[tuple[ProcessedBatch, Any]]:
        """Yield each processed batch, in the order of the batches, with the value that came with
        it.
        """
        try:
            yield from self._run(jobs, epoch)
        except (GeneratorExit, TransformError):
            raise
        except BaseException:
            # Ctrl-C may have come between taking a message and noting it.
            self.close()
            raise

    def _run(
        self, jobs: Iterator[tuple[dict[str, Any], Any]], epoch: int
    ) -> Iterator[tuple[ProcessedBatch, Any]]:
        self._first = self._number
        self._done.clear()
        self._seen_ns = None
        waiting: deque[tuple[int, Any]] = deque()
        more, failure = True, None
        while True:
            self._receive_results(0.0)
            while (
                more
                and len(waiting) < self._limit
                and (worker := self._find_idle_worker()) is not None
            ):
                try:
                    batch, tag = next(jobs)
                except StopIteration:
                    more = False
                except Exception as error:
                    # Earlier results come before an error of the source, as without workers.
                    more, failure = False, error
                else:
                    waiting.append((self._send(worker, batch, epoch), tag))
            if not waiting:
                if not more:
                    break
                self._wait(
                    self._find_oldest_job()
                )  # all slots still hold jobs of an abandoned iteration
                continue
            number, tag = waiting.popleft()
            self._wait(number)
            found = self._done.pop(number)
            if isinstance(found, TransformError):
                raise found
            yield found, tag
        if failure is not None:
            raise failure

    def _find_idle_worker(self) -> _Worker | None:
        idle = [worker for worker in self._workers if worker.free]
        return min(idle, key=lambda worker: len(worker.ids)) if idle else None

    def _send(self, worker: _Worker, batch: dict[str, Any], epoch: int) -> int:
        slot, self._number = worker.free.pop(), self._number + 1
        size = worker.slots[slot].write(batch)
        worker.ids[self._number] = batch["sample_id"]
        try:
            worker.connection.send_bytes(JOB.pack(self._number, slot, size, epoch))
        except OSError:
            self._raise_worker_error(worker)
        return self._number

    def _find_oldest_job(self) -> int:
        return min(number for worker in self._workers for number in worker.ids)

    def _wait(self, number: int) -> None:
        """Wait for a job's result, at most until the time limit."""
        until = None if self._time_limit is None else monotonic() + self._time_limit
        while holder := next((worker for worker in self._workers if number in worker.ids), None):
            if until is not None and monotonic() >= until:
                ids = holder.ids[number]
                self.close()
                raise WorkerError(
                    f"{self._work.name} took more than {self._time_limit:g} s for samples "
                    f"{format_ids(ids)}",
                    _to_tuple(ids),
                )
            self._receive_results(None if until is None else max(0.0, until - monotonic()))

    def _receive_results(self, timeout: float | None) -> None:
        """Receive all available results; wait for one if there is none."""
        if self.closed:
            raise WorkerError("the sequence was closed while its batches were waited for")
        by_handle: dict[Any, _Worker] = {}
        for worker in self._workers:
            by_handle[worker.connection] = by_handle[worker.process.sentinel] = worker
        ready = wait(list(by_handle), timeout)
        dead = None
        for handle in ready:
            worker = by_handle[handle]
            try:
                while worker.connection.poll():
                    self._handle_message(worker, worker.connection.recv_bytes())
            except (EOFError, OSError):
                worker.dead = True
            if worker.dead or not isinstance(handle, Connection):
                dead = worker
        if dead is not None:
            self._raise_worker_error(dead)

    def _handle_message(self, worker: _Worker, message: bytes) -> None:
        if len(message) != RESULT.size:
            worker.said, worker.dead = message.decode(errors="replace"), True
            return
        number, slot, size, busy = RESULT.unpack(message)
        if number > self._first:
            self._done[number] = worker.slots[slot].read(size)
            now = perf_counter_ns()
            # The time until the first result includes the start of the processes.
            if self._seen_ns is not None:
                self.wall_ns += now - self._seen_ns
                self.busy_ns += busy
                self.samples += len(worker.ids[number])
            self._seen_ns = now
        worker.free.append(slot)
        worker.ids.pop(number, None)

    def _raise_worker_error(self, worker: _Worker) -> None:
        if self.closed:
            raise WorkerError("the sequence was closed while its batches were waited for")
        worker.process.join(_KILLED_WITHIN)
        code = worker.process.exitcode
        number = min(worker.ids, default=0)
        ids = worker.ids.get(number, ())
        self.close()
        if worker.said:
            line = worker.said.strip().splitlines()[-1]
            _LOG.error("a worker process could not start\n%s", worker.said)
            raise WorkerError(f"a worker process of {self._work.name} could not start: {line}")
        how = (
            f"was killed by {get_signal_name(-code)}"
            if code is not None and code < 0
            else f"ended with status {code}"
        )
        hint = (
            '; a script that starts workers needs `if __name__ == "__main__":` around what it does'
            if not self._done and number <= self._first + len(self._workers) and code == 1
            else ""
        )
        raise WorkerError(
            f"a worker process of {self._work.name} {how}, with samples {format_ids(ids)} in "
            f"hand{hint}",
            _to_tuple(ids),
        )


class _Flag:
    set = False


def _end(workers: list[_Worker], closed: _Flag, owner: int) -> None:
    closed.set = True
    if os.getpid() != owner:
        return  # a forked copy of the process that started them
    for worker in workers:
        worker.process.kill()
    for worker in workers:
        worker.life.close()
        worker.process.join(_KILLED_WITHIN)


def _to_tuple(ids: Any) -> tuple[int, ...]:
    return tuple(int(number) for number in ids)
