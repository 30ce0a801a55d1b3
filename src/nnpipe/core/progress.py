"""How long work tells how far it is, without knowing who listens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """Wraps an iterable and shows how far it is; ``total`` where the iterable has no length."""

    def __call__(self, items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
        """Give the items one by one."""
        raise NotImplementedError


def silent(items: Iterable[T], what: str, total: int | None = None) -> Iterable[T]:
    """Show nothing: the default of every function that takes a ``progress``."""
    return items
