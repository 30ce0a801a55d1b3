"""The kinds of values in a layer's table: their checks, normal forms, and forms in Keras's
configurations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nnpipe.layers.problems import NetworkProblem

_DIMENSIONS_LIMIT = 32
LARGEST = 1 << 40
"""Upper bound of extents, units and filters; no real network exceeds it, and it keeps products
fast to compute.
"""


class ValueKind:
    """A kind of values.

    One object serves all layers; ``rank`` is the number of a layer's spatial axes.
    """

    def normal(self, value: Any, rank: int) -> Any:
        """Return a value in its normal form, or unchanged if it is invalid."""
        return value

    def find_fault(self, value: Any, rank: int) -> str:
        """Return what is wrong with a value in its normal form; empty if nothing is."""
        raise NotImplementedError

    def parse(self, raw: Any, path: str, found: list[NetworkProblem]) -> Any:
        """Read a value from Keras's JSON; problems are appended to ``found``."""
        return raw

    def emit(self, value: Any) -> Any:
        """Return a value as Keras's JSON."""
        return value


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number and not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_integer(value: Any) -> bool:
    """Return whether a value is an integer and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def to_tuples(value: Any) -> Any:
    """Return a value with all lists, nested ones included, turned into tuples."""
    return tuple(to_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value


def to_lists(value: Any) -> Any:
    """Return a value with all tuples, nested ones included, turned into lists."""
    return [to_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True)
class IntegerKind(ValueKind):
    """An integer within bounds, or ``None`` if ``optional``."""

    least: int = 1
    most: int = LARGEST
    optional: bool = False

    def normal(self, value: Any, rank: int) -> Any:
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def find_fault(self, value: Any, rank: int) -> str:
        if value is None and self.optional:
            return ""
        if not is_integer(value):
            return f"must be an integer, not {value!r}"
        return (
            ""
            if self.least <= value <= self.most
            else f"must be at least {self.least}, not {value}"
        )


@dataclass(frozen=True)
class NumberKind(ValueKind):
    """A finite number within bounds, or ``None`` if ``optional``."""

    least: float = -math.inf
    most: float = math.inf
    optional: bool = False

    def find_fault(self, value: Any, rank: int) -> str:
        if value is None and self.optional:
            return ""
        if not is_number(value):
            return f"must be a number, not {value!r}"
        return (
            ""
            if self.least <= value <= self.most
            else f"must be from {self.least} to {self.most}, not {value}"
        )


class FlagKind(ValueKind):
    """True or false."""

    def find_fault(self, value: Any, rank: int) -> str:
        return "" if isinstance(value, bool) else f"must be true or false, not {value!r}"


@dataclass(frozen=True)
class NameKind(ValueKind):
    """A non-empty name, such as a feature's, or ``None`` if ``optional``."""

    optional: bool = False

    def find_fault(self, value: Any, rank: int) -> str:
        if value is None and self.optional:
            return ""
        return "" if isinstance(value, str) and value else f"must be a name, not {value!r}"


@dataclass(frozen=True)
class ChoiceKind(ValueKind):
    """One of several words."""

    words: tuple[str, ...]
    optional: bool = False
    otherwise: str | None = None  # the meaning of null in a configuration

    def normal(self, value: Any, rank: int) -> Any:
        return value.lower() if isinstance(value, str) else value

    def parse(self, raw: Any, path: str, found: list[NetworkProblem]) -> Any:
        return self.otherwise if raw is None and self.otherwise else raw

    def find_fault(self, value: Any, rank: int) -> str:
        if value is None and self.optional:
            return ""
        return (
            "" if value in self.words else f"must be one of {', '.join(self.words)}, not {value!r}"
        )


@dataclass(frozen=True)
class SizesKind(ValueKind):
    """One integer for each spatial axis; a single one stands for all."""

    least: int = 1
    most: int = LARGEST
    optional: bool = False
    bare: bool = False  # whether Keras takes the value of a single axis without a list

    def normal(self, value: Any, rank: int) -> Any:
        return (value,) * rank if is_integer(value) else to_tuples(value)

    def find_fault(self, value: Any, rank: int) -> str:
        if value is None and self.optional:
            return ""
        good = isinstance(value, tuple) and len(value) == rank and all(is_integer(v) for v in value)
        if not good or not all(self.least <= v <= self.most for v in value):
            return (
                f"must be {rank} integer{'s' * (rank > 1)} of at least {self.least}, not {value!r}"
            )
        return ""

    def emit(self, value: Any) -> Any:
        return value[0] if self.bare else to_lists(value)


class PadsKind(ValueKind):
    """A pair (before, after) for each spatial axis; one number stands for a pair, or for all
    axes.
    """

    def normal(self, value: Any, rank: int) -> Any:
        value = to_tuples(value)
        if is_integer(value):
            value = (value,) * rank
        if (
            rank == 1
            and isinstance(value, tuple)
            and len(value) == 2
            and all(is_integer(v) for v in value)
        ):
            value = (value,)
        return (
            tuple((v, v) if is_integer(v) else v for v in value)
            if isinstance(value, tuple)
            else value
        )

    def find_fault(self, value: Any, rank: int) -> str:
        good = isinstance(value, tuple) and len(value) == rank
        good = good and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value)
        if not good or not all(is_integer(v) and 0 <= v <= LARGEST for pair in value for v in pair):
            return f"must be {rank} pair{'s' * (rank > 1)} of integers of at least 0, not {value!r}"
        return ""

    def emit(self, value: Any) -> Any:
        return to_lists(value[0] if len(value) == 1 else value)


@dataclass(frozen=True)
class IntegersKind(ValueKind):
    """Several integers (axes, extents), or one integer if ``single``."""

    least: int = -LARGEST
    single: bool = False
    optional: bool = False
    free: bool = False  # whether an extent may be None

    def normal(self, value: Any, rank: int) -> Any:
        value = to_tuples(value)
        # Keras 2 wrote the axis of a batch normalisation as a list of one.
        return value[0] if self.single and isinstance(value, tuple) and len(value) == 1 else value

    def find_fault(self, value: Any, rank: int) -> str:
        if (value is None and self.optional) or (self.single and is_integer(value)):
            return ""
        good = isinstance(value, tuple) and len(value) <= _DIMENSIONS_LIMIT
        if not good or not all(
            (v is None and self.free) or (is_integer(v) and self.least <= v <= LARGEST)
            for v in value
        ):
            return f"must be integers, not {value!r}"
        return ""

    def emit(self, value: Any) -> Any:
        return to_lists(value)


@dataclass(frozen=True)
class NumbersKind(ValueKind):
    """A number, or nested tuples of numbers."""

    def normal(self, value: Any, rank: int) -> Any:
        return to_tuples(value)

    def find_fault(self, value: Any, rank: int) -> str:
        return (
            "" if self._is_valid(value) else f"must be a number or lists of numbers, not {value!r}"
        )

    def _is_valid(self, value: Any) -> bool:
        return all(map(self._is_valid, value)) if isinstance(value, tuple) else is_number(value)

    def emit(self, value: Any) -> Any:
        return to_lists(value)


@dataclass(frozen=True)
class NamedKind(ValueKind):
    """A named value: an initialiser, a regulariser, a constraint or an activation."""

    reader: Callable[[Any, str, list[NetworkProblem]], Any]
    writer: Callable[[Any], Any]
    base: Callable[[], tuple[type, ...]]
    what: str
    optional: bool = False

    def normal(self, value: Any, rank: int) -> Any:
        if isinstance(value, (str, Mapping)):
            found: list[NetworkProblem] = []
            read = self.reader(value, "", found)
            return value if any(problem.code == "argument" for problem in found) else read
        return value

    def find_fault(self, value: Any, rank: int) -> str:
        if value is None:
            return "" if self.optional else f"must be {self.what}, not None"
        if not isinstance(value, self.base()):
            return f"must be {self.what}, not {value!r}"
        return "; ".join(value.faults()) if hasattr(value, "faults") else ""

    def parse(self, raw: Any, path: str, found: list[NetworkProblem]) -> Any:
        return None if raw is None else self.reader(raw, path, found)

    def emit(self, value: Any) -> Any:
        return None if value is None else self.writer(value)
