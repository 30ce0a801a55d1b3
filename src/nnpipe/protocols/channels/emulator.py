"""An emulated board: the emulator's process, and the lines to the board that it emulates."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from nnpipe.core.messages import one_line
from nnpipe.protocols.channels.udp import UDPPort

_GUARD = Path(__file__).with_name("emulator_guard.py")
_POLL = 0.05  # seconds of one read of the line
_MOST = 1 << 16


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
        guard = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), ",".join(map(str, inherited)), *command]
        self._guard = subprocess.Popen(
            guard, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors, pass_fds=inherited
        )

    def ended(self) -> bool:
        """Return whether the emulator has ended."""
        return self._guard.poll() is not None

    def failure(self) -> OSError:
        """Return an error that says what it wrote to its standard error, if it has ended."""
        if not self.ended():
            return OSError("the emulator closed it")
        self._errors.seek(0)
        told = self._errors.read(2000).decode("utf-8", "replace").strip()
        return OSError(f"the emulator has ended{': ' if told else ''}{one_line(told, 300)}")

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
            self._process = EmulatorProcess([word.replace("{line}", str(line)) for word in command], [line])
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
        """Send all bytes; raise OSError if the emulator has ended, or takes none for the time limit."""
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
    """A line over UDP to an emulated board, whose emulator ends with it; a hundred times as fast as an emulated UART.

    Parameters
    ----------
    command
        The emulator and its arguments; ``{port}`` in them becomes the port of this machine that leads to the board.
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
        if self._process.ended():
            raise self._process.failure()
