"""The code that runs in a worker process of a map.

It imports little, since each worker imports it again.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import struct
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection
from time import perf_counter_ns
from typing import Any

import numpy as np

from nnpipe.training.sequences._batch_work import BatchWork, ProcessedBatch, TransformError

# Memory shared by two processes, for one object at a time.
#
# The memory is a file without a name, which both processes have open.  So nothing is left behind,
# however they end, and no third process tracks it.  Arrays are copied once in and once out; pickle
# (protocol 5, PEP 574) describes only the structure around them.  Both ends are processes of
# nnpipe.

_ALIGNED = 64
_LEAST = 1 << 16


class Slot:
    """Shared memory that grows as needed.

    One process writes and tells the other the number of bytes, which then reads.
    The two must agree on who writes when.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = _create_nameless_file() if descriptor is None else descriptor
        self._map: mmap.mmap | None = None
        self._size = 0

    def __reduce__(self) -> Any:
        # Only while a process is being started, which inherits the file.
        return _open_slot, (reduction.DupFd(self._descriptor),)

    def __del__(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _map_memory(self, size: int) -> mmap.mmap:
        if self._map is None or self._size < size:
            self._map = None
            self._size = max(size, os.fstat(self._descriptor).st_size)
            self._map = mmap.mmap(self._descriptor, self._size)
        return self._map

    def write(self, value: Any) -> int:
        """Write an object in place of the previous one, and return its size in bytes."""
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
        table = struct.pack(f"<{len(parts) + 1}q", len(parts), *(part.nbytes for part in parts))
        total = _round_up(len(table)) + sum(_round_up(part.nbytes) for part in parts)
        if os.fstat(self._descriptor).st_size < total:
            # Half as much again: sizes vary, and each resize costs new pages.
            os.ftruncate(self._descriptor, max(_LEAST, _round_up(total + total // 2)))
        memory = memoryview(self._map_memory(total))
        memory[: len(table)] = table
        place = _round_up(len(table))
        for part in parts:
            memory[place : place + part.nbytes] = part
            place += _round_up(part.nbytes)
        memory.release()
        return total

    def read(self, size: int) -> Any:
        """Return a copy of the object, whose size in bytes is ``size``."""
        memory = np.frombuffer(self._map_memory(size), np.uint8)
        count = int(memory[:8].view(np.int64)[0])
        sizes = memory[8 : 8 + 8 * count].view(np.int64).tolist()
        place, parts = _round_up(8 + 8 * count), []
        for length in sizes:
            parts.append(memory[place : place + length].copy())
            place += _round_up(length)
        return pickle.loads(parts[0], buffers=parts[1:])


def _create_nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("nnpipe-batches", os.MFD_CLOEXEC)
    descriptor, name = tempfile.mkstemp(prefix="nnpipe-batches-")
    os.unlink(name)
    return descriptor


def _open_slot(duplicate: Any) -> Slot:
    return Slot(duplicate.detach())


def _round_up(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


JOB = struct.Struct("<qqqq")
"""A message from the pool: job number, slot, bytes in the slot, epoch."""

RESULT = struct.Struct("<qqqq")
"""A message to the pool: job number, slot, bytes in the slot, nanoseconds in the function.

A message of another length is the reason why the worker did not start.
"""


def main(connection: Connection, life: Connection, slots: Sequence[Slot], packed: bytes) -> None:
    """Carry out jobs until the pool closes."""
    # Ctrl-C in a terminal reaches all processes; the pool's owner decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(life)
    try:
        work: BatchWork = pickle.loads(packed)
        if "torch" in sys.modules:
            # The workers already run in parallel; more threads would compete for the same cores.
            sys.modules["torch"].set_num_threads(1)
    except BaseException:
        _tell(connection, traceback.format_exc()[-8000:].encode())
        return
    while True:
        try:
            number, slot, size, epoch = JOB.unpack(connection.recv_bytes())
        except (EOFError, OSError):
            return
        start = perf_counter_ns()
        found: ProcessedBatch | TransformError
        try:
            batch = slots[slot].read(size)
            start = perf_counter_ns()
            found = work(batch, epoch)
        except TransformError as error:
            found = error
        except Exception as error:  # a defect of nnpipe, which the pool must learn of
            found = TransformError(
                f"a worker of {work.name} failed: {error!r}", None, (), traceback.format_exc()
            )
        busy = perf_counter_ns() - start
        try:
            size = slots[slot].write(found)
        except Exception as error:
            ids = tuple(batch["sample_id"].tolist())
            reason = f"what {work.name} gave cannot be sent between processes: {error}"
            size = slots[slot].write(TransformError(reason, None, ids, traceback.format_exc()))
        _tell(connection, RESULT.pack(number, slot, size, busy))


def _tell(connection: Connection, message: bytes) -> None:
    try:
        connection.send_bytes(message)
    except OSError:
        os._exit(0)  # the pool has gone


def end_with(life: Connection) -> None:
    """End this process when the last process that holds the other end of ``life`` has ended.

    On Linux the kernel does this: a pipe can send a signal when its other end
    closes.  So it works even during a computation that lets no Python thread run.
    Unlike the kernel's signal for a parent's death, it is not sent when only a
    thread of the parent ends.  On other systems a thread waits.
    """
    import fcntl

    descriptor = life.fileno()
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
        if life.poll():  # nothing is ever sent, so the other end has closed already
            os._exit(0)
        return

    def wait() -> None:
        life.poll(None)
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
