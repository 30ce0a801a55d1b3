"""The interface of runtime protocols, by which host and target communicate."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from nnpipe.core.closing import Closing
from nnpipe.core.component import Component


class Channel(Closing):
    """An open line that carries bytes both ways, in order.

    One thread sends and one receives; both may be the same.  A call that makes
    no progress for the channel's time limit raises :class:`LineTimeout`, one
    on a broken line :class:`TransportError`.

    Attributes
    ----------
    timeout
        Seconds without progress after which a call gives up.
    capacity
        Bytes that can be sent while the other side does not read; requests
        are sent ahead only as far as their answers fit in here.
    """

    timeout: float
    capacity: ClassVar[int] = 0

    @abstractmethod
    def send(self, buffers: Sequence[memoryview | bytes]) -> None:
        """Send all buffers one after another, without joining them."""

    @abstractmethod
    def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, put up to ``len(buffer)`` of them there, say how many; 0 when the other side is gone."""


class Listener(Closing):
    """A waiting server's end of a line."""

    @abstractmethod
    def accept(self, timeout: float | None = None) -> Channel | None:
        """Wait for the next client; ``None`` when ``timeout`` seconds have passed."""

    @abstractmethod
    def close(self) -> None:
        """Stop waiting; channels that were accepted live on."""


class RuntimeProtocol(Component):
    """A kind of line between a host and a target, and where it leads.

    Examples
    --------
    >>> from nnpipe.protocols import NetworkProtocol
    >>> line = NetworkProtocol(host="board", port=12345)
    >>> line.to_json()["port"]
    12345
    >>> isinstance(line, RuntimeProtocol)
    True
    """

    def exposed(self) -> bool:
        """Return whether others than the people on this machine can reach a listener; servers then demand a token."""
        return True

    @abstractmethod
    def connect(self) -> Channel:
        """Open the line from the host's side; raises :class:`TransportError`."""

    @abstractmethod
    def listen(self) -> Listener:
        """Wait for hosts on the target's side; raises :class:`TransportError`."""
