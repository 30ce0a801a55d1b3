"""Arguments of a component given as words such as ``num_mels=40``, inside an option of another component."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import Any

from nnpipe.core.argument_kinds import Kind
from nnpipe.core.arguments import arguments_of
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError


def arguments_in(cls: type[Component], words: Sequence[str]) -> dict[str, Any]:
    """Return the arguments that words state; lists are separated by commas, and ``none`` stands for nothing.

    Names that the class does not know are returned as they are, for its own message.

    Raises
    ------
    ConfigError
        If a word is no ``NAME=VALUE``, or the value is unusable.
    """
    known = {each.name: each for each in arguments_of(cls)}
    given: dict[str, Any] = {}
    for word in words:
        key, sign, text = word.partition("=")
        key = key.replace("-", "_")
        if not sign:
            example = f", as in {next(iter(known))}=..." if known else ""
            raise ConfigError(f"{cls.__name__}: {word!r} is no option; write NAME=VALUE{example}")
        try:
            given[key] = _value(known[key].kind, text) if key in known else text
        except ArgumentTypeError as error:
            raise ConfigError(f"{cls.__name__}.{key}: {error}") from None
    return given


def _value(kind: Kind, text: str) -> Any:
    if kind.optional and text == "none" and text not in kind.choices:
        return None
    if kind.item is bool:
        if text not in ("true", "false"):
            raise ArgumentTypeError(f"{text!r} is neither true nor false")
        return text == "true"
    return tuple(map(kind, text.split(","))) if kind.many is not None else kind(text)
