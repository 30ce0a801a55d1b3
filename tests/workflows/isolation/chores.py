"""What tests of work in other processes have done there."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import tempfile
import time
from typing import Any

from nnpipe.core.component import Component
from nnpipe.core.errors import CompileError, ConfigError, TargetError
from nnpipe.workflows.isolation.limits import limit_process


class Opener(Component):
    """Opens nothing."""

    abstract = True


def carry_out_limited(request: dict[str, Any]) -> Any:
    limit_process(request["size"], Opener())
    if request["do"] == "compute":
        while True:
            pass
    if request["do"] == "fill":
        return len(bytearray(8 << 30))
    return carry_out(request)


def carry_out(request: dict[str, Any]) -> Any:
    chore = request["do"]
    if chore == "tell pid":
        return os.getpid()
    if chore.endswith("double"):
        if chore.startswith("print"):
            print("a greeting")
            os.write(1, b"one from below Python\n")
        return 2 * request["number"]
    if chore == "fail":
        return 1 // 0
    if chore == "end by signal":
        os.kill(os.getpid(), request["signal"])
    if chore == "leave":
        os._exit(3)
    if chore == "hang":
        time.sleep(600)
    if chore == "crash":
        print("last words", file=sys.stderr, flush=True)
        ctypes.string_at(0)
    if chore == "be a busy target":
        error = TargetError("busy")
        error.code = 2
        raise error
    if chore == "fill the disk":
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), request["path"])
        except OSError as error:
            raise CompileError("something went wrong") from error
    if chore == "leave temporary files":
        return tempfile.mkdtemp()
    raise ConfigError(f"no such chore: {chore!r}")
