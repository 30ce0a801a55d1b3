"""Read the JSON of untrusted result files, with limits that are checked before memory is
allocated.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import zlib
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ArtifactError
from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.measuring.series import Series

# Store arrays in JSON: compact, lossless, and with a size limit when read.
#
# Slowly changing numbers (times, counters) are stored as differences.  Bytes of equal significance
# are grouped, compressed (zlib) and written as base64::
#
#     {"dtype": "int64", "shape": [3], "delta": true, "data": "eNpj..."}
#
# Differences are taken modulo 2**bits, so that any values are restored exactly. All numbers are
# little endian.

LIMIT = 1 << 29
"""The size limit of one array in bytes: far more than any measurement needs, far less than a
workstation's memory.
"""

_DTYPES = {
    np.dtype(code).name: np.dtype(code) for code in "bool i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8".split()
}
_MOST_AXES = 32  # the limit of all versions of numpy


def pack(array: npt.ArrayLike) -> dict[str, Any]:
    """Return an array as a JSON object.

    Parameters
    ----------
    array
        Booleans, integers or floats of any shape.

    Raises
    ------
    TypeError
        If the array has another element type.
    ArtifactError
        If the array is larger than :func:`unpack` would accept.
    """
    array = np.asarray(array)
    native = array.dtype.newbyteorder("=")
    if _DTYPES.get(native.name) != native:
        raise TypeError(f"{array.dtype} arrays are not stored in result files")
    if array.nbytes > LIMIT:
        raise ArtifactError(
            f"an array of {array.nbytes:,} bytes is too large for a result file, {LIMIT:,} may be"
        )
    flat = np.ascontiguousarray(array, native.newbyteorder("<")).reshape(-1)
    data, delta = _compress_array(flat), False
    if _can_differ(native) and flat.size > 1:
        differences = _compress_array(_compute_differences(flat))
        if len(differences) < len(data):
            data, delta = differences, True
    text = base64.b64encode(data).decode("ascii")
    return {"dtype": native.name, "shape": list(array.shape), "delta": delta, "data": text}


def unpack(data: Mapping[str, Any], limit: int = LIMIT) -> npt.NDArray[Any]:
    """Return the array that :func:`pack` stored, as a writable array.

    Parameters
    ----------
    data
        The object; its source need not be trusted.
    limit
        The size limit of the array in bytes.

    Raises
    ------
    ArtifactError
        If the object is damaged, or claims more than its data hold or ``limit`` allows.
    """
    try:
        dtype = _DTYPES[data["dtype"]]
        shape = _parse_shape(data["shape"])
        size = math.prod(shape) * dtype.itemsize
        if size > limit:
            raise ValueError(f"{size:,} bytes are too many")
        delta = data["delta"]
        if not isinstance(delta, bool) or (delta and not _can_differ(dtype)):
            raise ValueError(f"{dtype} values are not stored as differences")
        flat = _decompress_array(data["data"], size, dtype)
        if delta:
            unsigned = flat.view(f"u{dtype.itemsize}")
            flat = np.cumsum(unsigned, dtype=unsigned.dtype).view(dtype)
        return flat.reshape(shape)
    except KeyError as error:
        raise ArtifactError(f"a stored array is damaged: {error} is missing or unknown") from None
    except (TypeError, ValueError, AttributeError, zlib.error) as error:
        raise ArtifactError(f"a stored array is damaged: {error}") from None


def _parse_shape(lengths: Any) -> tuple[int, ...]:
    if not isinstance(lengths, list) or len(lengths) > _MOST_AXES:
        raise ValueError("its shape is no list of axis lengths")
    for length in lengths:
        if not isinstance(length, int) or isinstance(length, bool) or not 0 <= length <= LIMIT:
            raise ValueError(f"{str(length)[:40]} is no axis length")
    return tuple(lengths)


def _can_differ(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu" and dtype.itemsize > 1


def _compute_differences(flat: npt.NDArray[Any]) -> npt.NDArray[Any]:
    unsigned = flat.view(f"<u{flat.dtype.itemsize}")
    found = np.empty_like(unsigned)
    found[0] = unsigned[0]
    np.subtract(unsigned[1:], unsigned[:-1], out=found[1:])
    return found


def _compress_array(flat: npt.NDArray[Any]) -> bytes:
    shuffled = flat.view(np.uint8).reshape(-1, flat.dtype.itemsize).T
    return zlib.compress(shuffled.tobytes(), 1)  # higher levels: five times slower, 3 % smaller


def _decompress_array(text: Any, size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    opener = zlib.decompressobj()
    # Ask for one byte more than expected, so that a too long stream is detected without
    # decompressing it all.
    raw = opener.decompress(base64.b64decode(text, validate=True), size + 1)
    if len(raw) != size or not opener.eof or opener.unused_data:
        raise ValueError("its data do not have the stated length")
    shuffled = np.frombuffer(raw, np.uint8).reshape(dtype.itemsize, -1)
    ordered = np.empty((shuffled.shape[1], dtype.itemsize), np.uint8)
    ordered[...] = shuffled.T
    if dtype == np.bool_ and size and ordered.max() > 1:
        raise ValueError("a truth value is neither 0 nor 1")
    flat: npt.NDArray[Any] = ordered.reshape(-1).view(dtype.newbyteorder("<"))
    return flat.astype(dtype, copy=False)


COMPARISON = "comparison"  # the ``kind`` of a file with the runs of a comparison

# Limits on what is read from a file, so that no file can exhaust the reader's memory.
_FILE_LIMIT = 1 << 28  # bytes; ten million inferences need half of it
_NODE_LIMIT = 1 << 20  # JSON values; bulk arrays are text and count as one each
_ARRAYS_LIMIT = 1 << 30  # bytes of all arrays together, unpacked

_IN_USE: MutableMapping[bytes, npt.NDArray[Any]] = WeakValueDictionary()
"""Arrays that are in use, by the digest of their JSON: many results hold the same truth, which
is kept once.
"""

T = TypeVar("T")

_KINDS: dict[type, str] = {str: "a text", list: "a list", dict: "an object"}
_COLUMNS = {"resources": ("time_ns",), "paced": ("start_ns", "latency_ns", "asleep")}
_COLUMNS |= {
    "inference": ("start_ns", "latency_ns", "samples"),
    "energy": ("duration_ns", "calls", "joules"),
}


def read_json(path: Path) -> Any:
    """Read the JSON of a result file.

    Raises
    ------
    ArtifactError
        If it is missing, too large or malformed; the message does not name the file.
    """
    try:
        if not path.is_file():
            raise ArtifactError("no such result file")
        if path.stat().st_size > _FILE_LIMIT:
            raise ArtifactError("too large for a result file")
        return _parse(path.read_bytes())
    except OSError as error:
        raise ArtifactError(f"cannot be read: {error.strerror or error}") from None


def is_result(path: Path) -> bool:
    """Return whether a file is the result of a measurement or of a comparison, judged by its
    beginning.
    """
    try:
        data = read_json(path)
    except ArtifactError:
        return False
    return (
        isinstance(data, dict)
        and "schema" in data
        and ("series" in data or data.get("kind") == COMPARISON)
    )


class ArrayUnpacker:
    """Unpacks arrays, which are read-only, and raises an error if they are too large in total."""

    def __init__(self) -> None:
        self.left = _ARRAYS_LIMIT

    def __call__(self, packed: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """Return the unpacked arrays by name."""
        found = {}
        for name in packed:
            data = require_entry_type(dict, packed, name)
            digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).digest()
            array = _IN_USE.get(digest)
            if array is None:
                array = unpack(data, min(self.left, LIMIT))
                array.flags.writeable = False
                _IN_USE[digest] = array
            self.left -= array.nbytes
            found[name] = array
        return found


def read_series(data: Mapping[str, Any], arrays: ArrayUnpacker) -> dict[str, Series]:
    """Return the series of a result file; raise ``ValueError`` if a column is missing."""
    found = {name: Series(arrays(require_entry_type(dict, data, name))) for name in data}
    for name, columns in _COLUMNS.items():
        for column in columns:
            if name in found and column not in found[name]:
                raise ValueError(f"the series {name!r} has no column {column!r}")
    return found


def read_evaluation(data: Any, arrays: ArrayUnpacker) -> Evaluation | None:
    """Return the evaluation of a result file, if it has one."""
    if data is None:
        return None
    if not isinstance(data, dict):
        raise TypeError("'evaluation' should be an object")
    found = arrays(require_entry_type(dict, data, "arrays"))
    for name, array in found.items():
        if not array.ndim:
            raise ValueError(f"the evaluation's {name!r} has no axis for samples")
    ragged = {}
    # files of earlier versions have none
    for name in require_entry_type(dict, data, "ragged") if "ragged" in data else ():
        rows = arrays(require_entry_type(dict, data["ragged"], name))
        ragged[name] = Ragged(rows["values"], rows["counts"])
    return Evaluation(
        require_entry_type(str, data, "task"),
        found,
        tuple(map(str, require_entry_type(list, data, "class_names"))),
        ragged,
        require_entry_type(dict, data, "settings") if "settings" in data else {},
    )


def require_entry_type(kind: type[T], data: Mapping[str, Any], name: str) -> T:
    """Return an entry after checking its type.

    Raises
    ------
    KeyError
        If the entry is missing.
    TypeError
        If it has another type.
    """
    value = data[name]
    if not isinstance(value, kind):
        raise TypeError(f"{name!r} should be {_KINDS[kind]}")
    return value


def _parse(content: bytes) -> Any:
    # Each JSON value but the first follows one of these characters.  A small file of many empty
    # lists would otherwise fill the memory.
    if sum(map(content.count, (b",", b":", b"[", b"{"))) > _NODE_LIMIT:
        raise ArtifactError("not a result file: too many values")
    try:
        return parse_json(content.decode("utf-8"), parse_float=_parse_number)
    except ValueError as error:
        raise ArtifactError(f"not a result file: {error}") from None


def _parse_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is no number")
    return number
