"""Reading settings files, YAML or JSON, with overrides from the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.bounded_json import check_text, parse_json
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import format_one_line, suggest_name

_LIMIT = 10 << 20
_MOST = 50_000  # keys and values
_MOST_EXPANDED = 200_000  # values, with those that anchors stand for
_DEEPEST = 64
_MOST_DIGITS = 40


def read_settings(path: Path) -> dict[str, Any]:
    """Return the object of a YAML or JSON file.

    Raises
    ------
    ConfigError
        If the file is missing or wrong; the message names the line if it is known.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    if path.stat().st_size > _LIMIT:
        raise ConfigError(f"{path}: too large for a file of settings")
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file ({error})") from None
    data = _parse_json(text, path) if path.suffix == ".json" else parse_yaml(text, str(path))
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected an object with settings, found {type(data).__name__}")
    return data


def _parse_json(text: str, path: Path) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None


def parse_yaml(text: str, where: str) -> Any:
    """Return YAML as values that JSON can hold: dates and keys become strings; a duplicate key
    is an error.
    """
    check_call(parse_yaml, locals())
    import yaml

    def create_error(problem: str, node: Any) -> Exception:
        error: Exception = yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return error

    class Loader(yaml.SafeLoader):
        """The safe loader, but bounded, without dates and numbers to the base 60, and with an
        error for double keys.
        """

        room, depth = _MOST, 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.room, self.depth = self.room - 1, self.depth + 1
            if self.room < 0:
                raise create_error(f"more than {_MOST:,} keys and values", self.peek_event())  # type: ignore[no-untyped-call]
            if self.depth > _DEEPEST:
                raise create_error(f"nested more than {_DEEPEST} levels deep", self.peek_event())  # type: ignore[no-untyped-call]
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in getattr(node, "value", ()):
                name = str(self.construct_object(key, deep=True))
                if name in seen:
                    raise create_error(f"{name!r} is given twice", key)
                seen.add(name)
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            return found

        def construct_yaml_int(self, node: Any) -> int:
            if len(str(node.value)) > _MOST_DIGITS:
                raise create_error(f"a whole number of {len(node.value):,} digits", node)
            found: int = super().construct_yaml_int(node)
            return found

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
    Loader.yaml_implicit_resolvers = {
        first: [
            (tag, _exclude_base_60(form)) for tag, form in pairs if not tag.endswith(":timestamp")
        ]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        found = yaml.load(text, Loader)
    except (
        yaml.YAMLError,
        RecursionError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
    ) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or format_one_line(error)
        raise ConfigError(f"{where}: not YAML{place}: {problem}") from None
    try:
        return _as_json(found, iter(range(_MOST_EXPANDED)))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}") from None


def _exclude_base_60(form: re.Pattern[str]) -> re.Pattern[str]:
    """Return the form of a number without that of YAML 1.1 to the base 60: 12:30 is a text, as
    in YAML 1.2.
    """
    return re.compile(f"(?!.*:){form.pattern}", form.flags)


def _as_json(value: Any, room: Iterator[int]) -> Any:
    """Return a value with anchors expanded, up to a limit: a few lines of them can stand for any
    number of values.
    """
    if next(room, None) is None:
        raise ValueError(f"more than {_MOST_EXPANDED:,} values, with those that anchors stand for")
    if isinstance(value, dict):
        return {str(_as_json(key, room)): _as_json(item, room) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item, room) for item in value]
    if isinstance(value, str):
        check_text(value)
        return value
    if value is None or isinstance(value, (int, float)):
        return value
    raise ValueError(f"holds a {type(value).__name__}; write a text, a number, a list or an object")


def override(settings: Mapping[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Return the settings with changes such as ``a.b.0.c=value``, whose values are YAML.

    Raises
    ------
    ConfigError
        If the path of a change does not exist; the message names the change.
    """
    changed: dict[str, Any] = json.loads(json.dumps(settings))
    for change in changes:
        path, sign, text = change.partition("=")
        if not sign or not path:
            raise ConfigError(f"{change!r} is not of the form key.key=value")
        value = parse_yaml(text, change)
        place: Any = changed
        *parents, last = path.split(".")
        for key in parents:
            place = _enter_key(place, key, change)
        if isinstance(place, list):
            place[_index(place, last, change)] = value
        elif isinstance(place, dict):
            place[last] = value
        else:
            raise ConfigError(f"{change!r}: {'.'.join(parents)} holds no settings")
    return changed


def _enter_key(place: Any, key: str, change: str) -> Any:
    if isinstance(place, list):
        return place[_index(place, key, change)]
    if not isinstance(place, dict):
        raise ConfigError(f"{change!r}: there is nothing at {key!r}")
    if place.get(key) is None:
        place[key] = {}
    return place[key]


def _index(place: list[Any], key: str, change: str) -> int:
    if not key.isdigit() or int(key) >= len(place):
        raise ConfigError(
            f"{change!r}: {key!r} is not one of the {len(place)} entries (0 to {len(place) - 1})"
        )
    return int(key)


def check_keys(
    data: Any, known: Iterable[str], where: str, required: Iterable[str] = ()
) -> dict[str, Any]:
    """Check that ``data`` is an object with only these keys, and return it.

    Raises
    ------
    ConfigError
        If a key is unknown or missing; the message names it and its place.
    """
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: expected an object, found {type(data).__name__}")
    known = list(known)
    for key in data:
        if key not in known:
            hint = suggest_name(str(key), known) or f"; known: {', '.join(known)}"
            raise ConfigError(f"{where}: unknown key {key!r}{hint}")
    for key in required:
        if data.get(key) is None:
            raise ConfigError(f"{where}: {key!r} is missing")
    return data


def iterate_leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of settings with their paths."""
    if isinstance(tree, (dict, list)) and tree:
        for name, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from iterate_leaves(item, f"{path}.{name}" if path else str(name))
    elif path:
        yield path, tree
