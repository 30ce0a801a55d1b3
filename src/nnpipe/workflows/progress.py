"""Progress bars on a terminal and in a notebook; elsewhere, a line every few seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from time import monotonic
from typing import TypeVar

from nnpipe.core.foreign_text import raw_stream
from nnpipe.core.progress import Progress
from nnpipe.core.progress_file import VARIABLE, ProgressFile
from nnpipe.report.formatting import clean
from nnpipe.workflows.notebook_bar import in_notebook, notebook_bar

T = TypeVar("T")

_LOG_INTERVAL = 10.0
"""Seconds between the lines of a progress that is not shown on a terminal."""


class _LogLines:
    """Write a line every few seconds, however many short pieces of work follow each other."""

    def __init__(self) -> None:
        self._due = monotonic() + _LOG_INTERVAL

    def __call__(self, items: Iterable[T], what: str, total: int | None) -> Iterator[T]:
        for done, item in enumerate(items, 1):
            yield item
            if monotonic() >= self._due:
                of = f"{done:,}" if total is None else f"{done:,} of {total:,} ({done / max(1, total):.0%})"
                sys.stderr.write(f"{what}: {of}\n")
                self._due = monotonic() + _LOG_INTERVAL


_LOG = _LogLines()


def bar(items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
    """Yield the items and show the progress on standard error, or in the notebook that this runs in."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    if in_notebook():
        return notebook_bar(items, what, total)
    if not sys.stderr.isatty():
        return _LOG(items, what, total)
    from tqdm import tqdm

    return tqdm(items, desc=clean(what), total=total, file=raw_stream(sys.stderr), dynamic_ncols=True)


def reported(environment: Mapping[str, str]) -> Progress:
    """Return a progress that shows bars, and also writes to the file that a job's environment names."""
    path = environment.get(VARIABLE)
    return ProgressFile(path, bar) if path else bar


def part(progress: Progress, number: int, of: int) -> Progress:
    """Return the progress of part ``number``, counted from 0, of the work's ``of`` parts."""
    return progress.part(number, of) if isinstance(progress, ProgressFile) else progress


@contextmanager
def byte_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show the number of bytes transferred; yield the function that adds to it."""
    from tqdm import tqdm

    terminal = sys.stderr.isatty()
    with tqdm(
        desc=clean(what),
        total=total,
        unit="B",
        unit_scale=True,
        file=raw_stream(sys.stderr),
        dynamic_ncols=terminal,
        mininterval=0.1 if terminal else _LOG_INTERVAL,
        delay=0.0 if terminal else _LOG_INTERVAL,
        ascii=None if terminal else " .",
    ) as shown:

        def advance(count: int) -> None:
            shown.update(count)

        yield advance
