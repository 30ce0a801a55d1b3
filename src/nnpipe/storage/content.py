"""Files in a storage by the SHA-256 of their content: each is stored once, and checked when it is fetched."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import StorageError
from nnpipe.core.files import sha256_of
from nnpipe.storage.names import checked_name
from nnpipe.storage.storage import Storage

SHELF = "training-results"
_FOLDER = "by-hash"
_MOST_LIST = 1 << 20  # bytes of a list of files


def put_files(storage: Storage, files: Mapping[str, Path]) -> str:
    """Publish files, and return the SHA-256 of their list, by which :func:`get_files` finds them.

    Parameters
    ----------
    storage
        Where they are published; those that are there already are not sent again.
    files
        The files by the name that each is to have.

    Raises
    ------
    NNPipeError
        If a name is invalid, a file is missing, or the storage fails.
    """
    listed = {checked_name(name): _put(storage, path) for name, path in sorted(files.items())}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "list.json")
        path.write_text(json.dumps(listed), "utf-8")
        return _put(storage, path)


def get_files(storage: Storage, digest: str, folder: Path) -> dict[str, Path]:
    """Fetch the files of a list into a folder, and return their paths by name.

    Raises
    ------
    StorageError
        If a file is missing, or is not what its SHA-256 says.
    """
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary, "list.json")
        _get(storage, digest, path, _MOST_LIST)
        listed = parse_json(path.read_text("utf-8"))
    found = {checked_name(name): (folder / name, sha256) for name, sha256 in listed.items()}
    for path, sha256 in found.values():
        if not (path.is_file() and sha256_of(path) == sha256):
            path.parent.mkdir(parents=True, exist_ok=True)
            _get(storage, sha256, path)
    return {name: path for name, (path, _) in found.items()}


def _put(storage: Storage, path: Path) -> str:
    sha256 = sha256_of(path)
    if storage.find(SHELF, f"{_FOLDER}/{sha256}") is None:
        storage.put(SHELF, f"{_FOLDER}/{sha256}", path, replace=True)
    return sha256


def _get(storage: Storage, sha256: str, path: Path, limit: int | None = None) -> None:
    storage.get(SHELF, f"{_FOLDER}/{sha256}", path, limit=limit)
    if sha256_of(path) != sha256:
        path.unlink()
        raise StorageError(
            f"{storage.store.location}/{SHELF}/{_FOLDER}/{sha256} is damaged: its content has another hash"
        )
