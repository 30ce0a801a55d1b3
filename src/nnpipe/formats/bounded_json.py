"""JSON files from outside, whose size is bounded before they are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError


def read_object(path: Path, largest: int = 4 << 20, most_values: int = 1 << 18) -> dict[str, Any]:
    """Return the object that a JSON file holds.

    Parameters
    ----------
    path
        The file.
    largest
        The greatest size of the file in bytes.
    most_values
        The greatest number of values in it: a small file of many empty lists would otherwise fill the memory.

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
        found = json.loads(content.decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}: cannot read it as JSON: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise ArtifactError(f"{path}: holds no JSON object")
    return found


def entries(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all values inside a JSON value, each with the key of its object or of the list that it is in."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield key, each
            yield from entries(each, key)
    elif isinstance(value, list):
        for each in value:
            yield name, each
            yield from entries(each, name)
