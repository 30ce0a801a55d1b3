"""A progress bar in a notebook, which needs no package for widgets."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Any, TypeVar

from nnpipe.core.foreign_text import html_text

T = TypeVar("T")

_INTERVAL = 0.2
"""The least number of seconds between two updates: each is a message to the browser, and stays until it is shown."""


def in_notebook() -> bool:
    """Return whether this is the kernel of a notebook; IPython is not imported for it."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


def notebook_bar(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
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
    handle = shower.display(shower.HTML(bar_html(what, 0, total, 0.0)), display_id=True)
    try:
        for item in items:
            yield item
            done += 1
            now = monotonic()
            if now - shown >= _INTERVAL:
                handle.update(shower.HTML(bar_html(what, done, total, now - began)))
                shown = now
    finally:
        handle.update(shower.HTML(bar_html(what, done, total, monotonic() - began)))


def bar_html(what: str, done: int, total: int | None, seconds: float) -> str:
    """Return a bar as HTML, with the number of items, their rate, and the seconds that are left."""
    words = [f"{done:,}" if total is None else f"{done:,} of {total:,}"]
    if done and seconds > 0:
        words.append(f"{done / seconds:,.1f} per second")
        if total is not None and done < total:
            words.append(f"{seconds / done * (total - done):,.0f} s left")
        else:
            words.append(f"{seconds:,.1f} s")
    value = "" if total is None else f' value="{done}" max="{max(total, 1)}"'
    return f"<div>{html_text(what)} <progress{value}></progress> {', '.join(words)}</div>"
