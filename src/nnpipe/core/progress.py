"""Progress reporting for long-running work, whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """Wraps an iterable and shows how far it is; ``total`` where the iterable has no length."""

    def __call__(self, items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
        """Return the items one by one."""
        raise NotImplementedError


def silent(items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
    """Show nothing: the default of every function that takes a ``progress``."""
    return items


def tell(progress: Progress, done: int, total: int, figures: Mapping[str, float]) -> None:
    """Tell how much of the whole work is done and the latest figures, if ``progress`` wants to know.

    It does if it has a method ``tell`` that takes the same.
    """
    told = getattr(progress, "tell", None)
    if told is not None:
        told(done, total, figures)


class Renaming:
    """Another progress, to which figures are told under other names."""

    def __init__(self, progress: Progress, rename: Callable[[Mapping[str, float]], Mapping[str, float]]) -> None:
        self._progress = progress
        self._rename = rename

    def __call__(self, items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
        """Return the items one by one."""
        return self._progress(items, what, total)

    def tell(self, done: int, total: int, figures: Mapping[str, float]) -> None:
        """Tell it on."""
        tell(self._progress, done, total, self._rename(figures))
