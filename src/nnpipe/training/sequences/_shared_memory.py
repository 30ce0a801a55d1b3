"""Memory shared by two processes, for one object at a time.

The memory is a file without a name, which both processes have open.  So nothing
is left behind, however they end, and no third process tracks it.  Arrays are
copied once in and once out; pickle (protocol 5, PEP 574) describes only the
structure around them.  Both ends are processes of nnpipe.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import tempfile
from multiprocessing import reduction
from typing import Any

import numpy as np

_ALIGNED = 64
_LEAST = 1 << 16


class Slot:
    """Shared memory that grows as needed.

    One process writes and tells the other the number of bytes, which then reads.
    The two must agree on who writes when.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = _nameless_file() if descriptor is None else descriptor
        self._map: mmap.mmap | None = None
        self._size = 0

    def __reduce__(self) -> Any:
        # Only while a process is being started, which inherits the file.
        return _opened, (reduction.DupFd(self._descriptor),)

    def __del__(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _mapped(self, size: int) -> mmap.mmap:
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
        total = _rounded(len(table)) + sum(_rounded(part.nbytes) for part in parts)
        if os.fstat(self._descriptor).st_size < total:
            # Half as much again: sizes vary, and each resize costs new pages.
            os.ftruncate(self._descriptor, max(_LEAST, _rounded(total + total // 2)))
        memory = memoryview(self._mapped(total))
        memory[: len(table)] = table
        place = _rounded(len(table))
        for part in parts:
            memory[place : place + part.nbytes] = part
            place += _rounded(part.nbytes)
        memory.release()
        return total

    def read(self, size: int) -> Any:
        """Return a copy of the object, whose size in bytes is ``size``."""
        memory = np.frombuffer(self._mapped(size), np.uint8)
        count = int(memory[:8].view(np.int64)[0])
        sizes = memory[8 : 8 + 8 * count].view(np.int64).tolist()
        place, parts = _rounded(8 + 8 * count), []
        for length in sizes:
            parts.append(memory[place : place + length].copy())
            place += _rounded(length)
        return pickle.loads(parts[0], buffers=parts[1:])


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("nnpipe-batches", os.MFD_CLOEXEC)
    descriptor, name = tempfile.mkstemp(prefix="nnpipe-batches-")
    os.unlink(name)
    return descriptor


def _opened(duplicate: Any) -> Slot:
    return Slot(duplicate.detach())


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
