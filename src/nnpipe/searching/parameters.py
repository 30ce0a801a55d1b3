"""The parameters of a search space: discrete, mapping, int, bool, uniform and power."""

from __future__ import annotations

import json
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, TypeVar

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.experiment.settings import check_keys

__all__ = [
    "KINDS",
    "MOST_CHOICES",
    "BoolParameter",
    "DiscreteParameter",
    "IntParameter",
    "K",
    "MappingParameter",
    "PowerParameter",
    "SearchParameter",
    "TaggedDataclass",
    "UniformParameter",
    "create_by_kind",
    "get_index_at",
    "parse_parameter",
]


class TaggedDataclass:
    """Base of dataclasses that are told apart by their ``kind``."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Return the kind, and the arguments that differ from their defaults."""
        found: dict[str, Any] = {"kind": self.kind}
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if each.default is MISSING or value != each.default:
                found[each.name] = list(value) if isinstance(value, tuple) else value
        return found


K = TypeVar("K", bound=TaggedDataclass)


def create_by_kind(entry: Any, kinds: Mapping[str, type[K]], where: str) -> K:
    """Return the object of an entry with a ``kind`` and arguments; a text is a kind with its
    defaults.

    Raises
    ------
    ConfigError
        If the entry is wrong; the message begins with ``where``.
    """
    for each in kinds.values():
        if isinstance(entry, each):
            return entry
    given = {"kind": entry} if isinstance(entry, str) else entry
    if (
        not isinstance(given, dict)
        or not isinstance(given.get("kind"), str)
        or given["kind"] not in kinds
    ):
        found = given.get("kind") if isinstance(given, dict) else given
        raise ConfigError(
            f"{where}: expected an object with a kind ({', '.join(kinds)}), found {found!r}"
        )
    cls = kinds[given["kind"]]
    declared = fields(cls)  # type: ignore[arg-type]
    required = [each.name for each in declared if each.default is MISSING]
    arguments = check_keys(
        {name: value for name, value in given.items() if name != "kind"},
        [each.name for each in declared],
        where,
        required,
    )
    try:
        return cls(**arguments)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


MOST_CHOICES = 10_000
"""The greatest number of values of a list."""


class SearchParameter(TaggedDataclass, ABC):
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
    def get_value_at(self, position: float) -> Any:
        """Return the value at a position from 0 to 1; without a logarithm, all values have equal
        shares.
        """

    def get_argument(self, value: Any) -> Any:
        """Return what a value stands for; except for mappings, this is the value itself."""
        return value

    def choices(self) -> list[Any]:
        """Return all values of a finite parameter, in their order."""
        raise ConfigError(f"{self.text} has no list of values")

    @property
    def text(self) -> str:
        """The parameter in JSON, for messages."""
        return json.dumps(self.to_json())[:200]

    def build_value_error(self, value: Any) -> ConfigError:
        """Return the error about a value that the parameter does not have."""
        return ConfigError(f"{value!r} is not a value of {self.text}")


def get_index_at(position: float, count: int) -> int:
    """Return which of some values lies at a position from 0 to 1."""
    return min(max(int(position * count), 0), count - 1)


class _ListParameter(SearchParameter):
    """A parameter with a list of values."""

    @property
    def count(self) -> int:
        return len(self.choices())

    def position(self, value: Any) -> float:
        choices = self.choices()
        return (_index(choices, value, self) + 0.5) / len(choices)

    def get_value_at(self, position: float) -> Any:
        choices = self.choices()
        return choices[get_index_at(position, len(choices))]


@dataclass(frozen=True)
class DiscreteParameter(_ListParameter):
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
class MappingParameter(_ListParameter):
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

    def get_argument(self, value: Any) -> Any:
        """Return what a name stands for."""
        if value not in self.choices():
            raise self.build_value_error(value)
        return self.values[value]


@dataclass(frozen=True)
class BoolParameter(_ListParameter):
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
    raise parameter.build_value_error(value)


_EXACT = 1 << 53  # doubles represent whole numbers exactly up to here
_GREATEST_EXPONENT = 300.0


@dataclass(frozen=True)
class IntParameter(SearchParameter):
    """A whole number.

    Parameters
    ----------
    low, high
        The inclusive bounds.
    step
        The distance of neighbouring values, counted from ``low``.
    log
        Whether equal ratios matter equally, as from 1 to 1,000; only with a step of 1.
    """

    kind: ClassVar[str] = "int"

    low: int
    high: int
    step: int = 1
    log: bool = False

    def __post_init__(self) -> None:
        check_call(IntParameter, vars(self))
        _check_bounds(self.low, self.high)
        if self.step < 1 or max(abs(self.low), abs(self.high)) > _EXACT:
            raise ConfigError(
                f"expected bounds within 2 to the power of 53 and a step of at least 1: {self.text}"
            )
        if self.log and (self.low < 1 or self.step != 1):
            raise ConfigError(f"with a logarithm, low is at least 1 and the step is 1: {self.text}")
        object.__setattr__(self, "high", self.low + (self.high - self.low) // self.step * self.step)

    @property
    def count(self) -> int:
        """The number of values."""
        return (self.high - self.low) // self.step + 1

    def position(self, value: Any) -> float:
        """Return where a value lies among all, from 0 to 1."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not self.low <= value <= self.high or (value - self.low) % self.step:
            raise self.build_value_error(value)
        if self.log:
            return _log_position(value, self.low - 0.5, self.high + 0.5)
        return float(((value - self.low) // self.step + 0.5) / self.count)

    def get_value_at(self, position: float) -> int:
        """Return the value at a position from 0 to 1."""
        if self.log:
            value = round(_log_value(position, self.low - 0.5, self.high + 0.5))
            return min(max(value, self.low), self.high)
        return self.low + get_index_at(position, self.count) * self.step

    def choices(self) -> list[Any]:
        """Return all values, if there are not too many for a list."""
        if self.count > MOST_CHOICES:
            raise ConfigError(
                f"{self.text} has {self.count:,} values, more than the {MOST_CHOICES:,} of a list"
            )
        return list(range(self.low, self.high + 1, self.step))


@dataclass(frozen=True)
class UniformParameter(SearchParameter):
    """A real number between two bounds, all of them alike.

    Parameters
    ----------
    low, high
        The inclusive bounds.
    step
        The distance of neighbouring values, counted from ``low``; by default every number is
        possible.
    """

    kind: ClassVar[str] = "uniform"

    low: float
    high: float
    step: float | None = None

    def __post_init__(self) -> None:
        check_call(UniformParameter, vars(self))
        _check_bounds(self.low, self.high)
        if self.step is not None and not (math.isfinite(self.step) and self.step > 0):
            raise ConfigError(f"expected a step above 0: {self.text}")

    @property
    def count(self) -> int | None:
        """The number of values; ``None`` without a step."""
        return (
            None if self.step is None else math.floor((self.high - self.low) / self.step + 1e-9) + 1
        )

    def position(self, value: Any) -> float:
        """Return where a value lies among all, from 0 to 1."""
        _check_real(value, self.low, self.high, self)
        if self.count is None:
            return (
                0.5 if self.low == self.high else float((value - self.low) / (self.high - self.low))
            )
        index = round((value - self.low) / (self.step or 1.0))
        if not math.isclose(
            value, self._get_step(index), rel_tol=1e-9, abs_tol=1e-9 * (self.step or 1.0)
        ):
            raise self.build_value_error(value)
        return float((index + 0.5) / self.count)

    def get_value_at(self, position: float) -> float:
        """Return the value at a position from 0 to 1."""
        if self.count is None:
            return min(max(self.low + position * (self.high - self.low), self.low), self.high)
        return self._get_step(get_index_at(position, self.count))

    def choices(self) -> list[Any]:
        """Return all values, if there is a step and they are not too many for a list."""
        if self.count is None or self.count > MOST_CHOICES:
            return super().choices()
        return [self._get_step(index) for index in range(self.count)]

    def _get_step(self, index: int) -> float:
        return self.low + index * (self.step or 0.0)


@dataclass(frozen=True)
class PowerParameter(SearchParameter):
    """Ten to the power of a real number between two bounds, such as a learning rate.

    Parameters
    ----------
    low, high
        The inclusive bounds of the exponent: -5 and -1 for values from 0.00001 to 0.1.
    """

    kind: ClassVar[str] = "power"

    low: float
    high: float

    def __post_init__(self) -> None:
        check_call(PowerParameter, vars(self))
        _check_bounds(self.low, self.high)
        if max(abs(self.low), abs(self.high)) > _GREATEST_EXPONENT:
            raise ConfigError(
                f"expected exponents of ten within {_GREATEST_EXPONENT:g}: {self.text}"
            )

    @property
    def count(self) -> None:
        """Values are real numbers."""
        return None

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value."""
        return 10.0**self.low, 10.0**self.high

    def position(self, value: Any) -> float:
        """Return where a value's logarithm lies, from 0 to 1."""
        _check_real(value, *self.bounds, self)
        return _log_position(value, *self.bounds)

    def get_value_at(self, position: float) -> float:
        """Return the value at a position from 0 to 1."""
        least, greatest = self.bounds
        return min(max(_log_value(position, least, greatest), least), greatest)


def _check_bounds(low: float, high: float) -> None:
    # Whole numbers may be too large for a float.
    if not -sys.float_info.max <= low <= high <= sys.float_info.max:
        raise ConfigError(f"expected finite bounds with low <= high, found {low} and {high}")


def _check_real(value: Any, low: float, high: float, parameter: SearchParameter) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise parameter.build_value_error(value)


def _log_position(value: float, low: float, high: float) -> float:
    return 0.5 if low == high else min(max(math.log(value / low) / math.log(high / low), 0.0), 1.0)


def _log_value(position: float, low: float, high: float) -> float:
    return low * math.exp(position * math.log(high / low))


KINDS: dict[str, type[SearchParameter]] = {
    cls.kind: cls
    for cls in (
        DiscreteParameter,
        MappingParameter,
        IntParameter,
        BoolParameter,
        UniformParameter,
        PowerParameter,
    )
}
"""The parameters by kind."""


def parse_parameter(entry: Any, where: str) -> SearchParameter:
    """Return the parameter of an entry such as ``{"kind": "int", "low": 1, "high": 5}``.

    Raises
    ------
    ConfigError
        If the entry is wrong; the message begins with ``where``.
    """
    return create_by_kind(entry, KINDS, where)
