"""Identify processes by number and start time, since numbers are reused."""

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
    """A process of a machine that was started once.

    Attributes
    ----------
    pid
        Its number.
    started
        When it began: clock ticks since the machine was started, on Linux; else seconds since 1970.
    boot
        Which start of the machine.
    host
        Which machine.
    """

    pid: int
    started: float
    boot: str
    host: str

    def to_json(self) -> dict[str, Any]:
        """Return it for a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> ProcessIdentity | None:
        """Read what :meth:`to_json` gave; None if it is something else."""
        try:
            return cls(int(value["pid"]), float(value["started"]), str(value["boot"]), str(value["host"]))
        except (TypeError, KeyError, ValueError, OverflowError):
            return None


@dataclass(frozen=True)
class Process:
    """A process as it is now; ``ended`` if it only waits for its parent to hear of it."""

    pid: int
    parent: int
    session: int
    started: float
    ended: bool


def boot() -> str:
    """Tell one start of this machine from another."""
    with contextlib.suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
    import psutil

    return str(int(psutil.boot_time()))


def process(pid: int) -> Process | None:
    """Look at a process; None if there is none of that number."""
    if not _LINUX:
        return _elsewhere(pid)
    try:
        # The name, in brackets, may hold anything (man 5 proc).
        words = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return Process(pid, int(words[1]), int(words[3]), float(words[19]), words[0] in (b"Z", b"X", b"x"))
    except (OSError, IndexError, ValueError):
        return None


def processes() -> dict[int, Process]:
    """Look at all processes, by number."""
    if _LINUX:
        pids: Iterable[int] = (int(path.name) for path in _PROC.iterdir() if path.name.isdigit())
    else:
        import psutil

        pids = psutil.pids()
    return {pid: found for pid in pids if (found := process(pid)) is not None}


def identity(pid: int) -> ProcessIdentity | None:
    """Name a process so that it is never taken for another."""
    found = process(pid)
    return None if found is None or found.ended else ProcessIdentity(pid, found.started, boot(), platform.node())


def fate(who: ProcessIdentity) -> str:
    """Say what became of a process: ``alive``, ``gone``, ``restarted`` (the machine was), or ``elsewhere``."""
    if who.host != platform.node():
        return "elsewhere"
    if who.boot != boot():
        return "restarted"
    found = process(who.pid)
    same = found is not None and not found.ended and abs(found.started - who.started) < 0.5
    return "alive" if same else "gone"


def send(who: ProcessIdentity, number: int) -> bool:
    """Send a signal to this very process; False if it is gone."""
    if not hasattr(os, "pidfd_open") or not _LINUX:
        if fate(who) != "alive":
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
        # From here on the number cannot pass to another process unnoticed.
        if fate(who) != "alive":
            return False
        signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)
    return True


def marked(variable: str, value: str) -> set[int]:
    """Find the processes that were started with a variable of that value in their environment."""
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


def descendants(root: int) -> set[int]:
    """Find the children of a process, their children, and so on."""
    children: dict[int, list[int]] = {}
    for one in processes().values():
        children.setdefault(one.parent, []).append(one.pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in found and pid != root:
                found.add(pid)
                waiting.append(pid)
    return found


def _elsewhere(pid: int) -> Process | None:
    import psutil

    try:
        one = psutil.Process(pid)
        with one.oneshot():
            return Process(pid, one.ppid(), os.getsid(pid), one.create_time(), one.status() in (psutil.STATUS_ZOMBIE,))
    except (psutil.Error, OSError):
        return None
