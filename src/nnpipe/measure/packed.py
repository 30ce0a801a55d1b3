"""Arrays inside JSON: compact, lossless, and bounded when read.

Numbers that change slowly (times, counters) are stored as differences; bytes
of equal weight are put together, compressed (zlib) and written as base64::

    {"dtype": "int64", "shape": [3], "delta": true, "data": "eNpj..."}
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError

_DTYPES = frozenset(np.dtype(name) for name in "bool i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8".split())
_LIMIT = 1 << 31  # bytes; far above any result file, far below what would exhaust a workstation


def pack(array: npt.NDArray[Any]) -> dict[str, Any]:
    """Give an array as a JSON object.

    Raises
    ------
    TypeError
        For element types other than booleans, integers and floats.
    """
    array = np.asarray(array)
    if array.dtype.newbyteorder("=") not in _DTYPES:
        raise TypeError(f"{array.dtype} arrays are not stored in result files")
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    flat = plain.reshape(-1)
    delta = flat.dtype.kind in "iu" and flat.dtype.itemsize > 1 and flat.size > 1
    if delta:
        # Unsigned arithmetic wraps, so that differences undo exactly whatever the values are.
        unsigned = flat.view(flat.dtype.str.replace("i", "u"))
        differences = np.empty_like(unsigned)
        differences[0] = unsigned[0]
        np.subtract(unsigned[1:], unsigned[:-1], out=differences[1:])
        candidates = {True: _squeeze(differences), False: _squeeze(flat)}
        delta = len(candidates[True]) < len(candidates[False])
        data = candidates[delta]
    else:
        data = _squeeze(flat)
    text = base64.b64encode(data).decode("ascii")
    return {"dtype": array.dtype.newbyteorder("=").name, "shape": list(array.shape), "delta": delta, "data": text}


def unpack(data: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Give the array that :func:`pack` stored.

    Raises
    ------
    ArtifactError
        If the object is damaged, or claims more than its data hold.
    """
    try:
        dtype = np.dtype(str(data["dtype"]))
        shape = tuple(int(length) for length in data["shape"])
        if dtype not in _DTYPES or any(length < 0 for length in shape):
            raise ValueError("element type or shape is impossible")
        size = math.prod(shape) * dtype.itemsize
        if size > _LIMIT:
            raise ValueError(f"{size} bytes are too many")
        squeezed = base64.b64decode(data["data"], validate=True)
        opener = zlib.decompressobj()
        raw = opener.decompress(squeezed, size + 1)
        if len(raw) != size or not opener.eof:
            raise ValueError("the data do not have the stated length")
        flat = np.frombuffer(raw, np.uint8).reshape(dtype.itemsize, -1).T
        flat = np.ascontiguousarray(flat).reshape(-1).view(dtype.newbyteorder("<"))
        if data["delta"]:
            unsigned = flat.view(flat.dtype.str.replace("i", "u"))
            flat = np.cumsum(unsigned, dtype=unsigned.dtype).view(flat.dtype)
        return flat.astype(dtype, copy=False).reshape(shape)
    except (KeyError, TypeError, ValueError, binascii.Error, zlib.error) as error:
        raise ArtifactError(f"a stored array is damaged: {error}") from None


def _squeeze(flat: npt.NDArray[Any]) -> bytes:
    width = flat.dtype.itemsize
    shuffled = np.ascontiguousarray(flat).view(np.uint8).reshape(-1, width).T
    return zlib.compress(np.ascontiguousarray(shuffled).tobytes(), 6)
