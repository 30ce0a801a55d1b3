"""How host and target reach each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar

from nnpipe.core.component import Component

if TYPE_CHECKING:
    from typing_extensions import Self


class Channel(ABC):
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
        raise NotImplementedError

    @abstractmethod
    def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, put up to ``len(buffer)`` of them there, say how many; 0 when the other side is gone."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Close the line; closing twice does no harm."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Listener(ABC):
    """A waiting server's end of a line."""

    @abstractmethod
    def accept(self, timeout: float | None = None) -> Channel | None:
        """Wait for the next client; ``None`` when ``timeout`` seconds have passed."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Stop waiting; channels that were accepted live on."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
        raise NotImplementedError

    @abstractmethod
    def listen(self) -> Listener:
        """Wait for hosts on the target's side; raises :class:`TransportError`."""
        raise NotImplementedError
