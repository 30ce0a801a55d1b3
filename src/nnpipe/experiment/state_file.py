"""State files: arrays as safetensors, everything else as JSON in its metadata, a schema version and
a checksum.

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

import base64
import hashlib
import io
import json
import math
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.files import replace_atomically, reserve

# State as a structure that JSON can hold and a list of arrays, and back, without loss.
#
# A state is made of dictionaries, lists, tuples, texts, bytes, numbers, booleans, ``None``, numpy
# arrays and scalars, and PyTorch tensors.  A value that JSON cannot represent becomes an object
# whose key ``"$"`` names its kind.  Nothing else is accepted, so reading a state cannot run code.

_TAG = "$"
_MOST_DEPTH = 200


@dataclass(frozen=True, eq=False)
class EncodedState:
    """A structure, and the arrays to which it refers by number."""

    structure: Any
    arrays: tuple[StoredArray, ...]


@dataclass(frozen=True, eq=False)
class StoredArray:
    """An array as bytes in C order, little-endian; ``dtype`` is its name in safetensors.

    ``data`` may be a view of the array's memory, or of the memory into which a file was read.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview


_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
}
_TYPES = {name: np.dtype(dtype).newbyteorder("<") for dtype, name in _NAMES.items()}
SIZES = {name: dtype.itemsize for name, dtype in _TYPES.items()} | {
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
}
"""Sizes of elements in bytes, by names of safetensors."""

_TORCH_ONLY = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}


def encode(state: Any) -> EncodedState:
    """Return a state as a structure and arrays.

    Raises
    ------
    ConfigError
        If a value cannot be part of a state; the message names its place.
    """
    arrays: list[StoredArray] = []
    return EncodedState(_encode_value(state, arrays, "state", 0), tuple(arrays))


def decode(encoded: EncodedState) -> Any:
    """Return the state of a structure and arrays.

    Raises
    ------
    ArtifactError
        If the structure was not made by :func:`encode`.
    MissingDependency
        If it holds tensors and PyTorch is not installed.
    """
    return _decode_value(encoded.structure, encoded.arrays, 0)


def _encode_value(value: Any, arrays: list[StoredArray], place: str, depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise ConfigError(f"{place[:200]}: nested more than {_MOST_DEPTH} deep, or within itself")
    if value is None or type(value) in (bool, str, int):
        return _check_text(value, place) if isinstance(value, str) else value
    if type(value) is float:
        return (
            value
            if math.isfinite(value)
            else {_TAG: "float", "hex": np.float64(value).tobytes().hex()}
        )
    if isinstance(value, Mapping):
        return _encode_mapping(value, arrays, place, depth)
    if isinstance(value, tuple):
        return {
            _TAG: "tuple",
            "items": [
                _encode_value(v, arrays, f"{place}.{i}", depth + 1) for i, v in enumerate(value)
            ],
        }
    if isinstance(value, list):
        return [_encode_value(v, arrays, f"{place}.{i}", depth + 1) for i, v in enumerate(value)]
    if isinstance(value, (np.ndarray, np.generic)):
        return _encode_array(value, arrays, place)
    if isinstance(value, (bytes, bytearray)):
        return {_TAG: "bytes", "base64": base64.b64encode(value).decode("ascii")}
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _encode_tensor(value, arrays, place)
    raise ConfigError(
        f"{place}: a state cannot hold {type(value).__module__}.{type(value).__qualname__}"
    )


def _check_text(value: str, place: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(
            f"{place}: a text with half a character in it cannot be written"
        ) from None
    return value


def _encode_mapping(
    value: Mapping[Any, Any], arrays: list[StoredArray], place: str, depth: int
) -> Any:
    if all(type(key) is str for key in value) and _TAG not in value:
        return {
            _check_text(key, place): _encode_value(item, arrays, f"{place}.{key}", depth + 1)
            for key, item in value.items()
        }
    items = [
        [
            _encode_value(key, arrays, place, depth + 1),
            _encode_value(item, arrays, f"{place}.{key}", depth + 1),
        ]
        for key, item in value.items()
    ]
    return {_TAG: "map", "items": items}


def _encode_array(
    value: npt.NDArray[Any] | np.generic, arrays: list[StoredArray], place: str
) -> Any:
    array = np.asarray(value)
    word = {_TAG: "array" if isinstance(value, np.ndarray) else "scalar", "dtype": array.dtype.str}
    stored = array
    if array.dtype.kind in "mMcSU":
        word["shape"] = list(array.shape)
        stored = np.ascontiguousarray(array).reshape(-1).view(_get_storage_dtype(array.dtype))
    if stored.dtype.name not in _NAMES:
        raise ConfigError(f"{place}: a state cannot hold an array of {array.dtype}")
    little = np.ascontiguousarray(stored).astype(stored.dtype.newbyteorder("<"), copy=False)
    arrays.append(StoredArray(_NAMES[stored.dtype.name], stored.shape, _get_bytes(little)))
    return {**word, "number": len(arrays) - 1}


def _get_bytes(array: npt.NDArray[Any]) -> bytes | memoryview:
    """Return an array's bytes in C order, without a copy if possible."""
    return array.reshape(-1).view(np.uint8).data if array.size else b""


def _get_storage_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the element type for storage: times as integers, complex numbers as two floats."""
    found: np.dtype[Any] = np.dtype(np.uint8)
    if dtype.kind in "mM":
        found = np.dtype(np.int64).newbyteorder(dtype.byteorder)
    elif dtype.kind == "c":
        found = np.dtype(f"f{dtype.itemsize // 2}").newbyteorder(dtype.byteorder)
    return found


def _encode_tensor(value: Any, arrays: list[StoredArray], place: str) -> Any:
    import torch

    name = str(value.dtype).removeprefix("torch.")
    if value.layout is not torch.strided or name not in {**_NAMES, **_TORCH_ONLY}:
        raise ConfigError(f"{place}: a state cannot hold a {value.layout} tensor of {value.dtype}")
    plain = value.detach().cpu().contiguous()
    data = _get_bytes(plain.reshape(-1).view(torch.uint8).numpy()) if plain.numel() else b""
    arrays.append(StoredArray(_NAMES.get(name) or _TORCH_ONLY[name], tuple(plain.shape), data))
    return {_TAG: "tensor", "dtype": name, "number": len(arrays) - 1}


def _decode_value(word: Any, arrays: Sequence[StoredArray], depth: int) -> Any:
    if depth > 2 * _MOST_DEPTH:
        raise ArtifactError("nested too deeply")
    if word is None or isinstance(word, (bool, int, float, str)):
        return word
    if isinstance(word, list):
        return [_decode_value(item, arrays, depth + 1) for item in word]
    if not isinstance(word, dict):
        raise ArtifactError(f"{type(word).__name__} is no part of a state")
    if _TAG not in word:
        return {key: _decode_value(item, arrays, depth + 1) for key, item in word.items()}
    try:
        return _decode_tagged(word, arrays, depth)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ArtifactError(f"a damaged {str(word[_TAG])[:20]}: {error}") from None


def _decode_tagged(word: dict[str, Any], arrays: Sequence[StoredArray], depth: int) -> Any:
    kind = word[_TAG]
    if kind == "float":
        return float(np.frombuffer(bytes.fromhex(word["hex"]), np.float64)[0])
    if kind == "tuple":
        return tuple(_decode_value(item, arrays, depth + 1) for item in word["items"])
    if kind == "map":
        return {
            _decode_value(key, arrays, depth + 1): _decode_value(item, arrays, depth + 1)
            for key, item in word["items"]
        }
    if kind == "bytes":
        return base64.b64decode(word["base64"], validate=True)
    if kind in ("array", "scalar"):
        array = _decode_array(word, _get_stored_array(word, arrays))
        return array if kind == "array" else array[()]
    if kind == "tensor":
        return _decode_tensor(word, _get_stored_array(word, arrays))
    raise ValueError("of no known kind")


def _get_stored_array(word: dict[str, Any], arrays: Sequence[StoredArray]) -> StoredArray:
    number = word["number"]
    if type(number) is not int or not 0 <= number < len(arrays):
        raise ValueError(f"there is no array number {number!r}")
    return arrays[number]


def _decode_array(word: dict[str, Any], stored: StoredArray) -> npt.NDArray[Any]:
    dtype = np.dtype(word["dtype"])
    if dtype.hasobject or dtype.fields or dtype.subdtype:
        raise ValueError(f"{dtype} is no type of a state's array")
    plain = np.frombuffer(stored.data, _TYPES[stored.dtype])
    if dtype.kind in "mMcSU":
        if not plain.size:
            return np.zeros(word["shape"], dtype)
        return np.asarray(
            plain.astype(_get_storage_dtype(dtype)).view(dtype).reshape(word["shape"])
        )
    found: npt.NDArray[Any] = plain.reshape(stored.shape).astype(dtype)
    return found


def _decode_tensor(word: dict[str, Any], stored: StoredArray) -> Any:
    try:
        import torch
    except ImportError:
        from nnpipe.core.errors import MissingDependency

        raise MissingDependency("this state holds tensors: pip install 'nnpipe[torch]'") from None
    if word["dtype"] not in {**_NAMES, **_TORCH_ONLY}:
        raise ValueError(f"{word['dtype']} is no type of a tensor")
    dtype = getattr(torch, word["dtype"])
    if not stored.data:
        return torch.empty(stored.shape, dtype=dtype)
    plain = np.frombuffer(stored.data, np.uint8)
    # otherwise the tensor uses the file's memory
    if not plain.flags.writeable or plain.ctypes.data % dtype.itemsize:
        plain = plain.copy()
    return torch.from_numpy(plain).view(dtype).reshape(stored.shape)


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
        Dictionaries, lists, tuples, strings, bytes, numbers, booleans, ``None``, numpy arrays and
        scalars, tensors.
    kind
        The kind of the state, such as ``"checkpoint"``; :func:`read_state` checks it.

    Raises
    ------
    ConfigError
        If a value cannot be part of a state; the message names its place, and no file is written.
    """
    encoded = encode(state)
    with replace_atomically(path) as temporary, temporary.open("wb") as file:
        _write(file, encoded, kind)


def to_bytes(state: Mapping[str, Any], *, kind: str) -> bytes:
    """Return the content of a state file; raise the errors of :func:`write_state`."""
    buffer = io.BytesIO()
    _write(buffer, encode(state), kind)
    return buffer.getvalue()


def _write(file: BinaryIO, encoded: EncodedState, kind: str) -> None:
    """Write the arrays while a thread computes their checksum, then write it into the header."""
    structure = json.dumps(encoded.structure, allow_nan=False, separators=(",", ":"))
    unknown = "0" * 64
    metadata = {
        "checksum": unknown,
        "format": _FORMAT,
        "schema": str(SCHEMA),
        "kind": kind,
        "structure": structure,
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for number, array in enumerate(encoded.arrays):
        begin, end = end, end + len(array.data)
        header[_format_array_name(number)] = {
            "dtype": array.dtype,
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    if len(text) > _HEADER_LIMIT:
        raise ConfigError(
            f"a state of {len(text):,} bytes beside its arrays is too large; put bulk into arrays"
        )
    text += b" " * (-len(text) % 8)  # so that the arrays begin where processors like them
    reserve(file, 8 + len(text) + end)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    if end < _LARGE:
        file.writelines(array.data for array in encoded.arrays)
        checksum = _compute_checksum(kind, SCHEMA, structure, encoded.arrays)
    else:
        with ThreadPoolExecutor(1, "checksum") as pool:
            waiting = pool.submit(_compute_checksum, kind, SCHEMA, structure, encoded.arrays)
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
        If the file is missing, damaged, not a state file, of another kind, or of a newer schema;
        the message names it.
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
    """Return the state of a file's content; raise the errors of :func:`read_state`, without a
    file name.
    """
    return _read(content, kind)


def _read(content: bytes | bytearray, kind: str) -> dict[str, Any]:
    header, begin = _read_header(content)
    metadata = header.pop("__metadata__")
    schema = _parse_schema(metadata)
    arrays = _read_arrays(header, memoryview(content)[begin:])
    structure = str(metadata.get("structure"))
    if metadata.get(_get_checksum_name(schema)) != _compute_checksum(
        str(metadata.get("kind")), schema, structure, arrays
    ):
        raise ArtifactError("damaged: its checksum is not that of its content")
    if metadata["kind"] != kind:
        raise ArtifactError(
            f"the state of a {metadata['kind']!r}, where that of a {kind!r} is wanted"
        )
    try:
        parsed = json.loads(structure)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"damaged: {error}") from None
    for older in range(schema, SCHEMA):
        parsed = MIGRATIONS[older](parsed)
    state = decode(EncodedState(parsed, tuple(arrays)))
    if not isinstance(state, dict):
        raise ArtifactError("damaged: it holds no dictionary")
    return state


def _read_header(content: bytes | bytearray) -> tuple[dict[str, Any], int]:
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


def _read_arrays(header: Mapping[str, Any], data: memoryview) -> list[StoredArray]:
    """Return the arrays; check that they follow each other without gaps, with the sizes of their
    types and shapes.
    """
    found, end = [], 0
    for number in range(len(header)):
        try:
            word = header[_format_array_name(number)]
            dtype, shape, (begin, stop) = word["dtype"], word["shape"], word["data_offsets"]
            whole = all(type(length) is int and length >= 0 for length in (*shape, begin, stop))
            if (
                not whole
                or begin != end
                or stop - begin != math.prod(shape) * SIZES[dtype]
                or stop > len(data)
            ):
                raise ValueError("misplaced")
        except (KeyError, ValueError, TypeError):
            raise ArtifactError(f"damaged: array {number} is missing or misplaced") from None
        found.append(StoredArray(dtype, tuple(shape), data[begin:stop]))
        end = stop
    if end != len(data):
        raise ArtifactError("damaged: there is more than its arrays")
    return found


def _parse_schema(metadata: Mapping[str, str]) -> int:
    text = str(metadata.get("schema"))
    schema = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1
    if schema > SCHEMA:
        raise ArtifactError(
            f"written by a newer nnpipe (schema {schema}, not {SCHEMA}): upgrade nnpipe"
        )
    if schema != SCHEMA and schema not in MIGRATIONS:
        raise ArtifactError(f"of schema {text[:20]}, which this nnpipe does not read")
    return schema


def _format_array_name(number: int) -> str:
    return f"array.{number:06d}"


def _get_checksum_name(schema: int) -> str:
    return "sha256" if schema == 1 else "checksum"


def _compute_checksum(kind: str, schema: int, structure: str, arrays: Sequence[StoredArray]) -> str:
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
