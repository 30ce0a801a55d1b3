"""An emulated board: the emulator's process, and the line to the board that it emulates."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from nnpipe.core.messages import one_line

_GUARD = Path(__file__).with_name("emulator_guard.py")
_POLL = 0.05  # seconds of one read of the line
_MOST = 1 << 16
_HEAD = bytes.fromhex("020000000002 020000000001 88b5")  # addresses of board and host, and the type for experiments
_COUNTS = struct.Struct(">HH")  # bytes of the line that follow, and the frame's number
_LARGEST = 1480  # bytes of the line in a frame
_AHEAD = 4  # frames that the controller has room for
_LOST = 1.0  # seconds after which a frame is taken for lost: the board was not ready for it


class EmulatorPort:
    """A serial port of an emulated board, whose emulator ends with it.

    The emulator is run by a guard, which ends it when this process closes the
    port or ends for any reason, a kill included.

    Parameters
    ----------
    command
        The emulator and its arguments; ``{line}`` in them becomes the file descriptor of the port.
    timeout
        The time limit in seconds of a write.
    """

    def __init__(self, command: Sequence[str], timeout: float) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the port
        self._socket, other = socket.socketpair()
        with other:
            line = other.fileno()
            words = [word.replace("{line}", str(line)) for word in command]
            guard = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), str(line), *words]
            self._guard = subprocess.Popen(
                guard, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors, pass_fds=(line,)
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
        return self._received(size, _POLL)

    def write(self, data: bytes, /) -> int:
        """Send all bytes; raise OSError if the emulator has ended, or takes none for the time limit."""
        self._send(data)
        return len(data)

    def close(self) -> None:
        """End the emulator, and wait until it has ended; closing it twice does no harm."""
        self._socket.close()
        with contextlib.suppress(OSError):
            if self._guard.stdin is not None and not self._guard.stdin.closed:
                # A forked process may hold the pipe as well, so that closing it would end nothing.
                self._guard.stdin.write(b"end")
                self._guard.stdin.close()
        self._guard.wait()
        self._errors.close()

    def _received(self, size: int, patience: float) -> bytes:
        self._socket.settimeout(patience)
        try:
            data = self._socket.recv(max(size, 1))
        except TimeoutError:
            return b""
        except OSError as error:
            raise self._ended() from error
        if not data:
            raise self._ended()
        return data

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(self._timeout)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise OSError("timeout of a write") from None
        except OSError as error:
            raise self._ended() from error

    def _ended(self) -> OSError:
        if self._guard.poll() is None:
            return OSError("the emulator closed it")
        self._errors.seek(0)
        told = self._errors.read(2000).decode("utf-8", "replace").strip()
        return OSError(f"the emulator has ended{': ' if told else ''}{one_line(told, 300)}")


class EthernetPort(EmulatorPort):
    """A line to an emulated board in Ethernet frames, a hundred times as fast as a UART that is emulated.

    The emulator sends each frame after its length in 4 bytes.  The board
    answers each frame that it has read with one that has the same number and no
    bytes; so there are never more frames on their way than it has room for.
    """

    def __init__(self, command: Sequence[str], timeout: float) -> None:
        super().__init__(command, timeout)
        self._open = bytearray()  # of a frame that is not complete
        self._line = bytearray()  # bytes of the line that were not read yet
        self._sent = self._read = 0  # numbers of the last frame that was sent, and that the board has read

    def read(self, size: int = 1) -> bytes:
        """As :meth:`EmulatorPort.read`."""
        if not self._line:
            self._take(self._received(_MOST, _POLL))
        found = bytes(self._line[:size])
        del self._line[:size]
        return found

    def write(self, data: bytes, /) -> int:
        """As :meth:`EmulatorPort.write`."""
        for at in range(0, len(data), _LARGEST):
            if self._sent - self._read & 0xFFFF >= _AHEAD:
                self._wait_for_room()
            content = data[at : at + _LARGEST]
            self._sent = self._sent + 1 & 0xFFFF
            frame = (_HEAD + _COUNTS.pack(len(content), self._sent) + content).ljust(60, b"\0")
            self._send(struct.pack(">I", len(frame)) + frame)
        return len(data)

    def _wait_for_room(self) -> None:
        deadline = time.monotonic() + _LOST
        while self._sent - self._read & 0xFFFF >= _AHEAD and time.monotonic() < deadline:
            self._take(self._received(_MOST, _POLL))

    def _take(self, data: bytes) -> None:
        self._open += data
        while len(self._open) >= 4:
            (length,) = struct.unpack_from(">I", self._open)
            if len(self._open) < 4 + length:
                return
            frame = bytes(self._open[4 : 4 + length])
            del self._open[: 4 + length]
            if frame[12:14] != _HEAD[12:14] or len(frame) < 18:
                continue
            count, number = _COUNTS.unpack_from(frame, 14)
            self._line += frame[18 : 18 + count]
            if not count:
                self._read = number
