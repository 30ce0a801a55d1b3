"""IDX files, the format of MNIST: a four-byte magic number, axis lengths, then the numbers.

The layout is given at the end of http://yann.lecun.com/exdb/mnist/.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from nnpipe.datasets._gzip_files import Malformed, unpacked

_MAX_BYTES = 1 << 31
_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path, axes: int) -> npt.NDArray[Any]:
    """Read an IDX file, packed by gzip if its name ends in ``.gz``.

    Parameters
    ----------
    path
        The file.
    axes
        How many axes it must have.

    Returns
    -------
    ndarray
        The numbers in native byte order.

    Raises
    ------
    DatasetError
        The file is missing, damaged, of another kind, cut off or too long; the
        message names it.
    """
    with unpacked(path) as stream:
        return _parse(stream, axes)


def _parse(stream: IO[bytes], axes: int) -> npt.NDArray[Any]:
    magic = _take(stream, 4)
    if magic[:2] != b"\0\0" or magic[2] not in _TYPES:
        raise Malformed(f"it begins with {magic.hex(' ')}, which is no IDX file")
    if magic[3] != axes:
        raise Malformed(f"it has {magic[3]} axes instead of {axes}")
    shape = tuple(int(length) for length in np.frombuffer(_take(stream, 4 * axes), ">u4"))
    dtype = np.dtype(_TYPES[magic[2]])
    length = math.prod(shape) * dtype.itemsize
    if length > _MAX_BYTES:
        raise Malformed(f"its header claims {length} bytes")
    data = _take(stream, length)
    if stream.read(1):  # reading to the end also lets gzip compare its checksum
        raise Malformed(f"it goes on after the {length} bytes that its header claims")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _take(stream: IO[bytes], count: int) -> bytes:
    # Piece by piece: a header that lies about the length gets no memory for what is not there.
    pieces = []
    left = count
    while left and (piece := stream.read(min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    if left:
        raise Malformed(f"it ends {left} bytes too early")
    return b"".join(pieces)
