"""Entries of pipeline and sweep files: each becomes a component, or an error that names its
place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from nnpipe.core.arguments import list_arguments
from nnpipe.core.component import Component
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.messages import format_value
from nnpipe.core.model import ModelWrapper
from nnpipe.core.registry import find
from nnpipe.experiment.settings import check_keys, override, read_settings

C = TypeVar("C", bound=Component)
T = TypeVar("T")
PATH = "model_path"
MOST = 10_000_000
"""The most of anything that a file may ask for: trials, samples, threads."""


def build_from_settings(
    settings: str | Path | Mapping[str, Any],
    changes: Sequence[str],
    make: Callable[[Mapping[str, Any]], T],
) -> T:
    """Return the result of ``make`` for settings, or for a file of settings, with some of them
    changed.

    Raises
    ------
    NNPipeError
        If a setting is wrong; the message names the place, and the file if there is one.
    """
    if isinstance(settings, Mapping):
        return make(override(_encode_settings(settings), changes))
    try:
        return make(override(read_settings(Path(settings)), changes))
    except NNPipeError as error:
        place = str(settings)
        raise type(error)(
            str(error) if str(error).startswith(place) else f"{place}: {error}"
        ) from None


def _encode_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings from Python in the form of a file, with components and paths as strings
    and objects.
    """

    def encode_value(value: Any) -> Any:
        if isinstance(value, Component):
            return value.describe()
        if isinstance(value, Path):
            return str(value)
        raise ConfigError(f"settings hold a {type(value).__name__}, which no file of settings can")

    try:
        found: dict[str, Any] = json.loads(json.dumps(dict(settings), default=encode_value))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"settings cannot be written to a file: {error}") from None
    return found


def get_section(data: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key; an empty object if it is missing or, as after a bare YAML key,
    null.
    """
    found = data.get(key)
    return {} if found is None else found


def parse_model(
    model: Mapping[str, Any], default: Path, where: str = "model"
) -> tuple[ModelWrapper, Path]:
    """Return the model's wrapper and the path of its weights; wrappers of files take ``path`` as
    an argument.
    """
    data = {key: model[key] for key in ("class", "arguments") if key in model}
    path = (
        Path(parse_text(model["path"], f"{where}.path")) if model.get("path") is not None else None
    )
    arguments = get_section(data, "arguments")
    cls = parse_class(data, ModelWrapper, where)
    takes_path = any(declared.name == PATH for declared in list_arguments(cls))
    if path is not None and isinstance(arguments, dict) and PATH not in arguments and takes_path:
        arguments = {PATH: str(path), **arguments}
    wrapper = build_component(cls, arguments, where)
    own = getattr(wrapper, PATH) if takes_path else None
    if own is not None and path is not None and own != path:
        raise ConfigError(
            f"{where}: path is {path}, but arguments.{PATH} is {own}; leave one of them out"
        )
    return wrapper, own or path or default


def makes_weights(wrapper: ModelWrapper, model: Mapping[str, Any]) -> bool:
    """Return whether the arguments of an entry's model say where its weights come from, and
    nothing else does.
    """
    return wrapper.makes_weights and model.get("path") is None and model.get("training") is None


def parse_component(data: Any, base: type[C], where: str) -> C:
    """Return the component of an entry: a class's name, or an object with ``class`` and
    ``arguments``.
    """
    if isinstance(data, str):
        data = {"class": data}
    data = check_keys(data, ("class", "arguments"), where, ("class",))
    return build_component(parse_class(data, base, where), get_section(data, "arguments"), where)


def parse_class(data: Mapping[str, Any], base: type[C], where: str) -> type[C]:
    """Return the class that an entry names."""
    try:
        return find(parse_text(data["class"], where), base)
    except NNPipeError as error:
        raise type(error)(
            str(error) if str(error).startswith(where) else f"{where}: {error}"
        ) from None


def build_component(cls: type[C], arguments: Any, where: str) -> C:
    """Return a component of a class, made from the arguments of an entry."""
    if not isinstance(arguments, dict):
        raise ConfigError(
            f"{where}: expected an object of arguments, found {type(arguments).__name__}"
        )
    try:
        return cls.from_json(arguments)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def parse_text(value: Any, where: str) -> str:
    """Return a value that must be a non-empty string; raise :class:`ConfigError` if it is not."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: expected a text, found {value!r}")
    return value


def count_of(value: Any, where: str) -> int:
    """Return a value that must count something, from 1 to :data:`MOST`; raise
    :class:`ConfigError` if it does not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{where}: expected a whole number above zero, found {value!r}")
    if value > MOST:
        raise ConfigError(
            f"{where}: {format_value(value)} is more than {MOST:,}, the most that can be carried "
            f"out"
        )
    return value


def parse_seed(value: Any, where: str = "seed") -> int:
    """Return a seed, a whole number from 0 of at most 63 bits; raise :class:`ConfigError` for
    anything else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ConfigError(
            f"{where}: expected a whole number from 0 to below 2 to the power of 63, found "
            f"{format_value(value)}"
        )
    return value
