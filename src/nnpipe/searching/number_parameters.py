"""Parameters that are numbers: int, uniform and power."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.searching.parameter import MOST_CHOICES, SearchParameter, place_at

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
            raise ConfigError(f"expected bounds within 2 to the power of 53 and a step of at least 1: {self.text}")
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
            raise self.refused(value)
        if self.log:
            return _log_position(value, self.low - 0.5, self.high + 0.5)
        return float(((value - self.low) // self.step + 0.5) / self.count)

    def value_at(self, position: float) -> int:
        """Return the value at a position from 0 to 1."""
        if self.log:
            value = round(_log_value(position, self.low - 0.5, self.high + 0.5))
            return min(max(value, self.low), self.high)
        return self.low + place_at(position, self.count) * self.step

    def choices(self) -> list[Any]:
        """Return all values, if there are not too many for a list."""
        if self.count > MOST_CHOICES:
            raise ConfigError(f"{self.text} has {self.count:,} values, more than the {MOST_CHOICES:,} of a list")
        return list(range(self.low, self.high + 1, self.step))


@dataclass(frozen=True)
class UniformParameter(SearchParameter):
    """A real number between two bounds, all of them alike.

    Parameters
    ----------
    low, high
        The inclusive bounds.
    step
        The distance of neighbouring values, counted from ``low``; by default every number is possible.
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
        return None if self.step is None else math.floor((self.high - self.low) / self.step + 1e-9) + 1

    def position(self, value: Any) -> float:
        """Return where a value lies among all, from 0 to 1."""
        _check_real(value, self.low, self.high, self)
        if self.count is None:
            return 0.5 if self.low == self.high else float((value - self.low) / (self.high - self.low))
        index = round((value - self.low) / (self.step or 1.0))
        if not math.isclose(value, self._step_at(index), rel_tol=1e-9, abs_tol=1e-9 * (self.step or 1.0)):
            raise self.refused(value)
        return float((index + 0.5) / self.count)

    def value_at(self, position: float) -> float:
        """Return the value at a position from 0 to 1."""
        if self.count is None:
            return min(max(self.low + position * (self.high - self.low), self.low), self.high)
        return self._step_at(place_at(position, self.count))

    def choices(self) -> list[Any]:
        """Return all values, if there is a step and they are not too many for a list."""
        if self.count is None or self.count > MOST_CHOICES:
            return super().choices()
        return [self._step_at(index) for index in range(self.count)]

    def _step_at(self, index: int) -> float:
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
            raise ConfigError(f"expected exponents of ten within {_GREATEST_EXPONENT:g}: {self.text}")

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

    def value_at(self, position: float) -> float:
        """Return the value at a position from 0 to 1."""
        least, greatest = self.bounds
        return min(max(_log_value(position, least, greatest), least), greatest)


def _check_bounds(low: float, high: float) -> None:
    # Whole numbers may be too large for a float.
    if not -sys.float_info.max <= low <= high <= sys.float_info.max:
        raise ConfigError(f"expected finite bounds with low <= high, found {low} and {high}")


def _check_real(value: Any, low: float, high: float, parameter: SearchParameter) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise parameter.refused(value)


def _log_position(value: float, low: float, high: float) -> float:
    return 0.5 if low == high else min(max(math.log(value / low) / math.log(high / low), 0.0), 1.0)


def _log_value(position: float, low: float, high: float) -> float:
    return low * math.exp(position * math.log(high / low))
