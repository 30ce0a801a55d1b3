"""Histories of numbers, such as the loss of each epoch, and running statistics by name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.module import Module, StateError, check_names
from nnpipe.experiment.state import AppendOnly

Number = int | float | bool


class History(Module):
    """Rows of numbers by name; rows may have different names.

    ::

        history.append(step=100, loss=0.5)
        history.append(step=200, loss=0.4, accuracy=0.8)
        history["accuracy"]  # array([nan, 0.8])

    Attributes
    ----------
    about
        Facts about the whole history, such as which weights a training left; not part of its state.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Number]] = AppendOnly()
        self.about: dict[str, Any] = {}

    def append(self, **values: Number) -> None:
        """Add a row.

        Raises
        ------
        ConfigError
            If a value is not a number.  Scalars of numpy and PyTorch are converted.
        """
        self._rows.append({name: _to_number(name, value) for name, value in values.items()})

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of their first use."""
        return tuple(dict.fromkeys(name for row in self._rows for name in row))

    @property
    def last(self) -> dict[str, Number]:
        """The last row; empty if there is none."""
        return dict(self._rows[-1]) if self._rows else {}

    def __getitem__(self, name: str) -> npt.NDArray[np.float64]:
        """Return a column, float64 ``(rows,)``, with NaN where a row lacks the name."""
        if name not in self.names:
            raise KeyError(name)
        return np.array([row.get(name, math.nan) for row in self._rows], np.float64)

    def best(self, name: str, *, largest: bool = False) -> int:
        """Return the index of the first row with the least (or greatest) value of a name.

        Raises
        ------
        ConfigError
            If no row has such a value, or all are NaN.
        """
        column = self[name] if name in self.names else np.empty(0)
        if not np.isfinite(column).any():
            raise ConfigError(f"no row has a value of {name!r}")
        return int(np.nanargmax(column) if largest else np.nanargmin(column))

    def rows(self) -> Iterator[dict[str, Number]]:
        """Yield each row."""
        return (dict(row) for row in self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def state_dict(self) -> dict[str, Any]:
        """Return the rows."""
        return {"rows": AppendOnly(self._rows)}

    def check_state(self, state: Mapping[str, Any], path: str = "") -> None:
        """Raise :class:`StateError` unless the state consists of rows of numbers."""
        where = path or "History"
        if (
            not isinstance(state, Mapping)
            or set(state) != {"rows"}
            or not isinstance(state["rows"], list)
        ):
            raise StateError(f"{where}: expected the rows of a history")
        for number, row in enumerate(state["rows"]):
            if not isinstance(row, Mapping) or not all(
                isinstance(v, (int, float)) for v in row.values()
            ):
                raise StateError(f"{where}: row {number} is not one of numbers")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.check_state(state)
        self._rows = AppendOnly(dict(row) for row in state["rows"])


def _to_number(name: str, value: Any) -> Number:
    if isinstance(value, (bool, int, float)) and type(value).__module__ == "builtins":
        return value
    item = getattr(value, "item", None)
    try:
        found = item() if item is not None else value
    except (ValueError, RuntimeError):  # more than one element
        found = value
    if not isinstance(found, (bool, int, float)):
        raise ConfigError(f"{name}: a history holds numbers, not {type(value).__name__}")
    return found


@dataclass(frozen=True)
class Statistic:
    """The summary of a stream of values.

    ``spread`` is the weighted sum of squared distances from the mean; see
    :attr:`variance`.  Merging follows T. F. Chan, G. H. Golub and R. J. LeVeque,
    "Updating formulae and a pairwise algorithm for computing sample variances"
    (1979), with weights.
    """

    count: int = 0
    weight: float = 0.0
    mean: float = 0.0
    spread: float = 0.0
    least: float = math.inf
    greatest: float = -math.inf

    @property
    def variance(self) -> float:
        """The weighted variance of the values; NaN before the first one."""
        return self.spread / self.weight if self.weight else math.nan

    @property
    def deviation(self) -> float:
        """The square root of the variance."""
        return math.sqrt(self.variance) if self.weight else math.nan

    @classmethod
    def from_values(cls, values: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Statistic:
        """Return the statistic of values of any shape; weights have the same shape and are 1 by
        default.

        Raises
        ------
        ConfigError
            If shapes differ or a weight is negative.
        """
        numbers = np.asarray(values, np.float64).reshape(-1)
        shares = (
            np.ones_like(numbers)
            if weights is None
            else np.asarray(weights, np.float64).reshape(-1)
        )
        if len(shares) != len(numbers):
            raise ConfigError(f"{len(numbers)} values need as many weights, not {len(shares)}")
        if (shares < 0).any():
            raise ConfigError("weights cannot be negative")
        total = float(shares.sum())
        if not total:
            return cls()
        mean = float(numbers @ shares / total)
        spread = float(((numbers - mean) ** 2) @ shares)
        counted = numbers[shares > 0]
        return cls(len(counted), total, mean, spread, float(counted.min()), float(counted.max()))

    def merge(self, other: Statistic) -> Statistic:
        """Return the statistic of two streams together."""
        if not self.weight or not other.weight:
            return other if other.weight else self
        weight, apart = self.weight + other.weight, other.mean - self.mean
        return Statistic(
            self.count + other.count,
            weight,
            self.mean + apart * other.weight / weight,
            self.spread + other.spread + apart * apart * self.weight * other.weight / weight,
            min(self.least, other.least),
            max(self.greatest, other.greatest),
        )


class Statistics(Module):
    """Statistics by name.

    ::

        statistics.add("loss", losses, weights)
        statistics["loss"].mean
    """

    def __init__(self) -> None:
        self._found: dict[str, Statistic] = {}

    def add(self, name: str, values: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> None:
        """Add values to the stream of this name, which is created if necessary."""
        self._found[name] = self._found.get(name, Statistic()).merge(
            Statistic.from_values(values, weights)
        )

    def clear(self) -> None:
        """Remove all streams."""
        self._found.clear()

    def means(self) -> dict[str, float]:
        """Return the mean of each stream, by name."""
        return {name: found.mean for name, found in self._found.items()}

    def __getitem__(self, name: str) -> Statistic:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def state_dict(self) -> dict[str, Any]:
        """Return the fields of each stream."""
        return {name: asdict(found) for name, found in self._found.items()}

    def check_state(self, state: Mapping[str, Any], path: str = "") -> None:
        """Raise :class:`StateError` unless every entry has the fields of a statistic."""
        where = path or "Statistics"
        if not isinstance(state, Mapping):
            super().check_state(state, path)
        for name, fields in state.items():
            if not isinstance(name, str) or not isinstance(fields, Mapping):
                raise StateError(f"{where}: {name!r} is no statistic")
            check_names(f"{where}.{name}", asdict(Statistic()), fields)
            if not all(isinstance(value, (int, float)) for value in fields.values()):
                raise StateError(f"{where}.{name}: a statistic is made of numbers")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.check_state(state)
        self._found = {name: Statistic(**fields) for name, fields in state.items()}
