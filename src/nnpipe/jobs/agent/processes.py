"""Identify processes by process ID and start time, since IDs are reused."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_LINUX = (_PROC / "self" / "stat").exists()


@dataclass(frozen=True)
class ProcessIdentity:
    """The unique identity of a process.

    Attributes
    ----------
    pid
        The process ID.
    started
        The start time: on Linux, clock ticks since the boot of the machine; elsewhere, seconds
        since 1970.
    boot
        An identifier of the boot of the machine.
    host
        The name of the machine.
    """

    pid: int
    started: float
    boot: str
    host: str

    def to_json(self) -> dict[str, Any]:
        """Return the identity in its JSON form."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> ProcessIdentity | None:
        """Make an identity from the output of :meth:`to_json`; return None if it is malformed."""
        try:
            return cls(
                int(value["pid"]), float(value["started"]), str(value["boot"]), str(value["host"])
            )
        except (TypeError, KeyError, ValueError, OverflowError):
            return None


@dataclass(frozen=True)
class Process:
    """The present state of a process; ``ended`` if it is a zombie."""

    pid: int
    parent: int
    session: int
    started: float
    ended: bool


def get_boot_id() -> str:
    """Return an identifier of the present boot of this machine."""
    with contextlib.suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
    import psutil

    return str(int(psutil.boot_time()))


def process(pid: int) -> Process | None:
    """Return the state of a process, or None if there is none with this ID."""
    if not _LINUX:
        return _read_with_psutil(pid)
    try:
        # The name, in brackets, may contain any character (man 5 proc).
        words = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return Process(
            pid, int(words[1]), int(words[3]), float(words[19]), words[0] in (b"Z", b"X", b"x")
        )
    except (OSError, IndexError, ValueError):
        return None


def list_processes() -> dict[int, Process]:
    """Return all processes, by process ID."""
    if _LINUX:
        pids: Iterable[int] = (int(path.name) for path in _PROC.iterdir() if path.name.isdigit())
    else:
        import psutil

        pids = psutil.pids()
    return {pid: found for pid in pids if (found := process(pid)) is not None}


def get_identity(pid: int) -> ProcessIdentity | None:
    """Return the unique identity of a process, or None if it does not exist."""
    found = process(pid)
    return (
        None
        if found is None or found.ended
        else ProcessIdentity(pid, found.started, get_boot_id(), platform.node())
    )


def get_process_state(who: ProcessIdentity) -> str:
    """Return the state of a process: ``alive``, ``gone``, ``restarted`` (the machine was), or
    ``elsewhere``.
    """
    if who.host != platform.node():
        return "elsewhere"
    if who.boot != get_boot_id():
        return "restarted"
    found = process(who.pid)
    same = found is not None and not found.ended and abs(found.started - who.started) < 0.5
    return "alive" if same else "gone"


def send(who: ProcessIdentity, number: int) -> bool:
    """Send a signal to exactly this process; return False if it has ended."""
    if not hasattr(os, "pidfd_open") or not _LINUX:
        if get_process_state(who) != "alive":
            return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(who.pid, number)
            return True
        return False
    try:
        handle = os.pidfd_open(who.pid)
    except OSError:
        return False
    try:
        # From here on, the ID cannot be reused unnoticed.
        if get_process_state(who) != "alive":
            return False
        signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)
    return True


def find_processes_with_variable(variable: str, value: str) -> set[int]:
    """Return the IDs of processes that were started with this environment variable and value."""
    wanted = f"{variable}={value}".encode()
    if not _LINUX:
        import psutil

        found = set()
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if one.environ().get(variable) == value:
                    found.add(one.pid)
        return found
    found = set()
    for path in _PROC.iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (path / "environ").read_bytes().split(b"\0"):
                    found.add(int(path.name))
    return found


def list_descendants(root: int) -> set[int]:
    """Return the IDs of all descendants of a process."""
    children: dict[int, list[int]] = {}
    for one in list_processes().values():
        children.setdefault(one.parent, []).append(one.pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in found and pid != root:
                found.add(pid)
                waiting.append(pid)
    return found


def _read_with_psutil(pid: int) -> Process | None:
    import psutil

    try:
        one = psutil.Process(pid)
        with one.oneshot():
            return Process(
                pid,
                one.ppid(),
                os.getsid(pid),
                one.create_time(),
                one.status() in (psutil.STATUS_ZOMBIE,),
            )
    except (psutil.Error, OSError):
        return None
