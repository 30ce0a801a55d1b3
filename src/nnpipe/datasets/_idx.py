"""IDX files, the format of MNIST: a magic number of four bytes, the lengths of the axes, and the numbers.

http://yann.lecun.com/exdb/mnist/ describes the format at its end.
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
    """Read an IDX file, compressed with gzip if its name ends in ``.gz``.

    Parameters
    ----------
    path
        The file.
    axes
        Number of axes that it must have.

    Returns
    -------
    ndarray
        The numbers in native byte order.

    Raises
    ------
    DatasetError
        If the file is missing, damaged, of another format, incomplete or too
        long; the message names it.
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
    if stream.read(1):  # reading to the end makes gzip verify its checksum
        raise Malformed(f"it goes on after the {length} bytes that its header claims")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _take(stream: IO[bytes], count: int) -> bytes:
    # In blocks, so that a wrong length in the header allocates no memory for missing data.
    pieces = []
    left = count
    while left and (piece := stream.read(min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    if left:
        raise Malformed(f"it ends {left} bytes too early")
    return b"".join(pieces)
