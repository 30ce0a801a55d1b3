"""The base of the settings of samplers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from nnpipe.searching.kinds import OfAKind

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


class SearchSampler(OfAKind, ABC):
    """Base of the settings of samplers: frozen, and written as ``{"kind": ..., ...}``."""

    several_objectives: ClassVar[bool] = True
    """Whether it takes several objectives."""
    most: ClassVar[int | None] = None
    """How many ended trials it looks at at most; ``None`` for all."""
    notes: ClassVar[tuple[str, ...]] = ()
    """How the names of what it notes with a trial begin."""
    needs: ClassVar[tuple[str, ...]] = ("optuna",)
    """The packages that it needs, beside those of nnpipe."""

    @abstractmethod
    def made(self, seed: int, limited: bool = False) -> BaseSampler:
        """Return Optuna's sampler, new; with ``limited``, it prefers trials that keep the limits, if it can."""

    def again(self, sampler: BaseSampler, seed: int, limited: bool = False) -> BaseSampler:
        """Return a sampler that has been used before as if it were new with this seed."""
        return self.made(seed, limited)
