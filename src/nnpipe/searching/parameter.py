"""The base of the parameters of a search space."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.searching.kinds import OfAKind

MOST_CHOICES = 10_000
"""The greatest number of values of a list."""


class SearchParameter(OfAKind, ABC):
    """Base of all parameters: frozen, and written as ``{"kind": ..., ...}``.

    A parameter knows which values it takes, and where a value lies among them, from 0 to 1.
    """

    @property
    @abstractmethod
    def count(self) -> int | None:
        """The number of values; ``None`` if they are real numbers."""

    @property
    def in_order(self) -> bool:
        """Whether values that are near each other are alike."""
        return True

    @abstractmethod
    def position(self, value: Any) -> float:
        """Return where a value lies among all, from 0 to 1.

        Raises
        ------
        ConfigError
            If the parameter does not have this value.
        """

    @abstractmethod
    def value_at(self, position: float) -> Any:
        """Return the value at a position from 0 to 1; without a logarithm, all values have equal shares."""

    def argument(self, value: Any) -> Any:
        """Return what a value stands for; except for mappings, this is the value itself."""
        return value

    def choices(self) -> list[Any]:
        """Return all values of a finite parameter, in their order."""
        raise ConfigError(f"{self.text} has no list of values")

    @property
    def text(self) -> str:
        """The parameter in JSON, for messages."""
        return json.dumps(self.to_json())[:200]

    def refused(self, value: Any) -> ConfigError:
        """Return the error about a value that the parameter does not have."""
        return ConfigError(f"{value!r} is not a value of {self.text}")


def place_at(position: float, count: int) -> int:
    """Return which of some values lies at a position from 0 to 1."""
    return min(max(int(position * count), 0), count - 1)
