"""On which cores the two sides of a conversation run.

Two processes of which one works at a time are quickest together on one core,
which spares waking another; two that both work are quickest apart.  A system
that is left to itself finds this out in some turns and not in others, so that
what is measured is its luck.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

Cores = set[int]


def placements() -> dict[str, tuple[Cores, Cores]]:
    """Return the cores of this process and of the other side, by name; ``free`` alone where
    there is no choice.
    """
    if not hasattr(os, "sched_setaffinity"):
        return {"free": (set(), set())}
    every = os.sched_getaffinity(0)
    first, *others = sorted(every)
    found = {"free": (every, every), "together": ({first}, {first})}
    return found | ({"apart": ({first}, {others[0]})} if others else {})


def place(others: Iterable[int], cores: tuple[Cores, Cores]) -> None:
    """Put this process and the others, with all their threads, on their cores."""
    mine, theirs = cores
    if mine:
        _put(os.getpid(), mine)
        for pid in others:
            _put(pid, theirs)


@contextlib.contextmanager
def paused(processes: Iterable[int]) -> Iterator[None]:
    """Stop processes for the block, so that they disturb nobody."""
    everybody = list(processes)
    _signal(everybody, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(everybody, signal.SIGCONT)


@contextlib.contextmanager
def awake(processes: Iterable[int]) -> Iterator[None]:
    """Let paused processes go on for the block."""
    _signal(processes, signal.SIGCONT)
    try:
        yield
    finally:
        _signal(processes, signal.SIGSTOP)


def descendants() -> set[int]:
    """Return the processes that this one has started, and those that they have."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


def _signal(processes: Iterable[int], number: signal.Signals) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _put(pid: int, cores: Cores) -> None:
    with contextlib.suppress(OSError):  # it, or one of its threads, has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(thread.name), cores)
