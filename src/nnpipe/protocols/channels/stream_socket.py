"""Channels over stream sockets."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import ClassVar

from nnpipe.core.errors import LineTimeout, TransportError
from nnpipe.core.runtime_protocol import Channel
from nnpipe.protocols.channels.server_channel import SLOWEST, LineListener, PollableChannel

_MOST_BUFFERS = 512  # systems take at least 1024 in one call
_DONTWAIT = getattr(socket, "MSG_DONTWAIT", 0)
_LINGER = 0.5
_GONE = (ConnectionError, BrokenPipeError)


class SocketChannel(PollableChannel):
    """A connected stream socket.

    Parameters
    ----------
    sock
        The socket, which the channel owns from now on.
    timeout
        Seconds without progress after which a call gives up.
    packet_size
        Most bytes handed to the system in one call.
    name
        Who is at the other end.
    """

    capacity: ClassVar[int] = 1 << 15

    def __init__(self, sock: socket.socket, timeout: float, packet_size: int, name: str) -> None:
        self.name = name
        self._sock = sock
        self.timeout = timeout
        self._most = packet_size
        if sock.family != getattr(socket, "AF_UNIX", None):
            # Otherwise a small answer waits for the acknowledgement of the one before, 40 ms.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_alive(sock, timeout)
        self._set_up(sock, timeout)

    def _set_up(self, sock: socket.socket, timeout: float) -> None:
        _set_timeout(sock, timeout)

    def send(self, buffers: Sequence[memoryview | bytes]) -> None:
        """Send all buffers one after another, without joining them."""
        total = sum(map(len, buffers))
        try:
            if total <= self._most and len(buffers) <= _MOST_BUFFERS:
                sent = self._sock.sendmsg(buffers)
                if sent == total:
                    return
                buffers = _after(buffers, sent)
            self._send_pieces(buffers)
        except LineTimeout:
            raise
        except OSError as error:
            raise self._failure(error, "took nothing") from None

    def _send_pieces(self, buffers: Sequence[memoryview | bytes]) -> None:
        deadline = time.monotonic() + self.timeout
        while buffers:
            sent = self._sock.sendmsg(_first(buffers, self._most))
            buffers = _after(buffers, sent)
            deadline += sent / SLOWEST
            if buffers and time.monotonic() > deadline:
                raise LineTimeout(f"{self.name} takes less than can be waited for")

    def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, put up to ``len(buffer)`` of them there, say how many; 0 when the other side is gone."""
        try:
            most = self._most
            return self._sock.recv_into(buffer, most if len(buffer) > most else 0)
        except OSError as error:
            raise self._failure(error, "sent nothing") from None

    def receive_now(self, buffer: memoryview) -> int | None:
        """Take what has come without waiting; None if nothing has."""
        try:
            return self._sock.recv_into(buffer, len(buffer), _DONTWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._failure(error, "sent nothing") from None

    def fileno(self) -> int:
        """Descriptor to wait at."""
        return self._sock.fileno()

    def hung_up(self) -> bool:
        """Return whether the other side has left, even if bytes of its are still unread."""
        poll = select.poll()
        poll.register(self._sock, getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(0))

    def writable(self) -> bool:
        """Return whether something can be sent without waiting for the other side to read."""
        poll = select.poll()
        poll.register(self._sock, select.POLLOUT)
        return bool(poll.poll(0))

    def hush(self) -> None:
        """Say nothing more, and take what has come, without waiting."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
            waste = memoryview(bytearray(1 << 14))
            for _ in range(16):
                if not self._sock.recv_into(waste, len(waste), _DONTWAIT):
                    break

    def finish(self) -> None:
        """Say nothing more, and read for a moment what still comes.

        A socket that is closed with bytes unread sends a reset, which can
        overtake the last thing said.
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

    def _failure(self, error: OSError, what: str) -> TransportError:
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
        """Wait for the next client; ``None`` when ``timeout`` seconds have passed."""
        try:
            if not select.select([self._sock], [], [], timeout)[0]:
                return None
            connection, address = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return None  # it left before it was let in
        except OSError as error:
            raise TransportError(f"waiting at {self.name} failed: {error.strerror or error}") from None
        connection.setblocking(True)
        try:
            return self._channel(connection, _show(address))
        except OSError:
            connection.close()
            return None

    def _channel(self, connection: socket.socket, name: str) -> SocketChannel:
        return SocketChannel(connection, self._timeout, self._packet_size, name)

    def address(self) -> tuple[str, int]:
        """Host and port at which it listens, the port chosen by the system if 0 was asked for."""
        found = self._sock.getsockname()
        return found[0], found[1]

    def fileno(self) -> int:
        """Descriptor to wait at."""
        return self._sock.fileno()

    def close(self) -> None:
        """Stop waiting; channels that were accepted live on."""
        self._sock.close()


def _show(address: object) -> str:
    if isinstance(address, tuple):
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return "a client on this machine"


def _keep_alive(sock: socket.socket, timeout: float) -> None:
    """Notice one who vanished without a word (a cable pulled, a machine switched off) after about three time limits."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = max(round(timeout), 1)
    for name, value in (("TCP_KEEPIDLE", seconds), ("TCP_KEEPINTVL", seconds), ("TCP_KEEPCNT", 2)):
        if hasattr(socket, name):  # elsewhere the system's own, longer times hold
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def do_not_pace(sock: socket.socket) -> None:
    """Keep a socket from spreading a payload over time by an estimate of the bandwidth.

    Requests that wait for answers spoil BBR's estimate: where it is the
    system's choice, pipelined inferences took up to five times as long, and
    what was measured was the pacing.  A connection that BBR began is paced for
    good, by whatever comes after: choose before connecting, and at the
    listening socket for those it lets in.
    """
    if not hasattr(socket, "TCP_CONGESTION"):
        return
    with contextlib.suppress(OSError):
        if not sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(b"bbr"):
            return
    for name in (b"cubic", b"reno"):  # everybody may choose reno
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
            return


def _set_timeout(sock: socket.socket, timeout: float) -> None:
    """Let the kernel watch the time: Python's own timeouts cost a system call with each send and receive."""
    seconds, micros = divmod(max(round(timeout * 1e6), 1), 1_000_000)
    for form in ("ll", "qq"):  # which it is depends on the width of time_t
        try:
            value = struct.pack(form, seconds, micros)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
            return
        except (OSError, AttributeError):
            continue
    sock.settimeout(timeout)


def _after(buffers: Sequence[memoryview | bytes], sent: int) -> list[memoryview | bytes]:
    """Return what remains once ``sent`` bytes are gone."""
    for at, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[at + 1 :]]
        sent -= len(buffer)
    return []


def _first(buffers: Sequence[memoryview | bytes], most: int) -> list[memoryview | bytes]:
    """Return the beginning, ``most`` bytes at most."""
    found: list[memoryview | bytes] = []
    for buffer in buffers[:_MOST_BUFFERS]:
        if len(buffer) >= most:
            return [*found, memoryview(buffer)[:most]]
        found.append(buffer)
        most -= len(buffer)
    return found
