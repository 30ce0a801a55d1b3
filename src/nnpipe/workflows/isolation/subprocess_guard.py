"""The subprocess that does the work, and the guard that leads its process group.

:mod:`nnpipe.workflows.isolation.subprocess_worker` starts both.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import select
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

from nnpipe.core.child_processes import die_with_parent
from nnpipe.core.errors import NNPipeError
from nnpipe.core.files import find_full_disk_error


def _run_function(function: Any, request: Any) -> dict[str, Any]:
    try:
        return {"value": function(request)}
    except Exception as error:
        full = find_full_disk_error(error, Path(tempfile.gettempdir()))
        if full is not None:  # another attempt may succeed, so this is no property of the task
            return {"full": [full.errno, full.strerror, full.filename or tempfile.gettempdir()]}
        return _describe_failure(error)
    except SystemExit as error:
        return _describe_failure(error)


def _describe_failure(error: BaseException) -> dict[str, Any]:
    if isinstance(error, NNPipeError):
        code = getattr(error, "code", 0)  # of a TargetError
        return {"known": True, "kind": type(error).__name__, "message": str(error), "code": code}
    told = {
        "kind": type(error).__name__,
        "message": str(error),
        "traceback": traceback.format_exc(),
    }
    return {"known": False, **told}


def _fork_guarded(lifeline: int) -> None:
    """Continue in a forked process, whose end is reported and which ends when the other end of
    ``lifeline`` closes.
    """
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    guard, worker = os.getpid(), os.fork()
    if worker:
        _guard_worker(worker, lifeline, ended)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for end in (ended, wake, lifeline):
        os.close(end)
    die_with_parent(guard)
    # If memory runs out, the system kills this process, not the command.
    with (
        contextlib.suppress(OSError),
        open("/proc/self/oom_score_adj", "w", encoding="ascii") as handle,
    ):
        handle.write("500")


def _guard_worker(worker: int, lifeline: int, ended: int) -> NoReturn:
    """Wait until the worker ends or is no longer needed; then end it and all processes that it
    started.
    """
    os.close(0)
    while lifeline not in select.select([lifeline, ended], [], [])[0]:
        os.read(ended, 64)
        pid, status = os.waitpid(worker, os.WNOHANG)
        if pid:
            os.write(1, json.dumps({"ended": os.waitstatus_to_exitcode(status)}).encode() + b"\n")
            break
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("unreachable")


class _Terminal(io.TextIOWrapper):
    """A pipe whose reader writes to a terminal."""

    def isatty(self) -> bool:
        return True


def main() -> None:
    """Carry out tasks from standard input until it ends."""
    name, lifeline, terminal = sys.argv[1:]
    run_tasks(name, int(lifeline), bool(int(terminal)))


def run_tasks(name: str, lifeline: int, terminal: bool) -> None:
    """Carry out tasks for a function, ``"module:function"``, in a process that
    :func:`_fork_guarded` forks."""
    _fork_guarded(lifeline)
    # Frameworks print to any stream; only replies may go to the stream of replies.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    tasks = os.fdopen(os.dup(0), "rb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)  # nor may they read the tasks
    if terminal:
        sys.stderr = _Terminal(
            sys.stderr.buffer, encoding="utf-8", errors="replace", line_buffering=True
        )
    module, _, attribute = name.partition(":")
    function = getattr(importlib.import_module(module), attribute)
    if isinstance(function, type):
        function = function()
    for line in tasks:
        channel.write(json.dumps(_run_function(function, json.loads(line))) + "\n")
        channel.flush()


if __name__ == "__main__":
    main()
