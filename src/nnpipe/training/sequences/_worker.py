"""The code that runs in a worker process of a map.

It imports little, since each worker imports it again.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from time import perf_counter_ns

from nnpipe.training.sequences._batch_work import BatchWork, ProcessedBatch
from nnpipe.training.sequences._shared_memory import Slot
from nnpipe.training.sequences.errors import TransformError

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
            found = TransformError(f"a worker of {work.name} failed: {error!r}", None, (), traceback.format_exc())
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
