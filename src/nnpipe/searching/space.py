"""A search space: parameters, the conditions under which they exist, and constraints between them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.naming import nearest
from nnpipe.searching.expressions import SpaceExpression
from nnpipe.searching.parameters import KINDS, SearchParameter, parameter_from_json

_NAME = re.compile(r"[^\W\d]\w*(\.\w+)*")
_MOST_PARAMETERS = 1000

Choose = Callable[[str, SearchParameter], Any]
"""Returns the value of a parameter."""


@dataclass(frozen=True)
class SearchSpace:
    """What a search chooses from.

    Parameters
    ----------
    parameters
        The parameters by name; a name consists of letters, digits and ``_``, and may have dots.
    conditions
        By name of a parameter, the expression that must hold if the parameter is to exist.  It does not exist either
        if a parameter in its condition does not exist.
    constraints
        Expressions that hold for every configuration.  One with a parameter that does not exist is not asked.

    Raises
    ------
    ConfigError
        If a name is unknown or cannot be used, or conditions depend on each other in a circle.
    """

    parameters: Mapping[str, SearchParameter]
    conditions: Mapping[str, SpaceExpression] = field(default_factory=dict)
    constraints: tuple[SpaceExpression, ...] = ()
    order: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The names in an order in which each comes after those of its condition."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", dict(self.parameters))
        object.__setattr__(self, "conditions", dict(self.conditions))
        if not 1 <= len(self.parameters) <= _MOST_PARAMETERS:
            raise ConfigError(f"a search space has 1 to {_MOST_PARAMETERS:,} parameters, not {len(self.parameters):,}")
        for name in self.parameters:
            if not _NAME.fullmatch(name):
                raise ConfigError(f"{name!r} is no name of a parameter; use letters, digits, '_' and '.'")
        for name, condition in self.conditions.items():
            self._check_names((name,), "conditions")
            self._check_names(condition.names, f"{name}: when: {condition.text!r}")
        for constraint in self.constraints:
            self._check_names(constraint.names, repr(constraint.text))
            if not constraint.names:
                raise ConfigError(f"{constraint.text!r}: names no parameter, so it says nothing about configurations")
        object.__setattr__(self, "order", self._ordered())

    @classmethod
    def from_json(
        cls, parameters: Mapping[str, Any], constraints: Sequence[Any] = (), where: str = "space"
    ) -> SearchSpace:
        """Return the space of entries by name, such as ``{"kind": "int", "low": 1, "high": 5, "when": "a == 1"}``.

        Raises
        ------
        ConfigError
            If an entry or a constraint is wrong; the message names its place.
        """
        if not isinstance(parameters, Mapping):
            raise ConfigError(f"{where}: expected parameters by name, found {type(parameters).__name__}")
        found, conditions = {}, {}
        for name, entry in parameters.items():
            if isinstance(entry, dict) and "when" in entry:
                conditions[name] = _expression(entry["when"], f"{where}.{name}.when")
                entry = {key: value for key, value in entry.items() if key != "when"}
            found[name] = parameter_from_json(entry, f"{where}.{name}")
        if not isinstance(constraints, (list, tuple)):
            raise ConfigError(f"constraints: expected a list of expressions, found {type(constraints).__name__}")
        limits = tuple(_expression(text, f"constraints.{i}") for i, text in enumerate(constraints))
        try:
            return cls(found, conditions, limits)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """Return the space as an object with ``parameters`` and ``constraints``."""
        entries = {name: parameter.to_json() for name, parameter in self.parameters.items()}
        for name, condition in self.conditions.items():
            entries[name]["when"] = condition.text
        return {"parameters": entries, "constraints": [constraint.text for constraint in self.constraints]}

    def configuration(self, choose: Choose) -> dict[str, Any]:
        """Return the configuration of the values that ``choose`` returns for the parameters that exist."""
        found: dict[str, Any] = {}
        for name in self.order:
            if self.exists(name, found):
                found[name] = choose(name, self.parameters[name])
        return found

    def exists(self, name: str, before: Mapping[str, Any]) -> bool:
        """Return whether a parameter exists, given the values of those that come before it in the order."""
        condition = self.conditions.get(name)
        return condition is None or (condition.names <= before.keys() and condition.holds(before))

    def allows(self, configuration: Mapping[str, Any]) -> bool:
        """Return whether a configuration satisfies all constraints."""
        return all(each.holds(configuration) for each in self.constraints if each.names <= configuration.keys())

    def fits(self, configuration: Mapping[str, Any]) -> bool:
        """Return whether a configuration has a value of every parameter that exists in it, and no others."""
        try:
            self.check(configuration)
        except ConfigError:
            return False
        return True

    def contains(self, configuration: Mapping[str, Any]) -> bool:
        """Return whether a configuration fits, and satisfies all constraints."""
        return self.fits(configuration) and self.allows(configuration)

    def check(self, configuration: Mapping[str, Any]) -> None:
        """Raise :class:`ConfigError` unless a configuration is one of this space; constraints are not asked."""
        for name in configuration:
            self._check_names((name,), "a configuration")
        seen: dict[str, Any] = {}
        for name in self.order:
            if self.exists(name, seen):
                if name not in configuration:
                    raise ConfigError(f"{name}: this configuration has no value of it")
                try:
                    self.parameters[name].position(configuration[name])
                except ConfigError as error:
                    raise ConfigError(f"{name}: {error}") from None
                seen[name] = configuration[name]
        for name in configuration:
            if name not in seen:
                raise ConfigError(f"{name}: does not exist in this configuration ({self.conditions[name].text})")

    def arguments(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the values of a configuration stand for, by name."""
        return {name: self.parameters[name].argument(value) for name, value in configuration.items()}

    @property
    def count(self) -> int | None:
        """The number of configurations, or more where there are conditions or constraints; ``None`` if infinite."""
        counts = [parameter.count for parameter in self.parameters.values()]
        return None if None in counts else math.prod(count for count in counts if count)

    def configurations(self, choices: Mapping[str, Sequence[Any]] | None = None) -> Iterator[dict[str, Any]]:
        """Yield every configuration that the constraints allow; the first parameter changes most slowly.

        Parameters
        ----------
        choices
            The values to use, by name; needed for parameters of real numbers.
        """
        lists = {
            name: list(choices[name]) if choices and name in choices else parameter.choices()
            for name, parameter in self.parameters.items()
        }

        def beyond(index: int, before: dict[str, Any]) -> Iterator[dict[str, Any]]:
            if index == len(self.order):
                if self.allows(before):
                    yield dict(before)
                return
            name = self.order[index]
            if not self.exists(name, before):
                yield from beyond(index + 1, before)
                return
            for value in lists[name]:
                yield from beyond(index + 1, {**before, name: value})

        return beyond(0, {})

    def _ordered(self) -> tuple[str, ...]:
        done: dict[str, None] = {}
        left = list(self.parameters)
        while left:
            ready = [name for name in left if name not in self.conditions or self.conditions[name].names <= done.keys()]
            if not ready:
                raise ConfigError(f"the conditions of {', '.join(left[:5])} depend on each other in a circle")
            done |= dict.fromkeys(ready)
            left = [name for name in left if name not in done]
        return tuple(done)

    def _check_names(self, names: Sequence[str] | frozenset[str], where: str) -> None:
        for name in sorted(names):
            if name not in self.parameters:
                hint = nearest(name, self.parameters) or f"; there are: {', '.join(list(self.parameters)[:20])}"
                raise ConfigError(f"{where}: there is no parameter {name!r}{hint}")


def _expression(text: Any, where: str) -> SpaceExpression:
    if not isinstance(text, str):
        raise ConfigError(f"{where}: expected an expression, found {text!r}")
    try:
        return SpaceExpression(text)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def space_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the parameters of a space, by name."""
    number, whole, text = {"type": "number"}, {"type": "integer"}, {"type": "string", "minLength": 1}
    positive = {"type": "number", "exclusiveMinimum": 0}
    arguments: dict[str, dict[str, Any]] = {
        "discrete": {
            "values": {"type": "array", "minItems": 1, "items": {"type": ["string", "number", "boolean", "null"]}},
            "ordered": {"type": "boolean", "description": "whether neighbours in the list are alike"},
        },
        "mapping": {"values": {"type": "object", "minProperties": 1, "description": "what each name stands for"}},
        "int": {
            "low": whole, "high": whole, "step": {"type": "integer", "minimum": 1},
            "log": {"type": "boolean", "description": "whether equal ratios matter equally"},
        },
        "bool": {},
        "uniform": {"low": number, "high": number, "step": positive},
        "power": {"low": number | {"description": "exponent of ten"}, "high": number},
    }  # fmt: skip
    optional = {"ordered", "step", "log"}
    kinds = [
        {
            "type": "object",
            "properties": {
                "kind": {"const": kind},
                **arguments[kind],
                "when": text | {"description": "the condition under which the parameter exists"},
            },
            "required": ["kind", *(name for name in arguments[kind] if name not in optional)],
            "additionalProperties": False,
        }
        for kind in KINDS
    ]
    return {"type": "object", "minProperties": 1, "additionalProperties": {"oneOf": kinds}}
