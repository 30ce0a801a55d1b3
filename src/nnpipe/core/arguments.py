"""Declare an argument once, and derive its constructor parameter, option, help text and JSON form.

:mod:`nnpipe.core.argument_kinds` lists the types that a field may have.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.argument_kinds import Kind, kind_of
from nnpipe.core.errors import ConfigError

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
        Further names that options and files may use, for example the names of other components.  They are shown
        before the argument's own name.

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
        help = self.help if default is None or default == () else f"{self.help} (default: {show(default)})"
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
            metavar = "{" + ",".join(map(str, choices)) + "}" if choices else self._metavar()
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

    def _metavar(self) -> str:
        return {int: "N", float: "X", Path: "PATH"}.get(self.kind.item, self.name.rsplit("_", 1)[-1].upper())

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the argument, with its help and default."""
        schema = self.kind.schema() | {"description": self.help}
        return schema if self.required else schema | {"default": plain(self.default)}


@functools.cache
def arguments_of(cls: type) -> tuple[Argument, ...]:
    """Return the arguments that the fields of a dataclass declare, in order.

    Raises
    ------
    ConfigError
        If values of a field's type cannot be given on a command line.
    """
    try:
        hints = typing.get_type_hints(cls)
    except NameError as error:
        raise ConfigError(f"{cls.__module__}.{cls.__qualname__}: cannot read its annotations: {error}") from None
    found = []
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        extra = field.metadata.get(_KEY) or _Extra()
        try:
            kind = kind_of(hints[field.name], extra.choices, extra.minimum, extra.maximum)
        except TypeError as error:
            raise ConfigError(f"{cls.__module__}.{cls.__qualname__}.{field.name}: {error}") from None
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        flag = extra.flag or "--" + field.name.replace("_", "-")
        found.append(Argument(field.name, flag, kind, extra.help, default, extra.metavar, extra.aliases))
    return tuple(found)


def plain(value: Any) -> Any:
    """Return an argument's value in its JSON form."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


def show(value: Any) -> str:
    """Return an argument's value as it is written on a command line."""
    if isinstance(value, (tuple, list)):
        return " ".join(show(item) for item in value)
    return str(value)


def values_from(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a dataclass from a JSON object, by field name.

    Raises
    ------
    ConfigError
        If an argument is unknown, missing or unusable; the message names the first one.
    """
    from nnpipe.core.naming import nearest

    known = {argument.name: argument for argument in arguments_of(cls)}
    called = {alias: argument.name for argument in known.values() for alias in argument.aliases}
    for alias in called.keys() & given.keys():
        if called[alias] in given:
            raise ConfigError(f"{cls.__qualname__}: {alias} and {called[alias]} are the same; leave one of them out")
    given = {called.get(name, name): value for name, value in given.items()}
    for name in given:
        if name not in known:
            hint = nearest(str(name), known)
            raise ConfigError(f"{cls.__qualname__} has no argument {json.dumps(name)}{hint}")
    for name, declared in known.items():
        if declared.required and name not in given:
            raise ConfigError(f"{cls.__qualname__} needs the argument {name!r}: {declared.help}")
    return {name: coerced(cls, known[name], value) for name, value in given.items()}


def coerced(cls: type, declared: Argument, value: Any) -> Any:
    """Convert a value to the kind of its argument, or raise a ConfigError that names both."""
    try:
        return declared.kind.coerce(value)
    except ValueError as error:
        raise ConfigError(f"{cls.__qualname__}.{declared.name}: {error}") from None
