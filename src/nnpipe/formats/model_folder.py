"""Lists of the files of a model that is a folder, with their sizes and checksums."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError
from nnpipe.core.files import sha256_of, write_text

LISTING = "model-folder"
"""The format of such a list, as artifacts name it."""

TRANSFORMERS = "transformers-folder"
"""The format of a list of the files of a folder of transformers, from which compilers make other models."""

_LARGEST, _MOST_FILES = 1 << 20, 4096


def write_listing(files: Sequence[Path], path: Path) -> None:
    """Write the names, sizes and checksums of files."""
    found = {str(file.resolve()): {"size": file.stat().st_size, "sha256": sha256_of(file)} for file in files}
    write_text(path, json.dumps(found, indent=1) + "\n")


def check_listing(files: Sequence[Path], path: Path) -> None:
    """Check that files are those of a list.

    Raises
    ------
    ArtifactError
        If the list cannot be read, or a file is not as it was.
    """
    listed = _read(path)
    for file in files:
        entry = listed.get(str(file.resolve()))
        if entry is None or entry["size"] != file.stat().st_size or entry["sha256"] != sha256_of(file):
            raise ArtifactError(f"{path}: {file} is another file, or has changed since this list was written")


def listed_folder(path: Path, name: str) -> Path:
    """Return the folder with the file of this name in a list, after a check of all files of the list.

    Raises
    ------
    ArtifactError
        If the list cannot be read, has no such file, or a file is not as it was.
    """
    files = [Path(each) for each in _read(path)]
    if missing := [each for each in files if not each.is_file()]:
        raise ArtifactError(f"{path}: {missing[0]} is gone")
    check_listing(files, path)
    for each in files:
        if each.name == name:
            return each.parent
    raise ArtifactError(f"{path}: lists no {name}")


def listed_size(path: Path) -> int:
    """Return the size of all files of a list, in bytes; raise :class:`ArtifactError` if it cannot be read."""
    return sum(entry["size"] for entry in _read(path).values())


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST:,} bytes")
        found = parse_json(path.read_text("utf-8"))
        if not isinstance(found, dict) or len(found) > _MOST_FILES:
            raise ValueError("it names no files")
        for entry in found.values():
            if not (isinstance(entry["size"], int) and isinstance(entry["sha256"], str)):
                raise ValueError("a file has no size or checksum")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ArtifactError(f"{path}: no list of a model's files: {error}") from None
    return found
