"""Run commands on another machine by ``ssh``, with limits on the size of the output and the time."""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import one_line
from nnpipe.jobs.agent.files import REPLY
from nnpipe.jobs.place import JobError, Unreached

_OPTIONS = (
    "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4",
    "-T", "-x",
)  # fmt: skip
_ADDRESS = re.compile(
    r"(?:(?P<user>[\w.][\w.@-]*)@)?(?P<host>[\w.:][\w.:-]*?|\[[\w:.%]+\])(?::(?P<port>\d{1,5}))?", re.ASCII
)
_FAILED = 255  # of ssh itself (man ssh)
_LAST_PORT = 65_535
_NOISE = 1 << 20  # bytes of output of a shell's start files before the answer
_MOST = 8 << 20
_BLOCK = 1 << 20


class CommandFailed(JobError):
    """A command ended with another status than 0."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class CommandConnection:
    """Runs commands on a machine.

    Parameters
    ----------
    target
        Options of ssh, followed by the host.
    shown
        The name of the machine in messages.
    """

    target: Sequence[str]
    shown: str

    @classmethod
    def at(cls, address: str) -> CommandConnection:
        """Return the connection to the machine with this address: ``HOST``, ``USER@HOST`` or ``USER@HOST:PORT``.

        Raises
        ------
        ConfigError
            If it is no such address; in particular, ssh would take a host that begins with a dash for an option.
        """
        found = _ADDRESS.fullmatch(address)
        if found is None or int(found["port"] or 0) > _LAST_PORT:
            raise ConfigError(f"{one_line(address, 80)!r}: expected HOST, USER@HOST or USER@HOST:PORT")
        user, host, port = found["user"], found["host"].strip("[]"), found["port"]
        options = ["-p", port] if port else []
        return cls((*options, f"{user}@{host}" if user else host), address)

    def command(self, command: str) -> list[str]:
        """Return the call of ssh that runs a shell command there."""
        return ["ssh", *_OPTIONS, *self.target[:-1], "--", self.target[-1], command]

    def run(self, command: str, given: bytes = b"", seconds: float = 300.0) -> bytes:
        """Run a shell command, and return its output after the mark of an answer.

        Raises
        ------
        Unreached
            If the machine cannot be reached, or the time limit has passed.
        CommandFailed
            If the command failed.
        JobError
            If the output is too large.
        """
        with self._started(command, given, seconds) as (output, said):
            answer = output.read(_MOST + 1)
            if len(answer) > _MOST:
                raise JobError(f"{self.shown}: more than {_MOST >> 20} MiB came back")
            said()
        return answer.rpartition(REPLY)[2]

    def save(self, command: str, path: Path, size: int, seconds: float = 24 * 3600.0) -> None:
        """Run a command that outputs ``size`` bytes after the mark, and write them to a file."""
        with self._started(command, b"", seconds) as (output, said):
            noise = bytearray()
            while not noise.endswith(REPLY):
                piece = output.read(1)
                noise += piece
                if not piece:
                    said()
                if not piece or len(noise) > _NOISE:
                    raise JobError(f"{self.shown}: what should have come did not")
            with open(path, "wb") as handle:
                left = size
                while left and (piece := output.read(min(_BLOCK, left))):
                    handle.write(piece)
                    left -= len(piece)
            if left or output.read(1):
                raise JobError(f"{self.shown}: a file has another size than it had; it was changed since")
            said()

    @contextmanager
    def _started(self, command: str, given: bytes, seconds: float) -> Iterator[tuple[IO[bytes], Callable[[], None]]]:
        """Yield the output of a command, and a function that raises an error if the command failed."""
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as errors:
            source.write(given)
            source.seek(0)
            try:
                process = subprocess.Popen(self.command(command), stdin=source, stdout=subprocess.PIPE, stderr=errors)
            except OSError as error:
                raise JobError(f"ssh: {error.strerror or error}; install OpenSSH's client") from None
            late = threading.Timer(seconds, process.kill)
            late.start()
            assert process.stdout is not None

            def said() -> None:
                status = process.wait()
                if status:
                    errors.seek(0)
                    words = last_line(errors.read(_NOISE))
                    if status < 0 and not late.is_alive():
                        raise Unreached(f"{self.shown}: no answer within {seconds:g} s")
                    if status == _FAILED:
                        raise Unreached(f"{self.shown}: cannot be reached: {words or 'ssh failed'}")
                    raise CommandFailed(f"{self.shown}: {words or f'a command ended with status {status}'}", status)

            try:
                yield process.stdout, said
            finally:
                late.cancel()
                process.kill()
                process.stdout.close()
                process.wait()


def last_line(data: bytes) -> str:
    """Return the last line that is not empty, without control characters."""
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    return " ".join("".join(c if c.isprintable() else " " for c in lines[-1]).split())[:300] if lines else ""
