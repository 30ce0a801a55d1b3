"""State files: safetensors for arrays, JSON in its metadata for all else, a schema version and a checksum.

::

    8 bytes   length of the header, little-endian
    header    JSON: name -> dtype, shape, data_offsets; "__metadata__" -> texts:
              format "nnpipe state", schema, kind, structure (JSON), sha256
    data      the arrays, one after another

The checksum is over the kind, the schema, the structure, and each array's type, shape
and bytes in order.  Whatever else reads safetensors reads the arrays, too
(https://github.com/huggingface/safetensors).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError, ConfigError, MissingDependency
from nnpipe.core.files import write_bytes
from nnpipe.experiment._encoding import Bytes, Encoded, decode, encode

SCHEMA = 1
"""Version of what is written; what :data:`MIGRATIONS` leads from can still be read."""

MIGRATIONS: dict[int, Callable[[Any], Any]] = {}
"""By older schema: what makes its structure one of the next schema."""

_FORMAT = "nnpipe state"
_LIMIT = 1 << 40  # bytes
_HEADER_LIMIT = 100_000_000  # as safetensors itself has it


def write_state(path: str | Path, state: Mapping[str, Any], *, kind: str) -> None:
    """Write a state, whole or not at all.

    Parameters
    ----------
    path
        The file.
    state
        Dictionaries, lists, tuples, texts, bytes, numbers, booleans, ``None``, numpy arrays and scalars, tensors.
    kind
        What it is the state of, such as ``"checkpoint"``; :func:`read_state` asks for it.

    Raises
    ------
    ConfigError
        Naming the place of a value that no state may hold; no file is written then.
    """
    write_bytes(path, to_bytes(state, kind=kind))


def to_bytes(state: Mapping[str, Any], *, kind: str) -> bytes:
    """Give the content of a state file; raises as :func:`write_state` does."""
    encoded = encode(state)
    structure = json.dumps(encoded.structure, allow_nan=False, separators=(",", ":"))
    metadata = {
        "format": _FORMAT,
        "schema": str(SCHEMA),
        "kind": kind,
        "structure": structure,
        "sha256": _checksum(kind, SCHEMA, structure, encoded.arrays),
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for number, array in enumerate(encoded.arrays):
        begin, end = end, end + len(array.data)
        header[_name(number)] = {"dtype": array.dtype, "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    if len(text) > _HEADER_LIMIT:
        raise ConfigError(f"a state of {len(text):,} bytes beside its arrays is too large; put bulk into arrays")
    text += b" " * (-len(text) % 8)  # so that the arrays begin where processors like them
    return b"".join((len(text).to_bytes(8, "little"), text, *(array.data for array in encoded.arrays)))


def read_state(path: str | Path, *, kind: str) -> dict[str, Any]:
    """Read a state file.

    Parameters
    ----------
    path
        The file.
    kind
        What it must be the state of.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, foreign, of another kind, or of a newer schema; the message names it.
    MissingDependency
        If safetensors is not installed, or the state holds tensors and PyTorch is not.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise ArtifactError("not a file")
        if size > _LIMIT:
            raise ArtifactError(f"{size:,} bytes are more than a state has")
        return from_bytes(path.read_bytes(), kind=kind)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from None


def from_bytes(content: bytes, *, kind: str) -> dict[str, Any]:
    """Read the content of a state file; raises as :func:`read_state` does, without a name."""
    safetensors = _safetensors()
    metadata = _metadata(content)
    try:
        found = dict(safetensors.deserialize(content))
    except (safetensors.SafetensorError, ValueError) as error:
        raise ArtifactError(f"damaged: {error}") from None
    schema = _schema(metadata)
    arrays = [_bytes(found, number) for number in range(len(found))]
    structure = str(metadata.get("structure"))
    if metadata.get("sha256") != _checksum(str(metadata.get("kind")), schema, structure, arrays):
        raise ArtifactError("damaged: its checksum is not that of its content")
    if metadata["kind"] != kind:
        raise ArtifactError(f"the state of a {metadata['kind']!r}, where that of a {kind!r} is wanted")
    try:
        parsed = json.loads(structure)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"damaged: {error}") from None
    for older in range(schema, SCHEMA):
        parsed = MIGRATIONS[older](parsed)
    state = decode(Encoded(parsed, tuple(arrays)))
    if not isinstance(state, dict):
        raise ArtifactError("damaged: it holds no dictionary")
    return state


def _metadata(content: bytes) -> dict[str, str]:
    """Read the header by hand: the library gives arrays only."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(len(content) - 8, _HEADER_LIMIT):
        raise ArtifactError("not a state file, or cut short")
    try:
        header = json.loads(content[8 : 8 + length])
        metadata = header["__metadata__"]
        if metadata["format"] != _FORMAT:
            raise KeyError("format")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ArtifactError("not a state file") from None
    return dict(metadata)


def _schema(metadata: Mapping[str, str]) -> int:
    text = str(metadata.get("schema"))
    schema = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1
    if schema > SCHEMA:
        raise ArtifactError(f"written by a newer nnpipe (schema {schema}, not {SCHEMA}): upgrade nnpipe")
    if schema != SCHEMA and schema not in MIGRATIONS:
        raise ArtifactError(f"of schema {text[:20]}, which this nnpipe does not read")
    return schema


def _bytes(found: Mapping[str, Mapping[str, Any]], number: int) -> Bytes:
    array = found.get(_name(number))
    if array is None:
        raise ArtifactError(f"damaged: array {number} is missing")
    return Bytes(str(array["dtype"]), tuple(array["shape"]), bytes(array["data"]))


def _name(number: int) -> str:
    return f"array.{number:06d}"


def _checksum(kind: str, schema: int, structure: str, arrays: Sequence[Bytes]) -> str:
    digest = hashlib.sha256()
    for part in (kind, str(schema), structure):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    for array in arrays:
        digest.update(json.dumps([array.dtype, list(array.shape), len(array.data)]).encode())
        digest.update(array.data)
    return digest.hexdigest()


def _safetensors() -> Any:
    try:
        import safetensors
    except ImportError:
        raise MissingDependency(
            "state files need safetensors, which is not installed: pip install 'nnpipe[experiment]'"
        ) from None
    return safetensors
