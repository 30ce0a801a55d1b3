"""A small program that runs another one, until anything comes by its standard input, or its parent
has gone.

It is started by its path, so it imports the standard library only.  If it is itself killed, Linux
kills the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys

_POLL = 0.5  # seconds between looks at the parent
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _die_with_parent() -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main(parent: int, inherited: list[int], command: list[str]) -> int:
    """Run a command that inherits file descriptors, until it ends or nobody needs it any more."""
    process = subprocess.Popen(
        command, pass_fds=inherited, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent
    )
    for line in inherited:
        os.close(line)
    try:
        while process.poll() is None and os.getppid() == parent:
            if select.select([sys.stdin], [], [], _POLL)[0]:
                break
    finally:
        process.kill()
        process.wait()
    return process.returncode or 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    sys.exit(
        main(int(sys.argv[1]), [int(each) for each in sys.argv[2].split(",") if each], sys.argv[3:])
    )
