"""JSON from outside: its size is bounded before it is read, and what readers understand
differently is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError
from nnpipe.core.messages import format_one_line

# of a whole number; a double has 309, and later computations would fail or take long
_MOST_DIGITS = 40


def parse_json(
    text: str | bytes, parse_float: Callable[[str], Any] | None = None, *, any_text: bool = False
) -> Any:
    """Return the value that a text of JSON stands for.

    Parameters
    ----------
    text
        The text; bytes of it are UTF-8.
    parse_float
        Makes a value of a number that is not whole, and of ``NaN`` and ``Infinity``; by default a
        float.
    any_text
        Whether texts may hold a NUL or half a character, as the vocabularies of tokenizers do.

    Raises
    ------
    ValueError
        If it is no JSON, is nested too deeply, has a key twice in one object, a whole number of
        more than 40 digits, or text with a NUL or half a character; the message is one line.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        found = json.loads(
            text,
            object_pairs_hook=_require_unique_keys,
            parse_int=_parse_integer,
            parse_float=parse_float,
            parse_constant=parse_float,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    escapes = text.lower().count("\\u")
    if escapes and not any_text and ("\\u0000" in text or "\\ud" in text.lower()):
        check_text(json.dumps(found, ensure_ascii=False))
    return found


def check_text(text: str) -> None:
    """Raise :class:`ValueError` if a text has a NUL or half a character, which no file, name or
    page can hold.
    """
    if "\0" in text or "\\u0000" in text:
        raise ValueError("a text holds a NUL")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("a text holds half a character (a surrogate without its other half)")


def _require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"{key[:80]!r} is given twice in one object")
            seen.add(key)
    return found


def _parse_integer(text: str) -> int:
    if len(text) > _MOST_DIGITS + 1:
        raise ValueError(f"a whole number has {len(text):,} digits")
    return int(text)


def read_object(path: Path, largest: int = 4 << 20, most_values: int = 1 << 18) -> dict[str, Any]:
    """Return the object that a JSON file holds.

    Parameters
    ----------
    path
        The file.
    largest
        The greatest size of the file in bytes.
    most_values
        The greatest number of values in it: a small file of many empty lists would otherwise fill
        the memory.

    Raises
    ------
    ArtifactError
        If the file is missing, too large, damaged, or holds no object.
    """
    try:
        if path.stat().st_size > largest:
            raise ArtifactError(f"{path}: larger than {largest:,} bytes")
        content = path.read_bytes()
        if sum(map(content.count, (b",", b":", b"[", b"{"))) > most_values:
            raise ArtifactError(f"{path}: has more than {most_values:,} values")
        found = parse_json(content.decode("utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path}: cannot read it as JSON: {format_one_line(error)}") from None
    if not isinstance(found, dict):
        raise ArtifactError(f"{path}: holds no JSON object")
    return found


def iter_entries(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all values inside a JSON value, each with the key of its object or of the list that
    it is in.
    """
    if isinstance(value, dict):
        for key, each in value.items():
            yield key, each
            yield from iter_entries(each, key)
    elif isinstance(value, list):
        for each in value:
            yield name, each
            yield from iter_entries(each, name)
