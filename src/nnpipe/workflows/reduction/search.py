"""Delta debugging: find few parts of a whole that still show a fault.

The method is ddmin of Zeller and Hildebrandt, "Simplifying and Isolating
Failure-Inducing Input" (2002): first halves, quarters and so on are tried alone,
then they are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

_MOST_PARTS = 8  # smaller parts are rarely enough alone, and are only left out


def minimising(items: Sequence[T], shows: Callable[[Sequence[T]], bool]) -> Iterator[list[T]]:
    """Yield the smallest part that shows the fault, after each try.

    In the end no single item can be left out.

    Parameters
    ----------
    items
        The whole, which shows the fault; items that belong together stand beside each other.
    shows
        Tells whether a part shows the fault.

    Examples
    --------
    >>> list(minimising(range(100), lambda part: 13 in part and 77 in part))[-1]
    [13, 77]
    """
    current = list(items)
    parts = 2
    while parts <= _MOST_PARTS and len(current) > 1:
        for part in _windows(current, parts):
            found = shows(part)
            if found:
                current, parts = part, 1
            yield current
            if found:
                break
        parts *= 2
    size = max(1, len(current) // 2)
    while len(current) > 1:
        before, start = len(current), 0
        while start < len(current) > 1:
            rest = current[:start] + current[start + size :]
            if rest and shows(rest):
                current = rest
            else:
                start += size
            yield current
        if size == 1 and len(current) == before:
            return
        size = max(1, min(size // 2, len(current) // 2))


def _windows(items: list[T], parts: int) -> Iterator[list[T]]:
    """Yield equal parts, and then those between them, which hold what stands across a border."""
    size = -(-len(items) // parts)
    for shift in (0, size // 2):
        for start in range(shift, len(items), size):
            part = items[start : start + size]
            if len(part) < len(items) and not (shift and len(part) < size):
                yield part
        if size < 2:
            return
