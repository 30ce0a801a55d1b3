"""Progress bars on a terminal and in a notebook; elsewhere, a line every few seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar

from nnpipe.core.foreign_text import escape_html, get_raw_stream
from nnpipe.core.progress import VARIABLE, Progress, ProgressFile
from nnpipe.report.formatting import clean

T = TypeVar("T")

_INTERVAL = 0.2
"""The least number of seconds between two updates: each is a message to the browser, and stays
until it is shown.
"""


def is_notebook() -> bool:
    """Return whether this is the kernel of a notebook; IPython is not imported for it."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


def show_notebook_bar(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Yield the items, and show a bar below the cell that is running.

    The bar is replaced while it moves, so that a saved notebook has one line for each loop.

    Parameters
    ----------
    items
        The items.
    what
        What is done, as text.
    total
        The number of items, if it is known.
    """
    import IPython.display

    shower: Any = IPython.display  # its functions have no types
    began = shown = monotonic()
    done = 0
    handle = shower.display(shower.HTML(format_bar_html(what, 0, total, 0.0)), display_id=True)
    try:
        for item in items:
            yield item
            done += 1
            now = monotonic()
            if now - shown >= _INTERVAL:
                handle.update(shower.HTML(format_bar_html(what, done, total, now - began)))
                shown = now
    finally:
        handle.update(shower.HTML(format_bar_html(what, done, total, monotonic() - began)))


def format_bar_html(what: str, done: int, total: int | None, seconds: float) -> str:
    """Return a bar as HTML, with the number of items, their rate, and the seconds that are left."""
    words = [f"{done:,}" if total is None else f"{done:,} of {total:,}"]
    if done and seconds > 0:
        words.append(f"{done / seconds:,.1f} per second")
        if total is not None and done < total:
            words.append(f"{seconds / done * (total - done):,.0f} s left")
        else:
            words.append(f"{seconds:,.1f} s")
    value = "" if total is None else f' value="{done}" max="{max(total, 1)}"'
    return f"<div>{escape_html(what)} <progress{value}></progress> {', '.join(words)}</div>"


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
                of = (
                    f"{done:,}"
                    if total is None
                    else f"{done:,} of {total:,} ({done / max(1, total):.0%})"
                )
                sys.stderr.write(f"{what}: {of}\n")
                self._due = monotonic() + _LOG_INTERVAL


_LOG = _LogLines()


def show_progress(items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
    """Yield the items and show the progress on standard error, or in the notebook that this runs
    in.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    if is_notebook():
        return show_notebook_bar(items, what, total)
    if not sys.stderr.isatty():
        return _LOG(items, what, total)
    from tqdm import tqdm

    return tqdm(
        items, desc=clean(what), total=total, file=get_raw_stream(sys.stderr), dynamic_ncols=True
    )


def create_job_progress(environment: Mapping[str, str]) -> Progress:
    """Return a progress that shows bars, and also writes to the file that a job's environment
    names.
    """
    path = environment.get(VARIABLE)
    return ProgressFile(path, show_progress) if path else show_progress


def split_progress(progress: Progress, number: int, of: int) -> Progress:
    """Return the progress of part ``number``, counted from 0, of the work's ``of`` parts."""
    return progress.part(number, of) if isinstance(progress, ProgressFile) else progress


@contextmanager
def show_byte_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show the number of bytes transferred; yield the function that adds to it."""
    from tqdm import tqdm

    terminal = sys.stderr.isatty()
    with tqdm(
        desc=clean(what),
        total=total,
        unit="B",
        unit_scale=True,
        file=get_raw_stream(sys.stderr),
        dynamic_ncols=terminal,
        mininterval=0.1 if terminal else _LOG_INTERVAL,
        delay=0.0 if terminal else _LOG_INTERVAL,
        ascii=None if terminal else " .",
    ) as shown:

        def add_bytes(count: int) -> None:
            shown.update(count)

        yield add_bytes
