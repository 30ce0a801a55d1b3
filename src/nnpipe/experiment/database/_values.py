"""Converting Python values to columns of both backends, and back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ConfigError
from nnpipe.core.messages import format_one_line
from nnpipe.experiment.database._tables import BOOLEAN, FLOAT, INTEGER, NOTHING, TEXT, WrongValue

MOST = 500
"""The greatest length of a name in characters: PostgreSQL's indices take 2700 bytes."""

_EXACT = 1 << 53  # doubles represent whole numbers exactly up to here


def check_text(value: str, what: str) -> str:
    """Check that both backends can store a text, and return it.

    Raises
    ------
    ConfigError
        If it is empty, too long, or holds a NUL or an unpaired surrogate.
    """
    if not isinstance(value, str) or not 0 < len(value) <= MOST:
        raise ConfigError(f"{what}: expected a text of 1 to {MOST} characters")
    return check_storable(value, what)


def check_storable(value: str, what: str) -> str:
    """Return a text; raise :class:`ConfigError` if it holds a NUL or an unpaired surrogate."""
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise ConfigError(f"{what}: a NUL or half a character cannot be stored")
    return value


def encode_number(value: Any, what: str) -> tuple[int, float | None]:
    """Return a number's kind and its value as a double, which is ``None`` for NaN."""
    if isinstance(value, bool):
        return BOOLEAN, float(value)
    if isinstance(value, int):
        if abs(value) > _EXACT:
            raise ConfigError(
                f"{what}: {value} is beyond 2 to the power of 53, where doubles skip whole numbers"
            )
        return INTEGER, float(value)
    if isinstance(value, float):
        return FLOAT, encode_double(value)
    raise ConfigError(f"{what}: expected a number, not {type(value).__name__}")


def build_server_time() -> Any:
    """Return the SQL expression of PostgreSQL's own time, in seconds since 1970 UTC."""
    import sqlalchemy as sa

    return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double())


def encode_double(value: float) -> float | None:
    """Return a double in the form in which it is stored."""
    return None if math.isnan(value) else float(value)


def decode_double(value: float | None) -> float:
    """Return a stored double."""
    return math.nan if value is None else float(value)


def decode_number(kind: int, value: float | None) -> bool | int | float:
    """Return the number that :func:`encode_number` converted."""
    if kind == BOOLEAN:
        return bool(value)
    return (
        int(value)
        if kind == INTEGER and value is not None and abs(value) <= _EXACT
        else decode_double(value)
    )


def parse_object(text: str, what: str) -> dict[str, Any]:
    """Return the object that a column of JSON holds.

    Raises
    ------
    WrongValue
        If it holds something else.
    """
    try:
        found = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise WrongValue(f"{what} holds no JSON: {format_one_line(error)}") from None
    if not isinstance(found, dict):
        raise WrongValue(f"{what} holds {type(found).__name__} in place of an object of JSON")
    return found


def parse_numbers(text: str, what: str) -> dict[str, float]:
    """Return the numbers by name that a column of JSON holds; see :func:`parse_object`."""
    found = parse_object(text, what)
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise WrongValue(f"{what}: {name[:40]!r} is {str(value)[:40]!r}, which is no number")
    return found


def iterate_setting_rows(tree: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield the leaves of a configuration's tree as rows: ``path``, ``kind``, ``number``, ``text``.

    Whole numbers above 2 to the power of 53 are rounded here; the tree itself keeps them.
    """
    if isinstance(tree, (dict, list)) and tree:
        for name, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from iterate_setting_rows(item, f"{path}.{name}" if path else str(name))
    elif isinstance(tree, str):
        yield _build_setting_row(path, TEXT, None, tree)
    elif isinstance(tree, (bool, int, float)):
        kind = BOOLEAN if isinstance(tree, bool) else INTEGER if isinstance(tree, int) else FLOAT
        try:
            yield _build_setting_row(path, kind, encode_double(float(tree)), None)
        except OverflowError:
            yield _build_setting_row(path, kind, math.inf if tree > 0 else -math.inf, None)
    else:
        yield _build_setting_row(path, NOTHING, None, None)


def _build_setting_row(
    path: str, kind: int, value: float | None, text: str | None
) -> dict[str, Any]:
    if len(check_storable(path, "configuration")) > MOST:
        raise ConfigError(
            f"configuration: a path of {len(path)} characters, {path[:40]}..., cannot be stored"
        )
    if text is not None:
        check_storable(text, path)
    return {"path": path, "kind": kind, "number": value, "text": text}
