"""Check the types of a public function's arguments in its first line.

The signature of a function already says what it takes.  Its first statement
compares the arguments with that signature::

    def run_load(session: InferenceSession, queries: Sequence[Query], ...) -> Loaded:
        check_call(run_load, locals())

Only types are checked, not values.  ``int`` accepts neither a string nor ``True``,
``Sequence[str]`` does not accept a single string, and ``float`` accepts any real
number of Python or numpy.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import math
import numbers
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from nnpipe.core.errors import ConfigError

# elements of a long list: if one has a wrong type, the first ones mostly have it, too
_MOST_LOOKED_AT = 1000
_NUMBERS: dict[type, type] = {int: numbers.Integral, float: numbers.Real}
_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "True or False",
    bytes: "bytes",
}
Fits = Callable[[Any], bool]
_UNIONS = (typing.Union, types.UnionType)


def check_call(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise an error unless every argument has the type that the function's signature names.

    Parameters
    ----------
    function
        The function, or the class whose constructor is called.
    given
        The arguments by name: ``locals()`` in the function's first statement.

    Raises
    ------
    ConfigError
        If an argument has a wrong type; the message names the function, the argument, the types
        that it takes, and the value given.
    """
    for name, hint, default, fits in _build_checks(function):
        value = given.get(name, default)
        # Most arguments are defaults, or of exactly the type that is asked for; trainings make
        # values at each step.
        if value is not default and type(value) is not hint and not fits(value):
            owner = getattr(function, "__qualname__", str(function)).removesuffix(".__init__")
            raise ConfigError(
                f"{owner}: {name} takes {_describe_hint(hint)}, not {_describe_value(value)}"
            )


def check_range(name: str, value: float | None, least: float, most: float = math.inf) -> None:
    """Raise an error unless a number lies in its range; ``None``, which stands for a default, is
    always accepted.

    Parameters
    ----------
    name
        The name of the number in the message.
    value
        The number.
    least, most
        The inclusive bounds; without ``most``, any finite number from ``least`` on is accepted.

    Raises
    ------
    ConfigError
        If the number is outside its range; the message names the number, its bounds and the value
        given.
    """
    if value is None or (math.isfinite(value) and least <= value <= most):
        return
    bounds = f"{least:g} or more" if most == math.inf else f"a number from {least:g} to {most:g}"
    raise ConfigError(f"{name} takes {bounds}, not {value:g}")


def describe_parameters(function: Callable[..., Any]) -> dict[str, str]:
    """Describe the type of each parameter of a function, or of a class's constructor.

    Returns
    -------
    dict
        Descriptions such as ``a whole number`` by parameter name.  Parameters without an annotation
        are left out.
    """
    return {name: _describe_hint(hint) for name, hint in _get_hints(function)}


@functools.lru_cache(maxsize=512)
def _get_hints(function: Callable[..., Any]) -> tuple[tuple[str, Any], ...]:
    """Return the parameters with their types; parameters whose types only a type checker can
    read are left out.
    """
    called = function.__init__ if inspect.isclass(function) else function
    known = {
        **vars(typing),
        **vars(collections.abc),
        "np": np,
        **getattr(inspect.unwrap(called), "__globals__", {}),
    }
    found = []
    for parameter in inspect.signature(called).parameters.values():
        hint = parameter.annotation
        if hint is inspect.Parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        try:
            while isinstance(hint, str):  # an alias may be a text itself
                hint = eval(hint, known)  # our own source
        except (NameError, TypeError):  # TypeError: a union with an alias that is a text
            continue
        found.append((parameter.name, hint))
    return tuple(found)


@functools.lru_cache(maxsize=512)
def _build_checks(function: Callable[..., Any]) -> tuple[tuple[str, Any, Any, Fits], ...]:
    """Return the parameters, except those of any type: name, type, default, and what checks a
    value's type.
    """
    known = inspect.signature(
        function.__init__ if inspect.isclass(function) else function
    ).parameters
    return tuple(
        (name, hint, known[name].default, _build_type_check(hint))
        for name, hint in _get_hints(function)
        if hint is not Any
    )


def _build_type_check(hint: Any) -> Fits:
    """Return the function that says whether a value has a type; it is called often, and so made
    once for each type.
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, (TypeVar, str, typing.ForwardRef)):
        return lambda value: True
    if hint is None or hint is type(None):
        return lambda value: value is None
    if origin in _UNIONS:
        choices = tuple(map(_build_type_check, parts))
        return lambda value: any(fits(value) for fits in choices)
    if origin is Literal:
        return lambda value: any(type(value) is type(part) and value == part for part in parts)
    if origin is type:
        base = parts[0] if inspect.isclass(parts[0]) else object
        return lambda value: isinstance(value, type) and issubclass(value, base)
    if origin is collections.abc.Callable or hint is collections.abc.Callable:
        return callable
    if origin is np.ndarray:
        return lambda value: isinstance(value, np.ndarray)
    if inspect.isclass(origin):
        elements = _build_element_check(origin, parts)
        return lambda value: isinstance(value, origin) and not _is_text(value) and elements(value)
    if not inspect.isclass(hint):
        return lambda value: True
    if getattr(hint, "_is_protocol", False):
        members = _get_protocol_members(hint)
        return lambda value: all(hasattr(value, member) for member in members)
    if hint in _NUMBERS:
        kind = _NUMBERS[hint]
        return lambda value: isinstance(value, kind) and not isinstance(value, (bool, np.bool_))
    if hint is bool:
        return lambda value: isinstance(value, (bool, np.bool_))
    if hint in (Path, os.PathLike):
        return lambda value: isinstance(value, (str, os.PathLike))
    return lambda value: isinstance(value, hint)


def _get_protocol_members(protocol: type) -> set[str]:
    """Return the names of the members that a protocol asks for."""
    bases = [
        base
        for base in protocol.__mro__
        if getattr(base, "_is_protocol", False) and base is not typing.Protocol
    ]
    named = {
        name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", {}))
    }
    return {name for name in named if not name.startswith("_") or name == "__call__"}


def _is_text(value: Any) -> bool:
    return isinstance(value, (str, bytes, bytearray))


def _build_element_check(origin: type, parts: tuple[Any, ...]) -> Fits:
    """Return the function that says whether the elements of a container have their types."""
    if issubclass(origin, collections.abc.Mapping):
        if len(parts) != 2 or parts[1] is Any:  # settings are checked where they are used
            return lambda value: True
        of_key, of_value = map(_build_type_check, parts)
        return lambda value: all(
            of_key(key) and of_value(each) for key, each in _iter_first(value.items())
        )
    if origin is tuple and not (len(parts) == 2 and parts[1] is Ellipsis):
        places = tuple(map(_build_type_check, parts))
        return lambda value: (
            len(value) == len(places)
            and all(fits(each) for fits, each in zip(places, value, strict=True))
        )
    if not parts:
        return lambda value: True
    one = _build_type_check(parts[0])
    # An iterator can be read only once, so its elements are not checked.
    return lambda value: (
        not isinstance(value, (list, tuple, set, frozenset)) or all(map(one, _iter_first(value)))
    )


def _iter_first(values: typing.Iterable[Any]) -> Iterator[Any]:
    for place, value in enumerate(values):
        if place >= _MOST_LOOKED_AT:
            return
        yield value


def _describe_hint(hint: Any) -> str:
    """Describe a type annotation in words, for messages."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is None or hint is type(None):
        return "None"
    if origin in _UNIONS:
        return " or ".join(dict.fromkeys(map(_describe_hint, parts)))
    if origin is Literal:
        return " or ".join(repr(part) for part in parts)
    if origin is type:
        return (
            f"a subclass of {_describe_hint(parts[0])}" if inspect.isclass(parts[0]) else "a class"
        )
    if origin is collections.abc.Callable or hint is collections.abc.Callable:
        return "a function"
    if origin is np.ndarray or hint is np.ndarray:
        return "a numpy array"
    if inspect.isclass(origin):
        article = "an" if origin.__name__[0] in "AEIOUaeiou" else "a"
        name = f"{article} {origin.__name__.lower()}"
        inner = ", ".join(
            _describe_hint(part) for part in parts if part is not Ellipsis and part is not Any
        )
        return (
            f"{name} of {inner}" if inner and "mapping" not in name and "dict" not in name else name
        )
    if hint in (Path, os.PathLike):
        return "a path"
    return _NAMES.get(hint) or str(getattr(hint, "__name__", hint))


def _describe_value(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    text = (
        " ".join(repr(value).split())
        if isinstance(value, (int, float, str, bytes, type(None)))
        else ""
    )
    if text and len(text) <= 60:
        return text
    return f"a {type(value).__name__}"
