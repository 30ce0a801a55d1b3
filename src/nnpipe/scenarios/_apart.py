"""Work in a process of its own, so that a crash or a hang costs one piece of work.

A function is named as ``"module:function"``, takes one JSON object and gives
one JSON value.  The process that carries it out lives from task to task, for
frameworks take long to start; after a crash or a timeout the next task gets a
new one.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from nnpipe.core import errors
from nnpipe.core.errors import NNPipeError

if TYPE_CHECKING:
    from typing_extensions import Self

_TAIL = 1 << 16


class Died(NNPipeError):
    """The process crashed, or was ended because it took too long."""


class Unforeseen(Exception):
    """The function raised what is no :class:`NNPipeError`; the text is the other process's traceback.

    Attributes
    ----------
    brief
        Kind and message of what was raised, as one line.
    """

    def __init__(self, brief: str, text: str) -> None:
        super().__init__(text)
        self.brief = brief


class Worker:
    """Carries out one function, task by task, in a process of its own; used in a ``with`` block by one thread."""

    def __init__(self, function: str) -> None:
        self._function = function
        self._process: subprocess.Popen[bytes] | None = None
        self._replies: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._said: IO[bytes] | None = None

    def call(self, request: Mapping[str, Any], seconds: float) -> Any:
        """Carry out one task.

        Raises
        ------
        Died
            If the process crashed, or had not finished after so many seconds.
        NNPipeError
            What the function raised.
        Unforeseen
            If it raised anything else.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = self._replies.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise Died(f"did not end within {seconds:g} s") from None
        except BrokenPipeError:
            line = None
        if line is None:
            raise Died(self._cause_of_death())
        reply = json.loads(line)
        if "value" in reply:
            return reply["value"]
        if reply["known"]:
            raise getattr(errors, reply["kind"], NNPipeError)(reply["message"])
        raise Unforeseen(f"{reply['kind']}: {' '.join(reply['message'].split())}", reply["traceback"])

    def close(self) -> None:
        """End the process, whatever it is doing; closing twice does no harm."""
        process, self._process = self._process, None
        if process is None:
            return
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with whatever it started
        process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        process.wait()
        if self._said is not None:
            self._said.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> subprocess.Popen[bytes]:
        # The child finds the same modules, wherever this process found them.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._replies = queue.SimpleQueue()
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, self._function],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, env=environment, start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=_listen, args=(process.stdout, self._replies), daemon=True).start()
        self._process = process
        return process

    def _cause_of_death(self) -> str:
        process, said = self._process, self._said
        assert process is not None
        assert said is not None
        try:
            status = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            status = 0
        end = said.seek(0, os.SEEK_END)
        said.seek(max(0, end - _TAIL))
        lines = said.read().decode("utf-8", "replace").strip().splitlines()
        self.close()
        if status < 0:
            try:
                name = signal.Signals(-status).name
            except ValueError:
                name = f"signal {-status}"
            how = f"crashed its process ({name})"
        else:
            how = f"ended its process with status {status}"
        last = " ".join(lines[-1].split())[:300] if lines else ""
        return f"{how}: {last}" if last else how


def call(function: str, request: Mapping[str, Any], seconds: float) -> Any:
    """Carry out one task in a process for it alone; see :meth:`Worker.call`."""
    with Worker(function) as worker:
        return worker.call(request, seconds)


def _listen(stream: IO[bytes], replies: queue.SimpleQueue[bytes | None]) -> None:
    try:
        for line in stream:
            replies.put(line)
    except ValueError:  # closed while it was waiting
        pass
    replies.put(None)


def _carried_out(function: Any, request: Any) -> dict[str, Any]:
    try:
        return {"value": function(request)}
    except NNPipeError as error:
        return {"known": True, "kind": type(error).__name__, "message": str(error)}
    except Exception as error:
        told = {"kind": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}
        return {"known": False, **told}


def main() -> int:
    """Carry out tasks from standard input until it ends."""
    # Frameworks print where they like; only replies may go where replies are read.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module, _, name = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), name)
    for line in sys.stdin:
        channel.write(json.dumps(_carried_out(function, json.loads(line))) + "\n")
        channel.flush()
    return 0


if __name__ == "__main__":
    # Threads of a framework may not want to end; nothing here needs them to.
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
