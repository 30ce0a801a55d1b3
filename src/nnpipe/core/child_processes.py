"""Start and supervise child processes: what all supervisors share."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(parent: int) -> None:
    """Ask the system to kill this process when its parent is gone, however that went; elsewhere than on Linux, nothing.

    Parameters
    ----------
    parent
        The parent's number, asked before this process was forked: it may be gone already.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a group, with the whole group, and wait for its end."""
    if hasattr(os, "killpg"):  # it has not been waited for, so the number is still that of its group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def signal_name(number: int) -> str:
    """Return what a signal is called."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
