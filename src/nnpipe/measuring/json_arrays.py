"""Store arrays in JSON: compact, lossless, and with a size limit when read.

Slowly changing numbers (times, counters) are stored as differences.  Bytes of
equal significance are grouped, compressed (zlib) and written as base64::

    {"dtype": "int64", "shape": [3], "delta": true, "data": "eNpj..."}

Differences are taken modulo 2**bits, so that any values are restored exactly.
All numbers are little endian.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError

LIMIT = 1 << 29
"""The size limit of one array in bytes: far more than any measurement needs, far less than a workstation's memory."""

_DTYPES = {np.dtype(code).name: np.dtype(code) for code in "bool i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8".split()}
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
        raise ArtifactError(f"an array of {array.nbytes:,} bytes is too large for a result file, {LIMIT:,} may be")
    flat = np.ascontiguousarray(array, native.newbyteorder("<")).reshape(-1)
    data, delta = _squeeze(flat), False
    if _can_differ(native) and flat.size > 1:
        differences = _squeeze(_differences(flat))
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
        shape = _shape(data["shape"])
        size = math.prod(shape) * dtype.itemsize
        if size > limit:
            raise ValueError(f"{size:,} bytes are too many")
        delta = data["delta"]
        if not isinstance(delta, bool) or (delta and not _can_differ(dtype)):
            raise ValueError(f"{dtype} values are not stored as differences")
        flat = _expand(data["data"], size, dtype)
        if delta:
            unsigned = flat.view(f"u{dtype.itemsize}")
            flat = np.cumsum(unsigned, dtype=unsigned.dtype).view(dtype)
        return flat.reshape(shape)
    except KeyError as error:
        raise ArtifactError(f"a stored array is damaged: {error} is missing or unknown") from None
    except (TypeError, ValueError, AttributeError, zlib.error) as error:
        raise ArtifactError(f"a stored array is damaged: {error}") from None


def _shape(lengths: Any) -> tuple[int, ...]:
    if not isinstance(lengths, list) or len(lengths) > _MOST_AXES:
        raise ValueError("its shape is no list of axis lengths")
    for length in lengths:
        if not isinstance(length, int) or isinstance(length, bool) or not 0 <= length <= LIMIT:
            raise ValueError(f"{str(length)[:40]} is no axis length")
    return tuple(lengths)


def _can_differ(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu" and dtype.itemsize > 1


def _differences(flat: npt.NDArray[Any]) -> npt.NDArray[Any]:
    unsigned = flat.view(f"<u{flat.dtype.itemsize}")
    found = np.empty_like(unsigned)
    found[0] = unsigned[0]
    np.subtract(unsigned[1:], unsigned[:-1], out=found[1:])
    return found


def _squeeze(flat: npt.NDArray[Any]) -> bytes:
    shuffled = flat.view(np.uint8).reshape(-1, flat.dtype.itemsize).T
    return zlib.compress(shuffled.tobytes(), 1)  # higher levels: five times slower, 3 % smaller


def _expand(text: Any, size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    opener = zlib.decompressobj()
    # Ask for one byte more than expected, so that a too long stream is detected without decompressing it all.
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
