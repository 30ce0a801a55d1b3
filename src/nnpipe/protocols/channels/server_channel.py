"""The interfaces of channels and listeners that a server can poll."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from nnpipe.core.runtime_protocol import Channel, Listener

SLOWEST = 500.0
"""The least transfer rate of a frame in bytes per second; a slower connection counts as silent."""


class PollableChannel(Channel):
    """A channel that can be polled together with others."""

    name: str
    """The name of the other side, for messages."""

    opaque: bool = False
    """Whether only the process that has sent so far can continue to send, since encryption has a state."""

    @abstractmethod
    def fileno(self) -> int:
        """Return the file descriptor to poll."""

    @abstractmethod
    def receive_now(self, buffer: memoryview) -> int | None:
        """Receive available bytes without waiting; return None if there are none."""

    @abstractmethod
    def send_now(self, buffers: Sequence[memoryview | bytes]) -> None:
        """Send some small buffers without waiting.

        Raises
        ------
        TransportError
            If the other side is not ready to take all of them; the connection is of no more use then.
        """

    @abstractmethod
    def shut_down(self) -> None:
        """Shut down sending, and discard received bytes, without waiting."""

    @abstractmethod
    def finish(self) -> None:
        """Shut down sending, and wait a moment so that the last bytes can arrive before the connection is closed."""

    def hung_up(self) -> bool:
        """Return whether the other side has closed the connection."""
        return False

    def writable(self) -> bool:
        """Return whether something can be sent without waiting for the other side to read."""
        return True


class LineListener(Listener):
    """A listener that can be polled together with its channels."""

    name: str
    """The address, for messages."""

    @abstractmethod
    def fileno(self) -> int:
        """Return the file descriptor to poll."""
