"""A process that has imported what workers need, and forks them: they start in a moment, and
share its memory.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence

from nnpipe.core.child_processes import run_forked
from nnpipe.core.closing import Closing
from nnpipe.core.errors import NNPipeError
from nnpipe.core.leases import create_temporary_folder
from nnpipe.workflows.isolation.subprocess_guard import run_tasks

POSSIBLE = hasattr(os, "fork") and hasattr(socket, "send_fds")
"""Whether the system can fork processes, and pass file descriptors to another one."""

_SOON = 5.0  # seconds to end


class WorkerTemplate(Closing):
    """Forks the processes of workers of one function; used in a ``with`` block, by any number of
    threads.

    Parameters
    ----------
    function
        ``"module:function"`` or ``"module:class"``, as for
        :class:`~nnpipe.workflows.isolation.subprocess_worker.Worker`.
    modules
        Further modules that workers need.
    prepare
        ``"module:function"`` of what is to be done once, before any worker is forked; it takes no
        arguments.
    """

    def __init__(self, function: str, modules: Sequence[str] = (), prepare: str = "") -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        self._temporary = contextlib.ExitStack()
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TMPDIR": str(self._temporary.enter_context(create_temporary_folder())),
        }
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), function, prepare, *modules],
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )

    def fork(self, stdin: int, stdout: int, stderr: int, lifeline: int) -> None:
        """Fork a guard with its worker, which has these file descriptors; the guard ends when the
        lifeline closes.

        Raises
        ------
        NNPipeError
            If the process of the template has ended.
        """
        try:
            with self._lock:
                socket.send_fds(self._socket, [b"f"], [stdin, stdout, stderr, lifeline])
                forked = self._socket.recv(1)
        except OSError:
            forked = b""
        if not forked:
            raise NNPipeError("the process from which workers are forked has ended")

    def close(self) -> None:
        """End the process; workers go on until their lifelines close."""
        self._socket.close()
        try:
            self._process.wait(_SOON)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._temporary.close()


# -- in the subprocess -----------------------------------------------------------------------------


def main() -> None:
    """Fork a worker for every request, until the other side closes."""
    descriptor, function, prepare, *modules = sys.argv[1:]
    for name in (function.partition(":")[0], *modules):
        with contextlib.suppress(ImportError):  # a worker that needs it says so
            importlib.import_module(name)
    if prepare:
        module, _, attribute = prepare.partition(":")
        getattr(importlib.import_module(module), attribute)()
    gc.collect()
    gc.freeze()  # what is collected never again is never copied, either
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets guards that have ended
    with socket.socket(fileno=int(descriptor)) as control:
        while True:
            asked, descriptors, _, _ = socket.recv_fds(control, 1, 4)
            if not asked:
                return
            if not os.fork():
                control.close()
                run_forked(functools.partial(_start_worker, function, descriptors))
            for each in descriptors:
                os.close(each)
            control.sendall(b"f")


def _start_worker(function: str, descriptors: Sequence[int]) -> None:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, lifeline = descriptors
    for target, each in enumerate(streams):
        os.dup2(each, target)
        os.close(each)
    run_tasks(function, lifeline, terminal=False)


if __name__ == "__main__":
    main()
