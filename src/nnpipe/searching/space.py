"""A search space: parameters, the conditions under which they exist, and constraints between
them.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import suggest_name
from nnpipe.searching.parameters import KINDS, SearchParameter, parse_parameter

# Expressions over the parameters of a configuration, such as ``optimiser == "sgd"`` or ``units *
# layers <= 4096``.
#
# They are written as in Python: numbers, texts, ``true``, ``false``, ``null`` and lists; names of
# parameters, which may have dots; arithmetic, comparisons, ``in``, ``and``, ``or``, ``not``, and
# the functions ``min``, ``max``, ``abs``, ``len``.  Nothing else is accepted, and nothing is
# executed as code.

_LONGEST, _DEEPEST = 1000, 50
_GREATEST_POWER = 64.0  # beyond it, whole numbers take more and more memory

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type, Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}
_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs, "len": len}
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class SpaceExpression:
    """A checked expression.

    Parameters
    ----------
    text
        As it was written.
    names
        The names of the parameters in it.

    Raises
    ------
    ConfigError
        If the text is no expression, or has parts that are not accepted.
    """

    text: str
    names: frozenset[str] = field(init=False, compare=False)
    _tree: ast.expr = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_call(SpaceExpression, vars(self))
        if len(self.text) > _LONGEST:
            raise ConfigError(f"an expression of {len(self.text):,} characters is too long")
        try:
            tree = ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ConfigError(
                f"{self.text!r} is no expression; write for example 'units * layers <= 4096'"
            ) from None
        names: set[str] = set()
        self._check(tree, names, 0)
        object.__setattr__(self, "names", frozenset(names))
        object.__setattr__(self, "_tree", tree)

    def value(self, configuration: Mapping[str, Any]) -> Any:
        """Return the value for a configuration that has all the names.

        Raises
        ------
        ConfigError
            If it cannot be computed, for example because a text is divided.
        """
        try:
            return _evaluate(self._tree, configuration)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ConfigError(f"{self.text!r} cannot be computed: {error}") from None

    def holds(self, configuration: Mapping[str, Any]) -> bool:
        """Return whether the value for a configuration is true; as for :meth:`value`."""
        return bool(self.value(configuration))

    def _check(self, node: ast.expr, names: set[str], depth: int) -> None:
        if depth > _DEEPEST:
            raise ConfigError(f"{self.text!r}: nested more than {_DEEPEST} deep")
        for part in _list_parts(node, names, self.text):
            self._check(part, names, depth + 1)


def _list_parts(node: ast.expr, names: set[str], text: str) -> list[ast.expr]:
    """Return the expressions within an accepted one, and add its own name; raise for any other."""
    if isinstance(node, ast.Constant) and (
        node.value is None or isinstance(node.value, (bool, int, float, str))
    ):
        return []
    if isinstance(node, (ast.Name, ast.Attribute)) and (name := _format_dotted_name(node)):
        if name not in _WORDS:
            names.add(name)
        return []
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return [node.operand]
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.Compare) and all(type(each) in _COMPARISONS for each in node.ops):
        return [node.left, *node.comparators]
    if isinstance(node, (ast.List, ast.Tuple)):
        return node.elts
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id in _FUNCTIONS:
            return node.args
        raise ConfigError(
            f"{text!r}: there is no function {node.func.id!r}; there are: {', '.join(_FUNCTIONS)}"
        )
    raise ConfigError(f"{text!r}: {ast.unparse(node)[:60]!r} is not accepted in expressions")


def _format_dotted_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _format_dotted_name(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def _evaluate(node: ast.expr, given: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name() | ast.Attribute():
            name = _format_dotted_name(node)
            return given[name] if name in given else _WORDS[name]
        case ast.BinOp():
            return _compute_operation(
                type(node.op), _evaluate(node.left, given), _evaluate(node.right, given)
            )
        case ast.UnaryOp():
            return _UNARY[type(node.op)](_evaluate(node.operand, given))
        case ast.BoolOp():
            every = isinstance(node.op, ast.And)
            found: Any = every
            for part in node.values:
                found = _evaluate(part, given)
                if bool(found) != every:
                    break
            return found
        case ast.Compare():
            left = _evaluate(node.left, given)
            for sign, other in zip(node.ops, node.comparators, strict=True):
                right = _evaluate(other, given)
                if not _COMPARISONS[type(sign)](left, right):
                    return False
                left = right
            return True
        case ast.Call(func=ast.Name(id=name)):
            return _FUNCTIONS[name](*(_evaluate(part, given) for part in node.args))
        case ast.List() | ast.Tuple():
            return [_evaluate(part, given) for part in node.elts]
    raise ValueError(ast.unparse(node))


def _compute_operation(sign: type, left: Any, right: Any) -> Any:
    for number in (left, right):
        if not isinstance(number, (int, float)):
            raise ValueError(f"{number!r} is no number")
    if sign is ast.Pow and abs(right) > _GREATEST_POWER:
        raise ValueError(f"a power of {right} is above {_GREATEST_POWER:g}")
    found = _BINARY[sign](left, right)
    # Whole numbers grow without bounds where powers are nested.
    if isinstance(found, complex) or not math.isfinite(found) or abs(found) > 1e300:
        raise ValueError(f"{found} is no finite number")
    return found


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
        By name of a parameter, the expression that must hold if the parameter is to exist.  It does
        not exist either if a parameter in its condition does not exist.
    constraints
        Expressions that hold for every configuration.  One with a parameter that does not exist is
        not asked.

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
            raise ConfigError(
                f"a search space has 1 to {_MOST_PARAMETERS:,} parameters, not "
                f"{len(self.parameters):,}"
            )
        for name in self.parameters:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"{name!r} is no name of a parameter; use letters, digits, '_' and '.'"
                )
        for name, condition in self.conditions.items():
            self._check_names((name,), "conditions")
            self._check_names(condition.names, f"{name}: when: {condition.text!r}")
        for constraint in self.constraints:
            self._check_names(constraint.names, repr(constraint.text))
            if not constraint.names:
                raise ConfigError(
                    f"{constraint.text!r}: names no parameter, so it says nothing about "
                    f"configurations"
                )
        object.__setattr__(self, "order", self._sort_parameters())

    @classmethod
    def from_json(
        cls, parameters: Mapping[str, Any], constraints: Sequence[Any] = (), where: str = "space"
    ) -> SearchSpace:
        """Return the space of entries by name, such as ``{"kind": "int", "low": 1, "high": 5,
        "when": "a == 1"}``.

        Raises
        ------
        ConfigError
            If an entry or a constraint is wrong; the message names its place.
        """
        if not isinstance(parameters, Mapping):
            raise ConfigError(
                f"{where}: expected parameters by name, found {type(parameters).__name__}"
            )
        found, conditions = {}, {}
        for name, entry in parameters.items():
            if isinstance(entry, dict) and "when" in entry:
                conditions[name] = _parse_expression(entry["when"], f"{where}.{name}.when")
                entry = {key: value for key, value in entry.items() if key != "when"}
            found[name] = parse_parameter(entry, f"{where}.{name}")
        if not isinstance(constraints, (list, tuple)):
            raise ConfigError(
                f"constraints: expected a list of expressions, found {type(constraints).__name__}"
            )
        limits = tuple(
            _parse_expression(text, f"constraints.{i}") for i, text in enumerate(constraints)
        )
        try:
            return cls(found, conditions, limits)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """Return the space as an object with ``parameters`` and ``constraints``."""
        entries = {name: parameter.to_json() for name, parameter in self.parameters.items()}
        for name, condition in self.conditions.items():
            entries[name]["when"] = condition.text
        return {
            "parameters": entries,
            "constraints": [constraint.text for constraint in self.constraints],
        }

    def configuration(self, choose: Choose) -> dict[str, Any]:
        """Return the configuration of the values that ``choose`` returns for the parameters that
        exist.
        """
        found: dict[str, Any] = {}
        for name in self.order:
            if self.exists(name, found):
                found[name] = choose(name, self.parameters[name])
        return found

    def exists(self, name: str, before: Mapping[str, Any]) -> bool:
        """Return whether a parameter exists, given the values of those that come before it in
        the order.
        """
        condition = self.conditions.get(name)
        return condition is None or (condition.names <= before.keys() and condition.holds(before))

    def allows(self, configuration: Mapping[str, Any]) -> bool:
        """Return whether a configuration satisfies all constraints."""
        return all(
            each.holds(configuration)
            for each in self.constraints
            if each.names <= configuration.keys()
        )

    def fits(self, configuration: Mapping[str, Any]) -> bool:
        """Return whether a configuration has a value of every parameter that exists in it, and
        no others.
        """
        try:
            self.check(configuration)
        except ConfigError:
            return False
        return True

    def contains(self, configuration: Mapping[str, Any]) -> bool:
        """Return whether a configuration fits, and satisfies all constraints."""
        return self.fits(configuration) and self.allows(configuration)

    def check(self, configuration: Mapping[str, Any]) -> None:
        """Raise :class:`ConfigError` unless a configuration is one of this space; constraints
        are not asked.
        """
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
                raise ConfigError(
                    f"{name}: does not exist in this configuration ({self.conditions[name].text})"
                )

    def arguments(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the values of a configuration stand for, by name."""
        return {
            name: self.parameters[name].get_argument(value) for name, value in configuration.items()
        }

    @property
    def count(self) -> int | None:
        """The number of configurations, or more where there are conditions or constraints;
        ``None`` if infinite.
        """
        counts = [parameter.count for parameter in self.parameters.values()]
        return None if None in counts else math.prod(count for count in counts if count)

    def iter_configurations(
        self, choices: Mapping[str, Sequence[Any]] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield every configuration that the constraints allow; the first parameter changes most
        slowly.

        Parameters
        ----------
        choices
            The values to use, by name; needed for parameters of real numbers.
        """
        lists = {
            name: list(choices[name]) if choices and name in choices else parameter.choices()
            for name, parameter in self.parameters.items()
        }

        def iter_completions(index: int, before: dict[str, Any]) -> Iterator[dict[str, Any]]:
            if index == len(self.order):
                if self.allows(before):
                    yield dict(before)
                return
            name = self.order[index]
            if not self.exists(name, before):
                yield from iter_completions(index + 1, before)
                return
            for value in lists[name]:
                yield from iter_completions(index + 1, {**before, name: value})

        return iter_completions(0, {})

    def _sort_parameters(self) -> tuple[str, ...]:
        done: dict[str, None] = {}
        left = list(self.parameters)
        while left:
            ready = [
                name
                for name in left
                if name not in self.conditions or self.conditions[name].names <= done.keys()
            ]
            if not ready:
                raise ConfigError(
                    f"the conditions of {', '.join(left[:5])} depend on each other in a circle"
                )
            done |= dict.fromkeys(ready)
            left = [name for name in left if name not in done]
        return tuple(done)

    def _check_names(self, names: Sequence[str] | frozenset[str], where: str) -> None:
        for name in sorted(names):
            if name not in self.parameters:
                hint = (
                    suggest_name(name, self.parameters)
                    or f"; there are: {', '.join(list(self.parameters)[:20])}"
                )
                raise ConfigError(f"{where}: there is no parameter {name!r}{hint}")


def _parse_expression(text: Any, where: str) -> SpaceExpression:
    if not isinstance(text, str):
        raise ConfigError(f"{where}: expected an expression, found {text!r}")
    try:
        return SpaceExpression(text)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def build_space_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the parameters of a space, by name."""
    number, whole, text = (
        {"type": "number"},
        {"type": "integer"},
        {"type": "string", "minLength": 1},
    )
    positive = {"type": "number", "exclusiveMinimum": 0}
    arguments: dict[str, dict[str, Any]] = {
        "discrete": {
            "values": {
                "type": "array",
                "minItems": 1,
                "items": {"type": ["string", "number", "boolean", "null"]},
            },
            "ordered": {
                "type": "boolean",
                "description": "whether neighbours in the list are alike",
            },
        },
        "mapping": {
            "values": {
                "type": "object",
                "minProperties": 1,
                "description": "what each name stands for",
            }
        },
        "int": {
            "low": whole,
            "high": whole,
            "step": {"type": "integer", "minimum": 1},
            "log": {"type": "boolean", "description": "whether equal ratios matter equally"},
        },
        "bool": {},
        "uniform": {"low": number, "high": number, "step": positive},
        "power": {"low": number | {"description": "exponent of ten"}, "high": number},
    }
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
