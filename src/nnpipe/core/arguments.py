"""Declare an argument once, and derive its constructor parameter, option, help text and JSON form.

:mod:`nnpipe.core.arguments` lists the types that a field may have.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import format_value

# Kinds of argument values: parsed from a command line or JSON, and described in JSON Schema.
#
# The field of an argument is annotated with one of these types:
#
# =========================== ============================== =================
# annotation                  on the command line            in JSON and YAML
# =========================== ============================== =================
# ``bool``                    ``--flag`` / ``--no-flag``     true, false
# ``int``, ``float``, ``str`` ``--flag VALUE``               number, string
# ``pathlib.Path``            ``--flag PATH``                string
# ``Literal["a", "b"]``       ``--flag {a,b}``               "a"
# ``tuple[X, ...]``           ``--flag X [X ...]``           list
# ``tuple[X, Y]``             ``--flag X Y``                 list of that length
# any of them ``| None``      the option left out            null
# =========================== ============================== =================

_SCALARS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    Path: "string",
}


@dataclass(frozen=True)
class Kind:
    """The kind of values that an argument takes; calling it converts command-line text into such a
    value.

    Two equal kinds read the same text in the same way.  This shows whether an
    option that two components declare is the same option.
    """

    item: type
    optional: bool = False
    many: int | None = None  # None: one value; -1: any number; n: exactly n
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    def __call__(self, text: str) -> Any:
        """Read one item from text; argparse calls this.

        Raises
        ------
        argparse.ArgumentTypeError
            If the text is not such a value.
        """
        try:
            value = self.item(text)
            self._check_item(value)
        except ValueError as error:
            raise argparse.ArgumentTypeError(
                str(error) or f"{format_value(text)} is not {self.describe()}"
            ) from None
        return value

    def coerce(self, value: Any) -> Any:
        """Convert ``value`` to this kind: lists to tuples, strings to paths, integers to floats.

        Raises
        ------
        ValueError
            If the value cannot be converted.
        """
        if value is None:
            if self.optional:
                return None
            raise ValueError(f"nothing given, expected {self.describe()}")
        if self.many is None:
            return self._coerce_item(value)
        if isinstance(value, str) or not isinstance(value, (list, tuple)):
            raise ValueError(f"{format_value(value)} is not a list")
        if self.many >= 0 and len(value) != self.many:
            raise ValueError(f"{len(value)} values given, expected {self.many}")
        return tuple(self._coerce_item(item) for item in value)

    def _coerce_item(self, value: Any) -> Any:
        if self.item is float and isinstance(value, int) and not isinstance(value, bool):
            try:
                value = float(value)
            except OverflowError:
                raise ValueError(f"{format_value(value)} is not a usable number") from None
        elif self.item is Path and isinstance(value, str):
            value = Path(value)
        if not isinstance(value, self.item) or (isinstance(value, bool) and self.item is not bool):
            raise ValueError(f"{format_value(value)} is not {self.describe()}")
        self._check_item(value)
        return value

    def _check_item(self, value: Any) -> None:
        if self.choices and value not in self.choices:
            raise ValueError(
                f"{format_value(value)} is not one of {', '.join(map(str, self.choices))}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value} is not a usable number")
        if self.item is int and not -(2**63) <= value < 2**63:  # what numpy and native code take
            raise ValueError(f"{format_value(value)} is not {self.describe()} of 64 bits")
        if isinstance(value, Path) and "\0" in str(value):
            raise ValueError("no path holds a NUL")
        if self.minimum is not None and value < self.minimum:
            raise ValueError(f"{format_value(value)} is below the minimum {self.minimum:g}")
        if self.maximum is not None and value > self.maximum:
            raise ValueError(f"{format_value(value)} is above the maximum {self.maximum:g}")

    def describe(self) -> str:
        """Return the name of the kind for an error message, such as ``an integer``."""
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices))
        return {
            bool: "true or false",
            int: "an integer",
            float: "a number",
            str: "a text",
            Path: "a path",
        }[self.item]

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema (draft 2020-12) of the values."""
        item: dict[str, Any] = {"type": _SCALARS[self.item]}
        if self.choices:
            item = {"enum": list(self.choices)}
        if self.minimum is not None:
            item["minimum"] = self.minimum
        if self.maximum is not None:
            item["maximum"] = self.maximum
        if self.many is not None:
            item = {"type": "array", "items": item}
            if self.many >= 0:
                item |= {"minItems": self.many, "maxItems": self.many}
        return {"anyOf": [item, {"type": "null"}]} if self.optional else item


def resolve_kind(
    hint: Any,
    choices: tuple[Any, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
) -> Kind:
    """Return the kind of values that a field with this annotation takes.

    Raises
    ------
    TypeError
        If values of this type cannot be given on a command line.
    """
    optional = False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(hint) if member is not type(None)]
        if len(members) != 1:
            raise TypeError(f"a union of several types ({hint}) cannot be an argument")
        optional, hint = True, members[0]
    many: int | None = None
    if typing.get_origin(hint) is tuple:
        members = list(typing.get_args(hint))
        many = -1 if len(members) == 2 and members[1] is Ellipsis else len(members)
        if many > 0 and len(set(members)) > 1:
            raise TypeError(f"a tuple of mixed types ({hint}) cannot be an argument")
        hint = members[0]
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        hint = type(choices[0])
    if hint not in _SCALARS:
        raise TypeError(
            f"{hint} cannot be an argument; use bool, int, float, str, Path, Literal or a tuple of "
            f"them"
        )
    return Kind(hint, optional, many, choices, minimum, maximum)


_KEY = "nnpipe.argument"


def argument(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    choices: tuple[Any, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    flag: str | None = None,
    metavar: str | None = None,
    aliases: tuple[str, ...] = (),
) -> Any:
    """Declare a field of a component.

    Parameters
    ----------
    default
        The value if none is given; without a default, the argument is required.
    help
        One sentence for ``-h`` and the documentation.
    choices
        The allowed values, if the annotation does not list them.
    minimum, maximum
        Inclusive bounds of a number.
    flag
        The option's name, if it should differ from ``--field-name``.
    metavar
        The placeholder for the value in the help.
    aliases
        Further names that options and files may use, for example the names of other components.
        They are shown before the argument's own name.

    Examples
    --------
    >>> from nnpipe import Component
    >>> class Blur(Component):
    ...     radius: int = argument(3, help="pixels on each side", minimum=1)
    >>> Blur().radius, Blur(radius=5).radius
    (3, 5)
    >>> Blur(radius=0)
    Traceback (most recent call last):
        ...
    nnpipe.core.errors.ConfigError: ...radius...
    """
    check_call(argument, locals())
    extra = _Extra(help, choices, minimum, maximum, flag, metavar, aliases)
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={_KEY: extra})
    return dataclasses.field(default=default, metadata={_KEY: extra})


@dataclass(frozen=True)
class _Extra:
    help: str = ""
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    flag: str | None = None
    metavar: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Argument:
    """An argument of a component, read from its field."""

    name: str
    flag: str
    kind: Kind
    help: str
    default: Any = dataclasses.MISSING
    metavar: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def flags(self) -> tuple[str, ...]:
        """The option's names, with its aliases first."""
        return (*(f"--{alias.replace('_', '-')}" for alias in self.aliases), self.flag)

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is dataclasses.MISSING

    @property
    def dest(self) -> str:
        """Unique name of the option's value in a parsed command line."""
        return self.flag.lstrip("-").replace("-", "_")

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Add the option to an argparse parser or group."""
        default = None if self.required else self.default
        help = (
            self.help
            if default is None or default == ()
            else f"{self.help} (default: {show(default)})"
        )
        help = help.replace("%", "%%")
        if self.kind.item is bool and self.kind.many is None:
            parser.add_argument(
                *self.flags,
                dest=self.dest,
                default=default,
                required=self.required,
                action=argparse.BooleanOptionalAction,
                help=help,
            )
            return
        nargs = {None: None, -1: "+"}.get(self.kind.many, self.kind.many)
        metavar = self.metavar
        if metavar is None:
            choices = self.kind.choices
            metavar = "{" + ",".join(map(str, choices)) + "}" if choices else self._get_metavar()
        parser.add_argument(
            *self.flags,
            dest=self.dest,
            default=default,
            required=self.required,
            type=self.kind,
            nargs=nargs,
            metavar=metavar,
            help=help,
        )

    def _get_metavar(self) -> str:
        return {int: "N", float: "X", Path: "PATH"}.get(
            self.kind.item, self.name.rsplit("_", 1)[-1].upper()
        )

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the argument, with its help and default."""
        schema = self.kind.schema() | {"description": self.help}
        return schema if self.required else schema | {"default": encode_argument(self.default)}


@functools.cache
def list_arguments(cls: type) -> tuple[Argument, ...]:
    """Return the arguments that the fields of a dataclass declare, in order.

    Raises
    ------
    ConfigError
        If values of a field's type cannot be given on a command line.
    """
    try:
        hints = typing.get_type_hints(cls)
    except NameError as error:
        raise ConfigError(
            f"{cls.__module__}.{cls.__qualname__}: cannot read its annotations: {error}"
        ) from None
    found = []
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        extra = field.metadata.get(_KEY) or _Extra()
        try:
            kind = resolve_kind(hints[field.name], extra.choices, extra.minimum, extra.maximum)
        except TypeError as error:
            raise ConfigError(
                f"{cls.__module__}.{cls.__qualname__}.{field.name}: {error}"
            ) from None
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        flag = extra.flag or "--" + field.name.replace("_", "-")
        found.append(
            Argument(field.name, flag, kind, extra.help, default, extra.metavar, extra.aliases)
        )
    return tuple(found)


def encode_argument(value: Any) -> Any:
    """Return an argument's value in its JSON form."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [encode_argument(item) for item in value]
    return value


def show(value: Any) -> str:
    """Return an argument's value as it is written on a command line."""
    if isinstance(value, (tuple, list)):
        return " ".join(show(item) for item in value)
    return str(value)


def read_json_arguments(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a dataclass from a JSON object, by field name.

    Raises
    ------
    ConfigError
        If an argument is unknown, missing or unusable; the message names the first one.
    """
    from nnpipe.core.messages import suggest_name

    known = {argument.name: argument for argument in list_arguments(cls)}
    called = {alias: argument.name for argument in known.values() for alias in argument.aliases}
    for alias in called.keys() & given.keys():
        if called[alias] in given:
            raise ConfigError(
                f"{cls.__qualname__}: {alias} and {called[alias]} are the same; leave one of them "
                f"out"
            )
    given = {called.get(name, name): value for name, value in given.items()}
    for name in given:
        if name not in known:
            hint = suggest_name(str(name), known)
            raise ConfigError(f"{cls.__qualname__} has no argument {json.dumps(name)}{hint}")
    for name, declared in known.items():
        if declared.required and name not in given:
            raise ConfigError(f"{cls.__qualname__} needs the argument {name!r}: {declared.help}")
    return {name: coerce_argument(cls, known[name], value) for name, value in given.items()}


def coerce_argument(cls: type, declared: Argument, value: Any) -> Any:
    """Convert a value to the kind of its argument, or raise a ConfigError that names both."""
    try:
        return declared.kind.coerce(value)
    except ValueError as error:
        raise ConfigError(f"{cls.__qualname__}.{declared.name}: {error}") from None
