"""What a server needs of a channel beyond sending and receiving."""

from __future__ import annotations

from abc import abstractmethod

from nnpipe.core.runtime_protocol import Channel, Listener

SLOWEST = 500.0
"""Bytes a second; a line on which a frame comes or goes more slowly counts as silent."""


class PollableChannel(Channel):
    """A channel that can be polled together with others."""

    name: str
    """Who is at the other end, for people to read."""

    opaque: bool = False
    """Whether only the process that speaks can go on speaking (encryption keeps state)."""

    @abstractmethod
    def fileno(self) -> int:
        """Descriptor to wait at."""

    @abstractmethod
    def receive_now(self, buffer: memoryview) -> int | None:
        """Take what has come without waiting; None if nothing has."""

    @abstractmethod
    def hush(self) -> None:
        """Say nothing more, and take what has come, without waiting."""

    @abstractmethod
    def finish(self) -> None:
        """Say nothing more, and give what was said last a chance to arrive before the line is closed."""

    def hung_up(self) -> bool:
        """Return whether the other side has left."""
        return False

    def writable(self) -> bool:
        """Return whether something can be sent without waiting for the other side to read."""
        return True


class LineListener(Listener):
    """A listener that can be watched along with its lines."""

    name: str
    """Where it listens, for people to read."""

    @abstractmethod
    def fileno(self) -> int:
        """Descriptor to wait at."""
