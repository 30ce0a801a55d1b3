"""State as a structure that JSON can hold and a list of arrays, and back, without loss.

A state is made of dictionaries, lists, tuples, texts, bytes, numbers, booleans,
``None``, numpy arrays and scalars, and PyTorch tensors.  A value that JSON cannot
represent becomes an object whose key ``"$"`` names its kind.  Nothing else is
accepted, so reading a state cannot run code.
"""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError, ConfigError

_TAG = "$"
_MOST_DEPTH = 200


@dataclass(frozen=True, eq=False)
class Encoded:
    """A structure, and the arrays to which it refers by number."""

    structure: Any
    arrays: tuple[Bytes, ...]


@dataclass(frozen=True, eq=False)
class Bytes:
    """An array as bytes in C order, little-endian; ``dtype`` is its name in safetensors.

    ``data`` may be a view of the array's memory, or of the memory into which a file was read.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview


_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "float32": "F32", "float64": "F64",
}  # fmt: skip
_TYPES = {name: np.dtype(dtype).newbyteorder("<") for dtype, name in _NAMES.items()}
SIZES = {name: dtype.itemsize for name, dtype in _TYPES.items()} | {"BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
"""Sizes of elements in bytes, by names of safetensors."""

_TORCH_ONLY = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}


def encode(state: Any) -> Encoded:
    """Return a state as a structure and arrays.

    Raises
    ------
    ConfigError
        If a value cannot be part of a state; the message names its place.
    """
    arrays: list[Bytes] = []
    return Encoded(_encoded(state, arrays, "state", 0), tuple(arrays))


def decode(encoded: Encoded) -> Any:
    """Return the state of a structure and arrays.

    Raises
    ------
    ArtifactError
        If the structure was not made by :func:`encode`.
    MissingDependency
        If it holds tensors and PyTorch is not installed.
    """
    return _decoded(encoded.structure, encoded.arrays, 0)


def _encoded(value: Any, arrays: list[Bytes], place: str, depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise ConfigError(f"{place[:200]}: nested more than {_MOST_DEPTH} deep, or within itself")
    if value is None or type(value) in (bool, str, int):
        return _text_checked(value, place) if isinstance(value, str) else value
    if type(value) is float:
        return value if math.isfinite(value) else {_TAG: "float", "hex": np.float64(value).tobytes().hex()}
    if isinstance(value, Mapping):
        return _mapping(value, arrays, place, depth)
    if isinstance(value, tuple):
        return {_TAG: "tuple", "items": [_encoded(v, arrays, f"{place}.{i}", depth + 1) for i, v in enumerate(value)]}
    if isinstance(value, list):
        return [_encoded(v, arrays, f"{place}.{i}", depth + 1) for i, v in enumerate(value)]
    if isinstance(value, (np.ndarray, np.generic)):
        return _numpy(value, arrays, place)
    if isinstance(value, (bytes, bytearray)):
        return {_TAG: "bytes", "base64": base64.b64encode(value).decode("ascii")}
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor(value, arrays, place)
    raise ConfigError(f"{place}: a state cannot hold {type(value).__module__}.{type(value).__qualname__}")


def _text_checked(value: str, place: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(f"{place}: a text with half a character in it cannot be written") from None
    return value


def _mapping(value: Mapping[Any, Any], arrays: list[Bytes], place: str, depth: int) -> Any:
    if all(type(key) is str for key in value) and _TAG not in value:
        return {
            _text_checked(key, place): _encoded(item, arrays, f"{place}.{key}", depth + 1)
            for key, item in value.items()
        }
    items = [
        [_encoded(key, arrays, place, depth + 1), _encoded(item, arrays, f"{place}.{key}", depth + 1)]
        for key, item in value.items()
    ]
    return {_TAG: "map", "items": items}


def _numpy(value: npt.NDArray[Any] | np.generic, arrays: list[Bytes], place: str) -> Any:
    array = np.asarray(value)
    word = {_TAG: "array" if isinstance(value, np.ndarray) else "scalar", "dtype": array.dtype.str}
    stored = array
    if array.dtype.kind in "mMcSU":
        word["shape"] = list(array.shape)
        stored = np.ascontiguousarray(array).reshape(-1).view(_stored_as(array.dtype))
    if stored.dtype.name not in _NAMES:
        raise ConfigError(f"{place}: a state cannot hold an array of {array.dtype}")
    little = np.ascontiguousarray(stored).astype(stored.dtype.newbyteorder("<"), copy=False)
    arrays.append(Bytes(_NAMES[stored.dtype.name], stored.shape, _seen(little)))
    return {**word, "number": len(arrays) - 1}


def _seen(array: npt.NDArray[Any]) -> bytes | memoryview:
    """Return an array's bytes in C order, without a copy if possible."""
    return array.reshape(-1).view(np.uint8).data if array.size else b""


def _stored_as(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the element type for storage: times as integers, complex numbers as two floats."""
    found: np.dtype[Any] = np.dtype(np.uint8)
    if dtype.kind in "mM":
        found = np.dtype(np.int64).newbyteorder(dtype.byteorder)
    elif dtype.kind == "c":
        found = np.dtype(f"f{dtype.itemsize // 2}").newbyteorder(dtype.byteorder)
    return found


def _tensor(value: Any, arrays: list[Bytes], place: str) -> Any:
    import torch

    name = str(value.dtype).removeprefix("torch.")
    if value.layout is not torch.strided or name not in {**_NAMES, **_TORCH_ONLY}:
        raise ConfigError(f"{place}: a state cannot hold a {value.layout} tensor of {value.dtype}")
    plain = value.detach().cpu().contiguous()
    data = _seen(plain.reshape(-1).view(torch.uint8).numpy()) if plain.numel() else b""
    arrays.append(Bytes(_NAMES.get(name) or _TORCH_ONLY[name], tuple(plain.shape), data))
    return {_TAG: "tensor", "dtype": name, "number": len(arrays) - 1}


def _decoded(word: Any, arrays: Sequence[Bytes], depth: int) -> Any:
    if depth > 2 * _MOST_DEPTH:
        raise ArtifactError("nested too deeply")
    if word is None or isinstance(word, (bool, int, float, str)):
        return word
    if isinstance(word, list):
        return [_decoded(item, arrays, depth + 1) for item in word]
    if not isinstance(word, dict):
        raise ArtifactError(f"{type(word).__name__} is no part of a state")
    if _TAG not in word:
        return {key: _decoded(item, arrays, depth + 1) for key, item in word.items()}
    try:
        return _tagged(word, arrays, depth)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ArtifactError(f"a damaged {str(word[_TAG])[:20]}: {error}") from None


def _tagged(word: dict[str, Any], arrays: Sequence[Bytes], depth: int) -> Any:
    kind = word[_TAG]
    if kind == "float":
        return float(np.frombuffer(bytes.fromhex(word["hex"]), np.float64)[0])
    if kind == "tuple":
        return tuple(_decoded(item, arrays, depth + 1) for item in word["items"])
    if kind == "map":
        return {_decoded(key, arrays, depth + 1): _decoded(item, arrays, depth + 1) for key, item in word["items"]}
    if kind == "bytes":
        return base64.b64decode(word["base64"], validate=True)
    if kind in ("array", "scalar"):
        array = _array(word, _numbered(word, arrays))
        return array if kind == "array" else array[()]
    if kind == "tensor":
        return _torch_tensor(word, _numbered(word, arrays))
    raise ValueError("of no known kind")


def _numbered(word: dict[str, Any], arrays: Sequence[Bytes]) -> Bytes:
    number = word["number"]
    if type(number) is not int or not 0 <= number < len(arrays):
        raise ValueError(f"there is no array number {number!r}")
    return arrays[number]


def _array(word: dict[str, Any], stored: Bytes) -> npt.NDArray[Any]:
    dtype = np.dtype(word["dtype"])
    if dtype.hasobject or dtype.fields or dtype.subdtype:
        raise ValueError(f"{dtype} is no type of a state's array")
    plain = np.frombuffer(stored.data, _TYPES[stored.dtype])
    if dtype.kind in "mMcSU":
        if not plain.size:
            return np.zeros(word["shape"], dtype)
        return np.asarray(plain.astype(_stored_as(dtype)).view(dtype).reshape(word["shape"]))
    found: npt.NDArray[Any] = plain.reshape(stored.shape).astype(dtype)
    return found


def _torch_tensor(word: dict[str, Any], stored: Bytes) -> Any:
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
    if not plain.flags.writeable or plain.ctypes.data % dtype.itemsize:  # otherwise the tensor uses the file's memory
        plain = plain.copy()
    return torch.from_numpy(plain).view(dtype).reshape(stored.shape)
