"""Running statistics by name: count, mean, spread and extremes, in one pass without storing values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.module import Module, StateError, check_names


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
    def of(cls, values: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Statistic:
        """Return the statistic of values of any shape; weights have the same shape and are 1 by default.

        Raises
        ------
        ConfigError
            If shapes differ or a weight is negative.
        """
        numbers = np.asarray(values, np.float64).reshape(-1)
        shares = np.ones_like(numbers) if weights is None else np.asarray(weights, np.float64).reshape(-1)
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

    def merged(self, other: Statistic) -> Statistic:
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
        self._found[name] = self._found.get(name, Statistic()).merged(Statistic.of(values, weights))

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
