"""Parameters with a list of values: discrete, mapping and bool."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.searching.parameter import MOST_CHOICES, SearchParameter, place_at


class _Listed(SearchParameter):
    """A parameter with a list of values."""

    @property
    def count(self) -> int:
        return len(self.choices())

    def position(self, value: Any) -> float:
        choices = self.choices()
        return (_index(choices, value, self) + 0.5) / len(choices)

    def value_at(self, position: float) -> Any:
        choices = self.choices()
        return choices[place_at(position, len(choices))]


@dataclass(frozen=True)
class DiscreteParameter(_Listed):
    """One value of a list.

    Parameters
    ----------
    values
        Texts, numbers, ``True``, ``False`` or ``None``.
    ordered
        Whether neighbours in the list are alike, as in a list of sizes.
    """

    kind: ClassVar[str] = "discrete"

    values: Sequence[str | float | bool | None]
    ordered: bool = False

    def __post_init__(self) -> None:
        check_call(DiscreteParameter, vars(self))
        _check_count(self.values, "values")
        if any(isinstance(value, float) and not math.isfinite(value) for value in self.values):
            raise ConfigError("values: expected finite numbers")
        if len(set(self.values)) < len(self.values):
            raise ConfigError("values: two of them are equal")
        object.__setattr__(self, "values", tuple(self.values))

    @property
    def in_order(self) -> bool:
        """Whether values that are near each other are alike."""
        return self.ordered

    def choices(self) -> list[Any]:
        """Return all values in their order."""
        return list(self.values)


@dataclass(frozen=True)
class MappingParameter(_Listed):
    """One of several named things, which may be objects, such as the arguments of a component.

    Parameters
    ----------
    values
        What each name stands for.  Configurations hold the name.
    """

    kind: ClassVar[str] = "mapping"

    values: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_call(MappingParameter, vars(self))
        _check_count(self.values, "values")
        object.__setattr__(self, "values", dict(self.values))

    @property
    def in_order(self) -> bool:
        """Names are not in order."""
        return False

    def choices(self) -> list[Any]:
        """Return all names in their order."""
        return list(self.values)

    def argument(self, value: Any) -> Any:
        """Return what a name stands for."""
        if value not in self.choices():
            raise self.refused(value)
        return self.values[value]


@dataclass(frozen=True)
class BoolParameter(_Listed):
    """False or true."""

    kind: ClassVar[str] = "bool"

    @property
    def in_order(self) -> bool:
        """Two values are in no order."""
        return False

    def choices(self) -> list[Any]:
        """Return both values."""
        return [False, True]


def _check_count(values: Sequence[Any] | Mapping[str, Any], name: str) -> None:
    if not 1 <= len(values) <= MOST_CHOICES:
        raise ConfigError(f"{name}: expected 1 to {MOST_CHOICES:,} of them, found {len(values):,}")


def _index(choices: list[Any], value: Any, parameter: SearchParameter) -> int:
    for index, choice in enumerate(choices):
        if choice == value and isinstance(choice, bool) == isinstance(value, bool):
            return index
    raise parameter.refused(value)
