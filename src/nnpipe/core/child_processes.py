"""Start and supervise child processes: what all supervisors share."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(parent: int) -> None:
    """Ask Linux to kill this process when its parent ends for any reason; do nothing on other
    systems.

    Parameters
    ----------
    parent
        The parent's process ID, read before this process was forked, since the parent may already
        have ended.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def run_forked(work: Callable[[], object]) -> NoReturn:
    """Do the work of a process that was forked, and end the process: with status 0, or 1 if an
    error was raised.

    The interpreter's exit handlers are skipped, since those of frameworks are not meant for a
    forked process.
    """
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process group by its leader, and wait for the leader to end."""
    # nobody has waited for the leader yet, so its ID still names the group
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def get_signal_name(number: int) -> str:
    """Return the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
