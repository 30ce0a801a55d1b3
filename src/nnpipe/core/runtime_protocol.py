"""The interface of runtime protocols, by which host and target communicate."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from nnpipe.core.artifact import Artifact
from nnpipe.core.closing import Closing
from nnpipe.core.component import Component


class Channel(Closing):
    """An open connection that carries bytes in order in both directions.

    One thread may send while one other receives.  A call that makes no progress
    within the channel's time limit raises :class:`LineTimeout`; a call on a broken
    connection raises :class:`TransportError`.

    Attributes
    ----------
    timeout
        The time limit in seconds without progress.
    capacity
        Bytes that can be sent while the other side does not read.  Requests are
        sent ahead only as long as their answers fit into this capacity.
    """

    timeout: float
    capacity: ClassVar[int] = 0

    @abstractmethod
    def send(self, buffers: Sequence[memoryview | bytes]) -> None:
        """Send all buffers in order, without copying them into one."""

    @abstractmethod
    def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, read at most ``len(buffer)`` of them, and return their number; 0 if the other side closed."""


class Listener(Closing):
    """A server's open endpoint that waits for clients."""

    @abstractmethod
    def accept(self, timeout: float | None = None) -> Channel | None:
        """Wait for the next client; return ``None`` after ``timeout`` seconds without one."""

    @abstractmethod
    def close(self) -> None:
        """Stop waiting; accepted channels stay open."""


class RuntimeProtocol(Component):
    """A kind of connection between a host and a target, with its address.

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
        """Return whether other machines can reach a listener; servers then require a token."""
        return True

    def translated(self, artifact: Artifact) -> contextlib.AbstractContextManager[Artifact]:
        """Yield the model in the form in which the targets take it; by default as it is.

        What is made for it lasts as long as the ``with`` block.
        """
        return contextlib.nullcontext(artifact)

    @abstractmethod
    def connect(self) -> Channel:
        """Connect from the host to the target; raise :class:`TransportError` on failure."""

    @abstractmethod
    def listen(self) -> Listener:
        """Listen for hosts on the target; raise :class:`TransportError` on failure."""
