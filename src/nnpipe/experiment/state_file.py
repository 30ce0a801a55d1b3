"""State files: arrays as safetensors, everything else as JSON in its metadata, a schema version and a checksum.

::

    8 bytes   length of the header, little-endian
    header    JSON: name -> dtype, shape, data_offsets; "__metadata__" -> texts:
              format "nnpipe state", schema, kind, structure (JSON), checksum
    data      the arrays, one after another

The checksum is the SHA-256 of the kind, the schema, the structure, and of each array's
type, shape, length and XXH3-64, in order.  It detects damage, not manipulation: an attacker
can compute it, too.  The SHA-256 of the bytes themselves, as in schema 1, takes twice as long
as writing them; their CRC-32, as in schema 2, half as long.
Other readers of safetensors can read the arrays (https://github.com/huggingface/safetensors).
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.files import replacing, reserve
from nnpipe.experiment.encoding import SIZES, Bytes, Encoded, decode, encode

SCHEMA = 3
"""The schema version that is written; versions in :data:`MIGRATIONS` can still be read."""

MIGRATIONS: dict[int, Callable[[Any], Any]] = {
    1: lambda structure: structure,
    2: lambda structure: structure,
}
"""By schema version: the function that converts its structure to the next version."""

_FORMAT = "nnpipe state"
_LIMIT = 1 << 40  # bytes
_LARGE = 1 << 22  # bytes; larger arrays are checksummed in a thread
_HEADER_LIMIT = 100_000_000  # the same limit as in safetensors


def write_state(path: str | Path, state: Mapping[str, Any], *, kind: str) -> None:
    """Write a state atomically.

    Parameters
    ----------
    path
        The file.
    state
        Dictionaries, lists, tuples, strings, bytes, numbers, booleans, ``None``, numpy arrays and scalars, tensors.
    kind
        The kind of the state, such as ``"checkpoint"``; :func:`read_state` checks it.

    Raises
    ------
    ConfigError
        If a value cannot be part of a state; the message names its place, and no file is written.
    """
    encoded = encode(state)
    with replacing(path) as temporary, temporary.open("wb") as file:
        _write(file, encoded, kind)


def to_bytes(state: Mapping[str, Any], *, kind: str) -> bytes:
    """Return the content of a state file; raise the errors of :func:`write_state`."""
    buffer = io.BytesIO()
    _write(buffer, encode(state), kind)
    return buffer.getvalue()


def _write(file: BinaryIO, encoded: Encoded, kind: str) -> None:
    """Write the arrays while a thread computes their checksum, then write it into the header."""
    structure = json.dumps(encoded.structure, allow_nan=False, separators=(",", ":"))
    unknown = "0" * 64
    metadata = {"checksum": unknown, "format": _FORMAT, "schema": str(SCHEMA), "kind": kind, "structure": structure}
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for number, array in enumerate(encoded.arrays):
        begin, end = end, end + len(array.data)
        header[_name(number)] = {"dtype": array.dtype, "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    if len(text) > _HEADER_LIMIT:
        raise ConfigError(f"a state of {len(text):,} bytes beside its arrays is too large; put bulk into arrays")
    text += b" " * (-len(text) % 8)  # so that the arrays begin where processors like them
    reserve(file, 8 + len(text) + end)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    if end < _LARGE:
        file.writelines(array.data for array in encoded.arrays)
        checksum = _checksum(kind, SCHEMA, structure, encoded.arrays)
    else:
        with ThreadPoolExecutor(1, "checksum") as pool:
            waiting = pool.submit(_checksum, kind, SCHEMA, structure, encoded.arrays)
            file.writelines(array.data for array in encoded.arrays)
            checksum = waiting.result()
    file.seek(8 + text.index(unknown.encode()))  # the checksum comes first in the header
    file.write(checksum.encode())


def read_state(path: str | Path, *, kind: str) -> dict[str, Any]:
    """Return the state of a file.

    Parameters
    ----------
    path
        The file.
    kind
        The kind that the state must have.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, not a state file, of another kind, or of a newer schema; the message names it.
    MissingDependency
        If the state holds tensors and PyTorch is not installed.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise ArtifactError("not a file")
        if size > _LIMIT:
            raise ArtifactError(f"{size:,} bytes are more than a state has")
        with path.open("rb") as file:
            content = bytearray(size)  # the memory of the state's arrays
            if file.readinto(content) != size:
                raise ArtifactError("it became shorter while it was read")
        return _read(content, kind)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from None


def from_bytes(content: bytes, *, kind: str) -> dict[str, Any]:
    """Return the state of a file's content; raise the errors of :func:`read_state`, without a file name."""
    return _read(content, kind)


def _read(content: bytes | bytearray, kind: str) -> dict[str, Any]:
    header, begin = _header(content)
    metadata = header.pop("__metadata__")
    schema = _schema(metadata)
    arrays = _arrays(header, memoryview(content)[begin:])
    structure = str(metadata.get("structure"))
    if metadata.get(_checksum_name(schema)) != _checksum(str(metadata.get("kind")), schema, structure, arrays):
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


def _header(content: bytes | bytearray) -> tuple[dict[str, Any], int]:
    """Return the header, and the offset of the arrays."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(len(content) - 8, _HEADER_LIMIT):
        raise ArtifactError("not a state file, or cut short")
    try:
        header = parse_json(bytes(content[8 : 8 + length]), any_text=True)
        if header["__metadata__"]["format"] != _FORMAT or not all(
            isinstance(text, str) for text in header["__metadata__"].values()
        ):
            raise KeyError("format")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ArtifactError("not a state file") from None
    return header, 8 + length


def _arrays(header: Mapping[str, Any], data: memoryview) -> list[Bytes]:
    """Return the arrays; check that they follow each other without gaps, with the sizes of their types and shapes."""
    found, end = [], 0
    for number in range(len(header)):
        try:
            word = header[_name(number)]
            dtype, shape, (begin, stop) = word["dtype"], word["shape"], word["data_offsets"]
            whole = all(type(length) is int and length >= 0 for length in (*shape, begin, stop))
            if not whole or begin != end or stop - begin != math.prod(shape) * SIZES[dtype] or stop > len(data):
                raise ValueError("misplaced")
        except (KeyError, ValueError, TypeError):
            raise ArtifactError(f"damaged: array {number} is missing or misplaced") from None
        found.append(Bytes(dtype, tuple(shape), data[begin:stop]))
        end = stop
    if end != len(data):
        raise ArtifactError("damaged: there is more than its arrays")
    return found


def _schema(metadata: Mapping[str, str]) -> int:
    text = str(metadata.get("schema"))
    schema = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1
    if schema > SCHEMA:
        raise ArtifactError(f"written by a newer nnpipe (schema {schema}, not {SCHEMA}): upgrade nnpipe")
    if schema != SCHEMA and schema not in MIGRATIONS:
        raise ArtifactError(f"of schema {text[:20]}, which this nnpipe does not read")
    return schema


def _name(number: int) -> str:
    return f"array.{number:06d}"


def _checksum_name(schema: int) -> str:
    return "sha256" if schema == 1 else "checksum"


def _checksum(kind: str, schema: int, structure: str, arrays: Sequence[Bytes]) -> str:
    digest = hashlib.sha256()
    for part in (kind, str(schema), structure):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    for array in arrays:
        said = [array.dtype, list(array.shape), len(array.data)]
        if schema == 2:
            said.append(zlib.crc32(array.data))
        elif schema > 2:
            said.append(xxhash.xxh3_64_intdigest(array.data))
        digest.update(json.dumps(said).encode())
        if schema == 1:
            digest.update(array.data)
    return digest.hexdigest()
