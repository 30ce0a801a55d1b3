"""Runs something in forks that are killed with -9, again and again, until it is through."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any


def through(run: Callable[[list[Any] | None, int], None], kills: Sequence[list[Any]]) -> int:
    """Run a function in a fork, and in another one after each kill, until it ends; return how often
    it was killed.

    Parameters
    ----------
    run
        Takes the kill that awaits it, None for the last attempt, and a pipe to which it may write
        when it has begun. It kills itself, unless the kill is ``["time", s]``: such an attempt is
        killed s seconds after it has begun.
    kills
        The kills, one for each attempt.
    """
    killed = 0
    for kill in [*kills, None]:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                run(kill, writing)
                sys.stdout.flush()
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        if kill is not None and kill[0] == "time":
            time.sleep(kill[1])
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            killed += 1
        elif os.WEXITSTATUS(status):
            sys.exit("a training failed")
        else:
            break
    return killed
