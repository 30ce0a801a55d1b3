"""Channels over stream sockets."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from nnpipe.core.errors import LineTimeout, TransportError
from nnpipe.core.runtime_protocol import Channel, Listener

SLOWEST = 500.0
"""The least transfer rate of a frame in bytes per second; a slower connection counts as silent."""


class PollableChannel(Channel):
    """A channel that can be polled together with others."""

    name: str
    """The name of the other side, for messages."""

    opaque: bool = False
    """Whether only the process that has sent so far can continue to send, since encryption has a
    state.
    """

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
            If the other side is not ready to take all of them; the connection is of no more use
            then.
        """

    @abstractmethod
    def shut_down(self) -> None:
        """Shut down sending, and discard received bytes, without waiting."""

    @abstractmethod
    def finish(self) -> None:
        """Shut down sending, and wait a moment so that the last bytes can arrive before the
        connection is closed.
        """

    def is_hung_up(self) -> bool:
        """Return whether the other side has closed the connection."""
        return False

    def is_writable(self) -> bool:
        """Return whether something can be sent without waiting for the other side to read."""
        return True


class LineListener(Listener):
    """A listener that can be polled together with its channels."""

    name: str
    """The address, for messages."""

    @abstractmethod
    def fileno(self) -> int:
        """Return the file descriptor to poll."""


_MOST_BUFFERS = 512  # systems take at least 1024 in one call
_DONTWAIT = getattr(socket, "MSG_DONTWAIT", 0)
_LINGER = 0.5
_GONE = (ConnectionError, BrokenPipeError)


class SocketChannel(PollableChannel):
    """A connected stream socket.

    Parameters
    ----------
    sock
        The socket; the channel closes it.
    timeout
        The time limit in seconds without progress.
    packet_size
        The largest number of bytes in one system call.
    name
        The name of the other side, for messages.
    """

    capacity: ClassVar[int] = 1 << 15

    def __init__(self, sock: socket.socket, timeout: float, packet_size: int, name: str) -> None:
        self.name = name
        self._sock = sock
        self.timeout = timeout
        self._most = packet_size
        if sock.family != getattr(socket, "AF_UNIX", None):
            # Otherwise a small answer waits up to 40 ms for the acknowledgement of the previous
            # one.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _enable_keepalive(sock, timeout)
        self._set_up(sock, timeout)

    def _set_up(self, sock: socket.socket, timeout: float) -> None:
        _set_timeout(sock, timeout)

    def send(self, buffers: Sequence[memoryview | bytes]) -> None:
        """Send all buffers in order, without copying them into one."""
        total = sum(map(len, buffers))
        try:
            if total <= self._most and len(buffers) <= _MOST_BUFFERS:
                sent = self._sock.sendmsg(buffers)
                if sent == total:
                    return
                buffers = _get_rest(buffers, sent)
            self._send_pieces(buffers)
        except LineTimeout:
            raise
        except OSError as error:
            raise self._create_error(error, "took nothing") from None

    def _send_pieces(self, buffers: Sequence[memoryview | bytes]) -> None:
        deadline = time.monotonic() + self.timeout
        while buffers:
            sent = self._sock.sendmsg(_get_first(buffers, self._most))
            buffers = _get_rest(buffers, sent)
            deadline += sent / SLOWEST
            if buffers and time.monotonic() > deadline:
                raise LineTimeout(f"{self.name} takes less than can be waited for")

    def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, read at most ``len(buffer)`` of them, and return their number; 0 if
        the other side closed.
        """
        try:
            most = self._most
            return self._sock.recv_into(buffer, most if len(buffer) > most else 0)
        except OSError as error:
            raise self._create_error(error, "sent nothing") from None

    def receive_now(self, buffer: memoryview) -> int | None:
        """Receive available bytes without waiting; return None if there are none."""
        try:
            return self._sock.recv_into(buffer, len(buffer), _DONTWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._create_error(error, "sent nothing") from None

    def send_now(self, buffers: Sequence[memoryview | bytes]) -> None:
        """Send some small buffers without waiting; an error is raised unless all of them could
        be sent.
        """
        try:
            sent = self._sock.sendmsg(buffers, (), _DONTWAIT)
        except OSError as error:
            raise self._create_error(error, "took nothing") from None
        if sent < sum(map(len, buffers)):
            raise LineTimeout(f"{self.name} takes less than can be waited for")

    def fileno(self) -> int:
        """Return the file descriptor to poll."""
        return self._sock.fileno()

    def is_hung_up(self) -> bool:
        """Return whether the other side has closed the connection, even if some of its bytes are
        still unread.
        """
        poll = select.poll()
        poll.register(self._sock, getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(0))

    def is_writable(self) -> bool:
        """Return whether something can be sent without waiting for the other side to read."""
        poll = select.poll()
        poll.register(self._sock, select.POLLOUT)
        return bool(poll.poll(0))

    def shut_down(self) -> None:
        """Shut down sending, and discard received bytes, without waiting."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
            waste = memoryview(bytearray(1 << 14))
            for _ in range(16):
                if not self._sock.recv_into(waste, len(waste), _DONTWAIT):
                    break

    def finish(self) -> None:
        """Shut down sending, and read for a moment what still arrives.

        A socket that is closed with unread bytes sends a reset, which can
        overtake the last bytes sent.
        """
        deadline = time.monotonic() + _LINGER
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
            _set_timeout(self._sock, _LINGER)
            waste = memoryview(bytearray(1 << 16))
            while time.monotonic() < deadline and self._sock.recv_into(waste):
                pass
        self.close()

    def close(self) -> None:
        """Close the socket; closing twice does no harm."""
        with contextlib.suppress(OSError):
            self._sock.close()

    def _create_error(self, error: OSError, what: str) -> TransportError:
        if isinstance(error, (BlockingIOError, TimeoutError)):
            return LineTimeout(f"{self.name} {what} for {self.timeout:g} s")
        if isinstance(error, _GONE):
            return TransportError(f"{self.name} broke off the connection")
        if error.errno == errno.EBADF:
            return TransportError(f"the connection to {self.name} is closed")
        return TransportError(f"the connection to {self.name} failed: {error.strerror or error}")


class SocketListener(LineListener):
    """A listening stream socket; its channels get the same time limit and packet size."""

    def __init__(self, sock: socket.socket, timeout: float, packet_size: int, name: str) -> None:
        self.name = name
        self._sock = sock
        self._timeout = timeout
        self._packet_size = packet_size
        sock.setblocking(False)

    def accept(self, timeout: float | None = None) -> Channel | None:
        """Wait for the next client; return ``None`` after ``timeout`` seconds without one."""
        try:
            if not select.select([self._sock], [], [], timeout)[0]:
                return None
            connection, address = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return None  # the client left before it was accepted
        except OSError as error:
            raise TransportError(
                f"waiting at {self.name} failed: {error.strerror or error}"
            ) from None
        connection.setblocking(True)
        try:
            return self._create_channel(connection, _show(address))
        except OSError:
            connection.close()
            return None

    def _create_channel(self, connection: socket.socket, name: str) -> SocketChannel:
        return SocketChannel(connection, self._timeout, self._packet_size, name)

    def address(self) -> tuple[str, int]:
        """The host and port of the listener; for port 0, the port that the system has chosen."""
        found = self._sock.getsockname()
        return found[0], found[1]

    def fileno(self) -> int:
        """Return the file descriptor to poll."""
        return self._sock.fileno()

    def close(self) -> None:
        """Stop waiting; accepted channels stay open."""
        self._sock.close()


def _show(address: object) -> str:
    if isinstance(address, tuple):
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return "a client on this machine"


def _enable_keepalive(sock: socket.socket, timeout: float) -> None:
    """Detect a vanished peer (unplugged, switched off) after about three time limits, by TCP
    keep-alive.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = max(round(timeout), 1)
    for name, value in (("TCP_KEEPIDLE", seconds), ("TCP_KEEPINTVL", seconds), ("TCP_KEEPCNT", 2)):
        if hasattr(socket, name):  # other systems use their own, longer times
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def disable_pacing(sock: socket.socket) -> None:
    """Choose a congestion control for a socket that does not pace packets by an estimate of the
    bandwidth.

    Requests that wait for answers make BBR's estimate wrong: on systems that use
    it, pipelined inferences took up to five times as long, because of the pacing.
    A connection that began with BBR stays paced.  So the choice must be made before
    connecting, and at the listening socket for accepted connections.
    """
    if not hasattr(socket, "TCP_CONGESTION"):
        return
    with contextlib.suppress(OSError):
        if not sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(b"bbr"):
            return
    for name in (b"cubic", b"reno"):  # every user may choose reno
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
            return


def _set_timeout(sock: socket.socket, timeout: float) -> None:
    """Set the kernel's timeouts, since Python's own need an additional system call for each send
    and receive.
    """
    seconds, micros = divmod(max(round(timeout * 1e6), 1), 1_000_000)
    for form in ("ll", "qq"):  # the right one depends on the width of time_t
        try:
            value = struct.pack(form, seconds, micros)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
            return
        except (OSError, AttributeError):
            continue
    sock.settimeout(timeout)


def _get_rest(buffers: Sequence[memoryview | bytes], sent: int) -> list[memoryview | bytes]:
    """Return the rest of the buffers after the first ``sent`` bytes."""
    for at, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[at + 1 :]]
        sent -= len(buffer)
    return []


def _get_first(buffers: Sequence[memoryview | bytes], most: int) -> list[memoryview | bytes]:
    """Return the first ``most`` bytes of the buffers."""
    found: list[memoryview | bytes] = []
    for buffer in buffers[:_MOST_BUFFERS]:
        if len(buffer) >= most:
            return [*found, memoryview(buffer)[:most]]
        found.append(buffer)
        most -= len(buffer)
    return found
