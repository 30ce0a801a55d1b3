"""A line in memory: two queues of bytes."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import ClassVar

from nnpipe.core.errors import LineTimeout, TransportError
from nnpipe.core.runtime_protocol import Channel, Listener


class MemoryChannel(Channel):
    """One end of a line in memory; made by :func:`memory_pair`."""

    capacity: ClassVar[int] = 1 << 30

    def __init__(self, incoming: _Pipe, outgoing: _Pipe, timeout: float) -> None:
        self.timeout = timeout
        self._incoming, self._outgoing = incoming, outgoing
        self._closed = False

    def send(self, buffers: Sequence[memoryview | bytes]) -> None:
        """Send all buffers one after another."""
        self._check()
        self._outgoing.write(b"".join(buffers))

    def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, write at most ``len(buffer)`` of them, return how many; 0 if the other side has closed."""
        self._check()
        return self._incoming.read(buffer, self.timeout)

    def close(self) -> None:
        """Close the line; closing twice does no harm."""
        self._closed = True
        self._incoming.end()
        self._outgoing.end()

    def _check(self) -> None:
        if self._closed:
            raise TransportError("the line is closed")


class _Pipe:
    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ended = False
        self._changed = threading.Condition()

    def write(self, data: bytes) -> None:
        with self._changed:
            if self._ended:
                raise TransportError("the other side closed the line")
            self._bytes += data
            self._changed.notify_all()

    def read(self, buffer: memoryview, timeout: float) -> int:
        with self._changed:
            if not self._changed.wait_for(lambda: self._bytes or self._ended, timeout):
                raise LineTimeout(f"nothing came for {timeout:g} s")
            count = min(len(buffer), len(self._bytes))
            buffer[:count] = self._bytes[:count]
            del self._bytes[:count]
            return count

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def memory_pair(timeout: float = 5.0) -> tuple[MemoryChannel, MemoryChannel]:
    """Return the two ends of a new line; ``timeout`` is in seconds."""
    there, back = _Pipe(), _Pipe()
    return MemoryChannel(back, there, timeout), MemoryChannel(there, back, timeout)


class MemoryListener(Listener):
    """Waits for callers of :meth:`connect`."""

    def __init__(self, timeout: float = 5.0) -> None:
        self._timeout = timeout
        self._waiting: queue.SimpleQueue[MemoryChannel] = queue.SimpleQueue()
        self._closed = False

    def connect(self) -> MemoryChannel:
        """Open a line and return the host's end."""
        if self._closed:
            raise TransportError("nobody listens any longer")
        host, target = memory_pair(self._timeout)
        self._waiting.put(target)
        return host

    def accept(self, timeout: float | None = None) -> MemoryChannel | None:
        """Wait for the next client and return its channel; ``None`` after ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._closed:
            left = 0.05 if deadline is None else min(deadline - time.monotonic(), 0.05)
            try:
                return self._waiting.get(timeout=max(left, 0))
            except queue.Empty:
                if deadline is not None and time.monotonic() >= deadline:
                    return None
        return None

    def close(self) -> None:
        """Stop waiting."""
        self._closed = True
