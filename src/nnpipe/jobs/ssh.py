"""Another machine as a place for jobs, through the system's ``ssh``.

It works like ``ssh HOST`` of the user, with ``~/.ssh/config``, keys, agents and
jump hosts, but never prompts: a host that asks for a password, or whose key is
unknown, is an error.  The other machine needs only Python 3.10 and the packages
of the script.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shlex
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import compute_sha256, replace_atomically
from nnpipe.core.messages import format_one_line
from nnpipe.core.secret import reveal_variables
from nnpipe.jobs.agent.files import REPLY
from nnpipe.jobs.agent.status import TAIL
from nnpipe.jobs.job_spec import JobSpec
from nnpipe.jobs.place import (
    ABSENT,
    NAME,
    JobError,
    Look,
    Place,
    Unreached,
    Unsure,
    build_agent,
    to_send,
)

_OPTIONS = (
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=15",
    "-o",
    "ServerAliveInterval=15",
    "-o",
    "ServerAliveCountMax=4",
    "-T",
    "-x",
)
_ADDRESS = re.compile(
    r"(?:(?P<user>[\w.][\w.@-]*)@)?(?P<host>[\w.:][\w.:-]*?|\[[\w:.%]+\])(?::(?P<port>\d{1,5}))?",
    re.ASCII,
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
        """Return the connection to the machine with this address: ``HOST``, ``USER@HOST`` or
        ``USER@HOST:PORT``.

        Raises
        ------
        ConfigError
            If it is no such address; in particular, ssh would take a host that begins with a dash
            for an option.
        """
        found = _ADDRESS.fullmatch(address)
        if found is None or int(found["port"] or 0) > _LAST_PORT:
            raise ConfigError(
                f"{format_one_line(address, 80)!r}: expected HOST, USER@HOST or USER@HOST:PORT"
            )
        user, host, port = found["user"], found["host"].strip("[]"), found["port"]
        options = ["-p", port] if port else []
        return cls((*options, f"{user}@{host}" if user else host), address)

    def build_command(self, command: str) -> list[str]:
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
        with self._start_command(command, given, seconds) as (output, said):
            answer = output.read(_MOST + 1)
            if len(answer) > _MOST:
                raise JobError(f"{self.shown}: more than {_MOST >> 20} MiB came back")
            said()
        return answer.rpartition(REPLY)[2]

    def save(self, command: str, path: Path, size: int, seconds: float = 24 * 3600.0) -> None:
        """Run a command that outputs ``size`` bytes after the mark, and write them to a file."""
        with self._start_command(command, b"", seconds) as (output, said):
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
                raise JobError(
                    f"{self.shown}: a file has another size than it had; it was changed since"
                )
            said()

    @contextmanager
    def _start_command(
        self, command: str, given: bytes, seconds: float
    ) -> Iterator[tuple[IO[bytes], Callable[[], None]]]:
        """Yield the output of a command, and a function that raises an error if the command
        failed.
        """
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as errors:
            source.write(given)
            source.seek(0)
            try:
                process = subprocess.Popen(
                    self.build_command(command), stdin=source, stdout=subprocess.PIPE, stderr=errors
                )
            except OSError as error:
                raise JobError(
                    f"ssh: {error.strerror or error}; install OpenSSH's client"
                ) from None
            late = threading.Timer(seconds, process.kill)
            late.start()
            assert process.stdout is not None

            def check_status() -> None:
                status = process.wait()
                if status:
                    errors.seek(0)
                    words = get_last_line(errors.read(_NOISE))
                    if status < 0 and not late.is_alive():
                        raise Unreached(f"{self.shown}: no answer within {seconds:g} s")
                    if status == _FAILED:
                        raise Unreached(f"{self.shown}: cannot be reached: {words or 'ssh failed'}")
                    raise CommandFailed(
                        f"{self.shown}: {words or f'a command ended with status {status}'}", status
                    )

            try:
                yield process.stdout, check_status
            finally:
                late.cancel()
                process.kill()
                process.stdout.close()
                process.wait()


def get_last_line(data: bytes) -> str:
    """Return the last line that is not empty, without control characters."""
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    return (
        " ".join("".join(c if c.isprintable() else " " for c in lines[-1]).split())[:300]
        if lines
        else ""
    )


SCHEME = "ssh://"

_FOLDER = ".nnpipe/jobs"  # relative to the user's home, where commands of ssh start
_WORK = "work"
_AGENT = "agent"

# The shell's status 126 or 127 means that this file, and so the job, does not exist.
_LAUNCHER = """#!/bin/sh
command -v {python} > /dev/null || {{ echo {python}: not found >&2; exit 125; }}
exec {python} -E "$(dirname "$0")/{agent}" "$@"
"""

# Python itself unpacks the archive, so no other program is needed.
_UNPACK = """import os, sys, tarfile
if sys.version_info < (3, 10):
    sys.exit("jobs need Python 3.10 or newer; this is " + sys.version.split()[0] + "; name another one (--python)")
os.umask(0o77)
os.makedirs(sys.argv[1], exist_ok=len(sys.argv) > 2)
tarfile.open(fileobj=sys.stdin.buffer, mode="r|").extractall(sys.argv[1])
"""


@dataclass(frozen=True)
class Ssh(Place):
    """Runs jobs on another machine, each in its own folder in the user's home.

    Parameters
    ----------
    connection
        Runs commands on that machine.
    address
        ``ssh://USER@HOST:PORT``; user and port may be left out.
    """

    connection: CommandConnection
    address: str = ""

    @classmethod
    def at(cls, address: str) -> Ssh:
        """Return the place with this address; raise :class:`ConfigError` if it is malformed."""
        try:
            connection = CommandConnection.at(address.removeprefix(SCHEME).removesuffix("/"))
        except ConfigError:
            raise ConfigError(
                f"{format_one_line(address, 80)}: expected ssh://HOST, ssh://USER@HOST or "
                f"ssh://USER@HOST:PORT"
            ) from None
        return cls(dataclasses.replace(connection, shown=address), address)

    def folder(self, job: str) -> str:
        """Return the folder that a job will have; see :class:`Place`."""
        return f"{_FOLDER}/{job}"

    def start(self, job: str, folder: str, work: JobSpec, afterwards: Mapping[str, str]) -> None:
        """Send a job's files and start it; see :class:`Place`."""
        _check_inside(work.outputs)
        launcher = _LAUNCHER.format(python=shlex.quote(work.python), agent=NAME)
        parts = _build_archive(
            {NAME: build_agent(), _AGENT: launcher.encode()}, [work.file, *work.send]
        )
        self._unpack(work, folder, parts)
        told = {
            "id": job,
            "command": self._build_command(work),
            "directory": self._get_work_path(folder),
            "environment": reveal_variables(work.environment),
            "outputs": list(work.outputs),
            "grace": work.grace,
            "afterwards": None,
        }
        self._begin(folder, "start", {"job": told})

    def look(self, folder: str, progress: int = -TAIL, log: int = -1) -> Look:
        """Check the state of a job; see :class:`Place`."""
        return self._ask(folder, "look", {"progress": progress, "log": log})

    def cancel(self, folder: str, grace: float | None) -> Look:
        """Cancel a job; see :class:`Place`."""
        return self._ask(folder, "cancel", {"grace": grace}, seconds=3700.0)

    def resume(self, job: str, folder: str, work: JobSpec, attempt: int) -> None:
        """Send the script again and resume the job; see :class:`Place`."""
        self._unpack(work, folder, _build_archive({NAME: build_agent()}, [work.file]), again=True)
        told = {
            "command": self._build_command(work, again=True),
            "attempt": attempt,
            "environment": reveal_variables(work.environment),
        }
        self._begin(folder, "resume", told)

    def fetch(self, folder: str, outputs: Sequence[Mapping[str, Any]], directory: Path) -> None:
        """Copy the outputs to a folder of this machine, each atomically and with the hash that
        was checked there.
        """
        for output in outputs:
            name, sha256, size = output["path"], output["sha256"], int(output["size"])
            _check_inside([name])
            path = directory / name
            if path.is_file() and path.stat().st_size == size and compute_sha256(path) == sha256:
                continue
            with replace_atomically(path) as temporary:
                command = (
                    f"{shlex.quote(folder)}/{_AGENT} give {shlex.quote(folder)} "
                    f"{shlex.quote(json.dumps(name))}"
                )
                self.connection.save(command, temporary, size)
                if compute_sha256(temporary) != sha256:
                    raise JobError(
                        f"{self.address}: {name} is not what the job left; it was changed since"
                    )

    def _build_command(self, work: JobSpec, *, again: bool = False) -> list[str]:
        # Use the interpreter that runs the agent, since a relative path would be wrong in the job's
        # folder.
        return ["", *work.build_command(work.file.name, "../progress.jsonl", again=again)[1:]]

    def _get_work_path(self, folder: str) -> str:
        return f"~/{folder}/{_WORK}"

    def _unpack(self, work: JobSpec, folder: str, parts: bytes, *, again: bool = False) -> None:
        words = [work.python, "-c", _UNPACK, folder, *(["again"] if again else [])]
        self.connection.run(shlex.join(words), parts)

    def _begin(self, folder: str, command: str, asked: Mapping[str, Any]) -> None:
        """Start a job; only the agent's own answer shows that it was not started."""
        try:
            self._ask(folder, command, asked)
        except (Unreached, CommandFailed) as error:
            raise Unsure(
                f"{error}; whether the job was started, nnpipe jobs list will tell"
            ) from None

    def _ask(
        self, folder: str, command: str, asked: Mapping[str, Any], seconds: float = 120.0
    ) -> Look:
        words = f"{shlex.quote(folder)}/{_AGENT} {command} {shlex.quote(folder)} -"
        try:
            answer = self.connection.run(words, json.dumps(asked).encode(), seconds)
        except CommandFailed as error:
            if error.status in (126, 127):
                return Look(state=ABSENT)
            raise
        try:
            said = parse_json(answer)
        except ValueError:  # the connection may have been lost in the middle of the answer
            raise Unreached(
                f"{self.address}: the job's agent answered what cannot be read"
            ) from None
        return Look.from_json(said if isinstance(said, dict) else {}, self.address)


def _check_inside(names: Sequence[str]) -> None:
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise ConfigError(
                f"output {name}: on another machine outputs lie in the job's folder; give a "
                f"relative path"
            )


def _build_archive(contents: Mapping[str, bytes], paths: Sequence[Path]) -> bytes:
    """Return an archive of some contents by name, and of files and folders below ``work``."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", dereference=True) as archive:
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o700
            archive.addfile(entry, io.BytesIO(content))
        for path, name in to_send(paths):
            archive.add(path, f"{_WORK}/{name}", recursive=False, filter=_remove_owner)
    return made.getvalue()


def _remove_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the owner from an entry of an archive."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
