"""A line to firmware over UDP: bytes in numbered datagrams, which are sent again if they are lost.

The form of a datagram and the rules of both sides are at the head of ``target_c/firmware/udp.h``.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
import time
from collections import deque

_HEAD = struct.Struct("<3sBHHH")  # magic, kind, line, number, how many of the other side have been taken
_MAGIC, _BEGIN, _BYTES, _AGAIN = b"nnp", 1, 2, 3
_LARGEST = 1500 - 20 - 8 - _HEAD.size  # bytes of the line in a datagram that Ethernet takes whole
_AHEAD = 3  # datagrams that either side has places for
_OWED = 2  # datagrams after which the board is told what has been taken, if nothing else is sent before
_FIRST, _LONGEST = 0.1, 1.6  # seconds without progress after which datagrams are sent again; doubled each time
_POLL = 0.05  # seconds of one read of the line
_MOST = 1 << 16  # bytes of a read, and about as many are kept until they are read


class UDPPort:
    """An open line to firmware at an address of UDP; it is read and written like a serial port.

    As on a serial line, what is written while nobody answers is lost.

    Parameters
    ----------
    host, port
        The name or address of the board, and its port.
    timeout
        The time limit in seconds of a write that makes no progress.

    Raises
    ------
    OSError
        If the name is not known, or no network leads there.
    """

    def __init__(self, host: str, port: int, timeout: float) -> None:
        (family, kind, number, _, address), *_ = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_DGRAM)
        self._socket = socket.socket(family, kind, number)
        try:
            self._socket.connect(address)
        except BaseException:
            self._socket.close()
            raise
        self._timeout = timeout
        self._number = secrets.randbelow(1 << 16)  # of the line
        self._begun = False
        self._bytes = bytearray()  # of the line that were not read yet
        self._sent: deque[bytes] = deque()  # contents that the board has not taken yet
        self._taken_there = self._taken = 0  # datagrams that either side has taken
        self._owed = 0  # datagrams that were taken since the board was told
        self._again = _FIRST
        self._progress = self._tried = 0.0

    @property
    def in_waiting(self) -> int:
        """As many bytes as a read returns at most; a read returns what is there."""
        return _MOST

    def read(self, size: int = 1) -> bytes:
        """Return bytes that have come, after waiting for a moment if there are none."""
        if not self._bytes:
            self._wait()
        found = bytes(self._bytes[:size])
        del self._bytes[:size]
        return found

    def write(self, data: bytes, /) -> int:
        """Send all bytes; raise OSError if the network fails, or the board takes none for the time limit."""
        if not self._begun and not self._begin():
            return len(data)
        for at in range(0, len(data), _LARGEST):
            if not self._sent:
                self._progressed()
            while len(self._sent) >= _AHEAD:
                self._wait()
                if time.monotonic() - self._progress > self._timeout:
                    raise OSError("timeout of a write")
            self._sent.append(data[at : at + _LARGEST])
            self._send(_BYTES, self._taken_there + len(self._sent) - 1, self._sent[-1])
        return len(data)

    def close(self) -> None:
        """Close the port; closing it twice does no harm."""
        self._socket.close()

    def _begin(self) -> bool:
        self._send(_BEGIN, 0, b"")
        self._receive(_FIRST)
        return self._begun

    def _wait(self) -> None:
        self._receive(_POLL)
        now = time.monotonic()
        if not self._begun or now - self._tried < self._again:
            return
        for ahead, content in enumerate(self._sent):
            self._send(_BYTES, self._taken_there + ahead, content)
        if not self._sent:
            self._send(_AGAIN, 0, b"")
        self._tried = now
        self._again = min(2 * self._again, _LONGEST)

    def _progressed(self) -> None:
        self._progress = self._tried = time.monotonic()
        self._again = _FIRST

    def _send(self, kind: int, number: int, content: bytes) -> None:
        self._owed = 0
        head = _HEAD.pack(_MAGIC, kind, self._number, number & 0xFFFF, self._taken & 0xFFFF)
        with contextlib.suppress(ConnectionRefusedError):  # nobody is there yet; it is sent again
            self._socket.send(head + content)

    def _receive(self, patience: float) -> None:
        self._socket.settimeout(patience)
        try:
            self._take(self._socket.recv(_MOST))
        except TimeoutError:
            return
        except ConnectionRefusedError:
            time.sleep(_POLL)

    def _take(self, datagram: bytes) -> None:
        if len(datagram) < _HEAD.size:
            return
        magic, kind, line, number, taken = _HEAD.unpack_from(datagram)
        if magic != _MAGIC or line != self._number:
            return
        if kind == _BEGIN:
            self._begun = True
        if kind != _BYTES:
            return
        new = taken - self._taken_there & 0xFFFF
        if 0 < new <= len(self._sent):
            for _ in range(new):
                self._sent.popleft()
            self._taken_there += new
            self._progressed()
        if len(datagram) == _HEAD.size:
            return
        if number == self._taken & 0xFFFF and len(self._bytes) < _MOST:
            self._bytes += datagram[_HEAD.size :]
            self._taken += 1
            self._owed += 1
            self._progressed()
            if self._owed < _OWED:
                return
        self._send(_BYTES, 0, b"")
