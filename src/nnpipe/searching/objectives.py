"""What a search minimises and maximises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np

from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.searching.trial_store import SearchTrial

Direction = Literal["minimize", "maximize"]

_MOST = 10


@dataclass(frozen=True)
class Limit:
    """A bound on a value that trials return: on an objective, or on another one.

    Parameters
    ----------
    name
        The name of the value.
    bound
        The greatest value if ``at_most``, otherwise the least.
    at_most
        Whether it is an upper bound.
    """

    name: str
    bound: float
    at_most: bool = True

    def compute_excess(self, value: float) -> float:
        """Return by how much a value is beyond the bound, as a share of it where it is not 0;
        negative within it.
        """
        beyond = value - self.bound if self.at_most else self.bound - value
        return beyond / (abs(self.bound) or 1.0)


@dataclass(frozen=True)
class Objectives:
    """The objectives of a search by name, each with its direction.

    Parameters
    ----------
    by_name
        ``minimize`` or ``maximize``, by the name of each value.
    limits
        Bounds that a trial has to keep to be the best one, or on the front.

    Raises
    ------
    ConfigError
        If there are none or too many, or a direction is unknown.
    """

    by_name: Mapping[str, str]
    limits: tuple[Limit, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.by_name, Mapping) or not 1 <= len(self.by_name) <= _MOST:
            raise ConfigError(
                f"objectives: expected 1 to {_MOST} names, each with minimize or maximize"
            )
        for name, direction in self.by_name.items():
            if not isinstance(name, str) or not name:
                raise ConfigError(f"objectives: {name!r} is no name")
            if direction not in get_args(Direction):
                raise ConfigError(
                    f"objectives.{name}: expected minimize or maximize, found {direction!r}"
                )
        object.__setattr__(self, "by_name", dict(self.by_name))

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(self.by_name)

    @property
    def measured(self) -> tuple[str, ...]:
        """The names of all values that a trial returns: the objectives, and those that have
        limits.
        """
        return tuple(dict.fromkeys((*self.names, *(limit.name for limit in self.limits))))

    def compute_excesses(self, values: Mapping[str, float]) -> list[float]:
        """Return by how much values are beyond each limit; negative within it."""
        return [limit.compute_excess(values[limit.name]) for limit in self.limits]

    def keeps(self, trial: SearchTrial) -> bool:
        """Return whether a trial is finished and its values are within all limits."""
        if trial.state != "finished" or not set(self.measured) <= trial.values.keys():
            return False
        return all(excess <= 0 for excess in self.compute_excesses(trial.values))

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions in order."""
        return cast("tuple[Direction, ...]", tuple(self.by_name.values()))

    @property
    def only(self) -> str:
        """The name of the only objective; the first of several."""
        return self.names[0]

    def one(self, name: str | None, where: str) -> str:
        """Return the objective of a name, or the only one.

        Raises
        ------
        ConfigError
            If there is no such objective, or several of which none is named.
        """
        if name is None and len(self.by_name) == 1:
            return self.only
        if name is None:
            raise ConfigError(f"{where}: name one of the objectives: {', '.join(self.names)}")
        if name not in self.by_name:
            hint = suggest_name(name, self.names) or f"; there are: {', '.join(self.names)}"
            raise ConfigError(f"{where}: there is no objective {name!r}{hint}")
        return name

    def values(self, returned: Any) -> dict[str, float]:
        """Return the value of each objective from what a searched function returned: a number, or
        numbers by name.

        Raises
        ------
        ConfigError
            If a value is missing, no number, or not finite.
        """
        if isinstance(returned, Mapping):
            missing = [name for name in self.measured if name not in returned]
            if missing:
                raise ConfigError(
                    f"returned no {missing[0]!r}, but: {', '.join(map(str, returned)) or 'nothing'}"
                )
            given = {name: returned[name] for name in self.measured}
        elif len(self.measured) > 1:
            raise ConfigError(
                f"returned {type(returned).__name__}; expected a number for each of "
                f"{', '.join(self.measured)}"
            )
        else:
            given = {self.only: returned}
        return {name: require_finite(value, name) for name, value in given.items()}

    def losses(self, values: Mapping[str, float]) -> list[float]:
        """Return the values in order, those to maximise with the other sign: less is better."""
        return [
            values[name] if way == "minimize" else -values[name]
            for name, way in self.by_name.items()
        ]

    def is_better(self, name: str, one: float, other: float) -> bool:
        """Return whether a value of an objective is better than another one."""
        return one < other if self.by_name[name] == "minimize" else one > other

    def best(self, trials: Sequence[SearchTrial], name: str) -> SearchTrial | None:
        """Return the finished trial with the best value of an objective, the first of equals;
        ``None`` without one.

        A trial beyond a limit is not the best one.
        """
        found = [trial for trial in trials if self.keeps(trial)]
        sign = 1 if self.by_name[name] == "minimize" else -1
        return min(found, key=lambda trial: (sign * trial.values[name], trial.number), default=None)

    def find_front(self, trials: Sequence[SearchTrial]) -> tuple[SearchTrial, ...]:
        """Return the Pareto front: the finished trials that no other one equals or beats in every
        objective.

        Trials beyond a limit are left out.  They are ordered by the first objective, the best
        first.
        """
        found = [trial for trial in trials if self.keeps(trial)]
        losses = {trial.number: self.losses(trial.values) for trial in found}
        front: list[SearchTrial] = []
        # Sorted by losses, a trial can only be dominated by one before it.
        for trial in sorted(found, key=lambda each: (losses[each.number], each.number)):
            own = np.array(losses[trial.number])
            if not any((np.array(losses[other.number]) <= own).all() for other in front):
                front.append(trial)
        return tuple(front)


def require_finite(value: Any, name: str) -> float:
    """Return a number as a float.

    Raises
    ------
    ConfigError
        If it is no number or not finite.
    """
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name}: expected a number, found {type(value).__name__}") from None
    if not np.isfinite(found):
        raise ConfigError(f"{name}: expected a finite number, found {found}")
    return found
