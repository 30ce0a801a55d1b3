"""An emulated board: the emulator's process, and the lines to the board that it emulates."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from nnpipe.core.messages import format_one_line

# A line to firmware over UDP: bytes in numbered datagrams, which are sent again if they are lost.
#
# The form of a datagram and the rules of both sides are at the head of ``target_c/firmware/udp.h``.

# magic, kind, line, number, how many of the other side have been taken
_HEAD = struct.Struct("<3sBHHH")
_MAGIC, _BEGIN, _BYTES, _AGAIN = b"nnp", 1, 2, 3
_LARGEST = 1500 - 20 - 8 - _HEAD.size  # bytes of the line in a datagram that Ethernet takes whole
_AHEAD = 3  # datagrams that either side has places for
# datagrams after which the board is told what has been taken, if nothing else is sent before
_OWED = 2
# seconds without progress after which datagrams are sent again; doubled each time
_FIRST, _LONGEST = 0.1, 1.6
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
        (family, kind, number, _, address), *_ = socket.getaddrinfo(
            host, port, socket.AF_INET, socket.SOCK_DGRAM
        )
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
        """Send all bytes; raise OSError if the network fails, or the board takes none for the
        time limit.
        """
        if not self._begun and not self._begin():
            return len(data)
        for at in range(0, len(data), _LARGEST):
            if not self._sent:
                self._record_progress()
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

    def _record_progress(self) -> None:
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
            self._handle_datagram(self._socket.recv(_MOST))
        except TimeoutError:
            return
        except ConnectionRefusedError:
            time.sleep(_POLL)

    def _handle_datagram(self, datagram: bytes) -> None:
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
            self._record_progress()
        if len(datagram) == _HEAD.size:
            return
        if number == self._taken & 0xFFFF and len(self._bytes) < _MOST:
            self._bytes += datagram[_HEAD.size :]
            self._taken += 1
            self._owed += 1
            self._record_progress()
            if self._owed < _OWED:
                return
        self._send(_BYTES, 0, b"")


_GUARD = Path(__file__).with_name("emulator_guard.py")


class EmulatorProcess:
    """A running emulator.

    It is run by a guard, which ends it when this process says so or ends for
    any reason, a kill included.

    Parameters
    ----------
    command
        The emulator and its arguments.
    inherited
        File descriptors that it inherits.
    """

    def __init__(self, command: Sequence[str], inherited: Sequence[int] = ()) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed at the end
        guard = [
            sys.executable,
            "-I",
            "-S",
            str(_GUARD),
            str(os.getpid()),
            ",".join(map(str, inherited)),
            *command,
        ]
        self._guard = subprocess.Popen(
            guard,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=inherited,
        )

    def has_ended(self) -> bool:
        """Return whether the emulator has ended."""
        return self._guard.poll() is not None

    def failure(self) -> OSError:
        """Return an error that says what it wrote to its standard error, if it has ended."""
        if not self.has_ended():
            return OSError("the emulator closed it")
        self._errors.seek(0)
        told = self._errors.read(2000).decode("utf-8", "replace").strip()
        return OSError(f"the emulator has ended{': ' if told else ''}{format_one_line(told, 300)}")

    def end(self) -> None:
        """End the emulator, and wait until it has ended; a second call does no harm."""
        with contextlib.suppress(OSError):
            if self._guard.stdin is not None and not self._guard.stdin.closed:
                # A forked process may hold the pipe as well, so that closing it would end nothing.
                self._guard.stdin.write(b"end")
                self._guard.stdin.close()
        self._guard.wait()
        self._errors.close()


class EmulatorPort:
    """A serial port of an emulated board, whose emulator ends with it.

    Parameters
    ----------
    command
        The emulator and its arguments; ``{line}`` in them becomes the file descriptor of the port.
    timeout
        The time limit in seconds of a write.
    """

    def __init__(self, command: Sequence[str], timeout: float) -> None:
        self._socket, other = socket.socketpair()
        with other:
            line = other.fileno()
            self._process = EmulatorProcess(
                [word.replace("{line}", str(line)) for word in command], [line]
            )
        self._timeout = timeout

    @property
    def in_waiting(self) -> int:
        """As many bytes as a read returns at most; a read returns what is there."""
        return _MOST

    def read(self, size: int = 1) -> bytes:
        """Return bytes that have come, after waiting for a moment if there are none.

        Raises
        ------
        OSError
            If the emulator has ended; with what it wrote to its standard error.
        """
        self._socket.settimeout(_POLL)
        try:
            data = self._socket.recv(max(size, 1))
        except TimeoutError:
            return b""
        except OSError as error:
            raise self._process.failure() from error
        if not data:
            raise self._process.failure()
        return data

    def write(self, data: bytes, /) -> int:
        """Send all bytes; raise OSError if the emulator has ended, or takes none for the time
        limit.
        """
        self._socket.settimeout(self._timeout)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise OSError("timeout of a write") from None
        except OSError as error:
            raise self._process.failure() from error
        return len(data)

    def close(self) -> None:
        """End the emulator, and wait until it has ended; closing it twice does no harm."""
        self._socket.close()
        self._process.end()


class EmulatorUDPPort(UDPPort):
    """A line over UDP to an emulated board, whose emulator ends with it; a hundred times as fast as
    an emulated UART.

    Parameters
    ----------
    command
        The emulator and its arguments; ``{port}`` in them becomes the port of this machine that
        leads to the board.
    timeout
        The time limit in seconds of a write.
    """

    def __init__(self, command: Sequence[str], timeout: float) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        super().__init__("127.0.0.1", port, timeout)
        try:
            self._process = EmulatorProcess([word.replace("{port}", str(port)) for word in command])
        except BaseException:
            super().close()
            raise

    def close(self) -> None:
        """End the emulator, and wait until it has ended; closing it twice does no harm."""
        super().close()
        self._process.end()

    def _receive(self, patience: float) -> None:
        super()._receive(patience)
        if self._process.has_ended():
            raise self._process.failure()
