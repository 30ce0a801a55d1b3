"""Running work in a subprocess, so that a crash or a hang costs one task.

A function is named as ``"module:function"``, takes one JSON object and returns
one JSON value.  A class is instantiated once and then called like a function, so
that it can keep what is slow to load.  The subprocess is reused for the next
task, since frameworks are slow to start; after a crash or a timeout the next
task gets a new one.

A guard process between the two leads the process group of the worker and of all
processes that it starts.  The group is killed when the worker has crashed, at
the time limit, when the block that uses the worker ends (also by Ctrl-C), and
when the calling process has ended.  Their temporary files are in a folder of the
worker, which is removed then.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from nnpipe.core import errors
from nnpipe.core.child_processes import get_signal_name, kill_group
from nnpipe.core.closing import Closing
from nnpipe.core.errors import NNPipeError, TargetError
from nnpipe.core.leases import create_temporary_folder
from nnpipe.workflows.isolation.worker_template import WorkerTemplate

_GUARD = "nnpipe.workflows.isolation.subprocess_guard"
_TAIL = 1 << 16
_REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# seconds; who ends a whole command by a signal sends it to this process, too, maybe a little later
_UNTIL_TOLD = 1.0
_SOON = 5.0  # seconds to wait for the output and the status of a process that has ended
_BAR = re.compile(r"\d+%\|")


class WorkerDied(NNPipeError):
    """The subprocess crashed, or was ended because it took too long."""


class WorkerTimeout(WorkerDied):
    """The subprocess was ended because it took too long."""


class UnexpectedError(Exception):
    """The function raised an error that is not an :class:`NNPipeError`; the text is the
    subprocess's traceback.

    Attributes
    ----------
    brief
        Class and message of the error, in one line.
    """

    def __init__(self, brief: str, text: str) -> None:
        super().__init__(text)
        self.brief = brief


class Worker(Closing):
    """Calls one function, task by task, in a subprocess; used in a ``with`` block by one thread.

    Parameters
    ----------
    function
        ``"module:function"`` or ``"module:class"``.
    shown
        Whether the subprocess's standard error is also shown here.
    template
        Forks the subprocess, whose standard error is not a terminal then; by default, it is a new
        one.
    """

    def __init__(
        self, function: str, *, shown: bool = False, template: WorkerTemplate | None = None
    ) -> None:
        self._function = function
        self._shown = shown
        self._template = template
        self._process: subprocess.Popen[bytes] | _ForkedProcess | None = None
        self._replies: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._said = bytearray()
        self._listening: list[threading.Thread] = []
        self._lifeline = -1
        self._temporary = contextlib.ExitStack()

    def call(self, request: Mapping[str, Any], seconds: float) -> Any:
        """Return the result of one task, which may take at most ``seconds`` seconds; 0 for no
        limit.

        Raises
        ------
        Died
            If the subprocess crashed, or did not finish in time.
        NNPipeError
            If the function raised it.
        Unforeseen
            If the function raised any other error.
        OSError
            If a disk was full; the error names the file, or the folder of temporary files.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = self._replies.get(timeout=seconds or None)
        except queue.Empty:
            self.close()
            raise WorkerTimeout(f"did not end within {seconds:g} s") from None
        except BrokenPipeError:
            line = self._replies.get(timeout=_SOON)  # why it had already ended
        if line is None:
            raise WorkerDied(self._describe_death(-signal.SIGTERM))
        reply = json.loads(line)
        if "ended" in reply:
            raise WorkerDied(self._describe_death(reply["ended"]))
        if "value" in reply:
            return reply["value"]
        if "full" in reply:
            raise OSError(*reply["full"])
        if reply["known"]:
            error = getattr(errors, reply["kind"], NNPipeError)(reply["message"])
            if isinstance(error, TargetError):
                error.code = reply["code"]
            raise error
        raise UnexpectedError(
            f"{reply['kind']}: {' '.join(reply['message'].split())}", reply["traceback"]
        )

    def attempt(self, what: str, request: Mapping[str, Any], seconds: float) -> Any:
        """Return the result of one task like :meth:`call`; every error becomes an
        :class:`NNPipeError` naming the task.

        The traceback of an unexpected error is written to the standard error.
        """
        try:
            return self.call(request, seconds)
        except WorkerDied as error:
            hint = (
                "; allow more with --time-limit (time_limit in a pipeline file)"
                if isinstance(error, WorkerTimeout)
                else ""
            )
            raise type(error)(f"{what} {error}{hint}") from None
        except UnexpectedError as error:
            sys.stderr.write(str(error))
            raise NNPipeError(f"{what} raised {error.brief}; the traceback is above") from None

    def close(self) -> None:
        """Kill the subprocess and all processes that it started; closing twice does no harm."""
        process, self._process = self._process, None
        if process is None:
            return
        if isinstance(process, subprocess.Popen):
            kill_group(process)
        os.close(self._lifeline)  # the guard ends with it, and all that it guards
        for thread in self._listening:
            thread.join(_SOON)
        for stream in (process.stdin, process.stdout, process.stderr):
            # A process that left the group may still hold a pipe; closing a pipe that a thread
            # reads would wait for it.
            if stream is not None and not any(thread.is_alive() for thread in self._listening):
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._temporary.close()

    def _start(self) -> subprocess.Popen[bytes] | _ForkedProcess:
        theirs, self._lifeline = os.pipe()
        try:
            process = (
                self._start_process(theirs)
                if self._template is None
                else _fork_process(self._template, theirs)
            )
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(theirs)
        self._process, self._replies, self._said = process, queue.SimpleQueue(), bytearray()
        self._listening = [
            threading.Thread(
                target=_copy_output, args=(process.stderr, self._said, self._shown), daemon=True
            ),
            threading.Thread(target=_listen, args=(process.stdout, self._replies), daemon=True),
        ]
        for thread in self._listening:
            thread.start()
        return process

    def _start_process(self, lifeline: int) -> subprocess.Popen[bytes]:
        # The child must find the same modules as this process.
        folder = self._temporary.enter_context(create_temporary_folder())
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TMPDIR": str(folder),
        }
        terminal = self._shown and sys.stderr.isatty()
        if terminal:  # for progress bars, which cannot ask a pipe for its width
            environment["COLUMNS"] = str(shutil.get_terminal_size().columns)
        return subprocess.Popen(
            [sys.executable, "-m", _GUARD, self._function, str(lifeline), str(int(terminal))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
            pass_fds=(lifeline,),
        )

    def _describe_death(self, status: int) -> str:
        self.close()
        if -status in _REQUESTS:
            time.sleep(_UNTIL_TOLD)
        last = _find_last_line(bytes(self._said))
        return f"{_describe_ending(status)}: {last}" if last else _describe_ending(status)


@dataclass(frozen=True)
class _ForkedProcess:
    """The streams of a process that a template has forked; it ends when its lifeline closes."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]


def _fork_process(template: WorkerTemplate, lifeline: int) -> _ForkedProcess:
    (stdin, to_it), (of_it, stdout), (says, stderr) = os.pipe(), os.pipe(), os.pipe()
    try:
        template.fork(stdin, stdout, stderr, lifeline)
    except BaseException:
        for end in (to_it, of_it, says):
            os.close(end)
        raise
    finally:
        for end in (stdin, stdout, stderr):
            os.close(end)
    return _ForkedProcess(os.fdopen(to_it, "wb"), os.fdopen(of_it, "rb"), os.fdopen(says, "rb"))


def call(function: str, request: Mapping[str, Any], seconds: float) -> Any:
    """Return the result of one task in a new subprocess; see :meth:`Worker.call`."""
    with Worker(function) as worker:
        return worker.call(request, seconds)


def _describe_ending(status: int) -> str:
    if status >= 0:
        return f"ended its process with status {status}"
    name = get_signal_name(-status)
    if name == "SIGKILL":
        return "had its process killed (SIGKILL), as the system does when memory runs out"
    return f"crashed its process ({name})"


def _find_last_line(said: bytes) -> str:
    lines = [line.strip() for line in re.split(r"[\r\n]", said.decode("utf-8", "replace"))]
    spoken = [line for line in lines if line and not _BAR.search(line)]
    return " ".join(spoken[-1].split())[:300] if spoken else ""


def _listen(stream: IO[bytes], replies: queue.SimpleQueue[bytes | None]) -> None:
    with contextlib.suppress(ValueError):  # closed while this thread was waiting
        for line in stream:
            replies.put(line)
    replies.put(None)


def _copy_output(stream: IO[bytes], said: bytearray, shown: bool) -> None:
    with contextlib.suppress(ValueError, OSError):
        while piece := os.read(stream.fileno(), 1 << 16):
            said += piece
            del said[:-_TAIL]
            if shown:
                sys.stderr.write(piece.decode("utf-8", "replace"))
                sys.stderr.flush()
