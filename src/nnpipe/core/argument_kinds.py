"""Kinds of argument values: parsed from a command line or JSON, and described in JSON Schema.

The field of an argument is annotated with one of these types:

=========================== ============================== =================
annotation                  on the command line            in JSON and YAML
=========================== ============================== =================
``bool``                    ``--flag`` / ``--no-flag``     true, false
``int``, ``float``, ``str`` ``--flag VALUE``               number, string
``pathlib.Path``            ``--flag PATH``                string
``Literal["a", "b"]``       ``--flag {a,b}``               "a"
``tuple[X, ...]``           ``--flag X [X ...]``           list
``tuple[X, Y]``             ``--flag X Y``                 list of that length
any of them ``| None``      the option left out            null
=========================== ============================== =================
"""

from __future__ import annotations

import argparse
import math
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nnpipe.core.messages import shown

_SCALARS: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string"}


@dataclass(frozen=True)
class Kind:
    """The kind of values that an argument takes; calling it converts command-line text into such a value.

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
            raise argparse.ArgumentTypeError(str(error) or f"{shown(text)} is not {self.describe()}") from None
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
            raise ValueError(f"{shown(value)} is not a list")
        if self.many >= 0 and len(value) != self.many:
            raise ValueError(f"{len(value)} values given, expected {self.many}")
        return tuple(self._coerce_item(item) for item in value)

    def _coerce_item(self, value: Any) -> Any:
        if self.item is float and isinstance(value, int) and not isinstance(value, bool):
            try:
                value = float(value)
            except OverflowError:
                raise ValueError(f"{shown(value)} is not a usable number") from None
        elif self.item is Path and isinstance(value, str):
            value = Path(value)
        if not isinstance(value, self.item) or (isinstance(value, bool) and self.item is not bool):
            raise ValueError(f"{shown(value)} is not {self.describe()}")
        self._check_item(value)
        return value

    def _check_item(self, value: Any) -> None:
        if self.choices and value not in self.choices:
            raise ValueError(f"{shown(value)} is not one of {', '.join(map(str, self.choices))}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value} is not a usable number")
        if self.item is int and not -(2**63) <= value < 2**63:  # what numpy and native code take
            raise ValueError(f"{shown(value)} is not {self.describe()} of 64 bits")
        if isinstance(value, Path) and "\0" in str(value):
            raise ValueError("no path holds a NUL")
        if self.minimum is not None and value < self.minimum:
            raise ValueError(f"{shown(value)} is below the minimum {self.minimum:g}")
        if self.maximum is not None and value > self.maximum:
            raise ValueError(f"{shown(value)} is above the maximum {self.maximum:g}")

    def describe(self) -> str:
        """Return the name of the kind for an error message, such as ``an integer``."""
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices))
        return {bool: "true or false", int: "an integer", float: "a number", str: "a text", Path: "a path"}[self.item]

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


def kind_of(
    hint: Any, choices: tuple[Any, ...] = (), minimum: float | None = None, maximum: float | None = None
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
        raise TypeError(f"{hint} cannot be an argument; use bool, int, float, str, Path, Literal or a tuple of them")
    return Kind(hint, optional, many, choices, minimum, maximum)
