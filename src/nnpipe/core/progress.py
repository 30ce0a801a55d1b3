"""The interface by which long-running work reports its progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """Wraps an iterable and shows how far it has come; ``total`` is its length if it has no ``len``."""

    def __call__(self, items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
        """Return the items one by one."""
        raise NotImplementedError


def silent(items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
    """Return the items and show nothing; the default of every ``progress`` parameter."""
    return items


def tell(progress: Progress, done: int, total: int, figures: Mapping[str, float]) -> None:
    """Report how much of the whole work is done, with the latest metrics, to ``progress.tell`` if it exists."""
    told = getattr(progress, "tell", None)
    if told is not None:
        told(done, total, figures)


class Renaming:
    """A progress that renames metrics before it passes them to another progress."""

    def __init__(self, progress: Progress, rename: Callable[[Mapping[str, float]], Mapping[str, float]]) -> None:
        self._progress = progress
        self._rename = rename

    def __call__(self, items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
        """Return the items one by one."""
        return self._progress(items, what, total)

    def tell(self, done: int, total: int, figures: Mapping[str, float]) -> None:
        """Pass the report on with renamed metrics."""
        tell(self._progress, done, total, self._rename(figures))
