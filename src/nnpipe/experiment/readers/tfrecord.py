"""TFRecord files of examples, read without TensorFlow.

A record is the length (uint64), its masked CRC-32C (uint32), the data and
their masked CRC-32C, all little-endian
(https://www.tensorflow.org/tutorials/load_data/tfrecord).  The data are a
``tf.train.Example``, a message of Protocol Buffers: features by name, each a
list of bytes, floats or int64.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import DatasetError
from nnpipe.experiment.readers.reader import Column, DataReader, transpose_rows

# CRC-32C (Castagnoli, RFC 3720), the checksum of TFRecord files, computed with numpy.
#
# Feeding zeros into the register is a linear map.  So long data are cut into lanes of equal length,
# whose registers are computed in parallel and then joined in pairs: the register of ``A + B`` is
# that of ``A`` after ``len(B)`` zeros, XOR that of ``B``.

_POLYNOMIAL = 0x82F63B78  # reflected
_SHORT = 4096  # bytes; below this, one lane is faster
_MANY = 1 << 16  # bytes; from here on, more lanes are faster


def compute_masked_crc32c(data: bytes) -> int:
    """Return the checksum as TFRecord files store it: rotated, with a constant added."""
    crc = compute_crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def compute_crc32c(data: bytes) -> int:
    """Return the CRC-32C of some bytes."""
    if len(data) < _SHORT:
        table, register = _build_table().tolist(), 0xFFFFFFFF
        for byte in data:
            register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
        return register ^ 0xFFFFFFFF
    lanes = 2048 if len(data) >= _MANY else 256
    # a power of two, so that few maps are needed
    length = 1 << (-(-len(data) // lanes) - 1).bit_length()
    padded = np.zeros(lanes * length, np.uint8)  # zeros in front change nothing
    begin = len(padded) - len(data)
    padded[begin:] = np.frombuffer(data, np.uint8)
    padded[begin : begin + 4] ^= 0xFF  # as if the register began with ones
    registers, table = np.zeros(lanes, np.uint32), _build_table()
    for column in np.ascontiguousarray(padded.reshape(lanes, length).T):
        registers = table[(registers ^ column) & 0xFF] ^ (registers >> 8)
    while len(registers) > 1:
        registers = _append_zeros(length, registers[0::2]) ^ registers[1::2]
        length *= 2
    return int(registers[0]) ^ 0xFFFFFFFF


def _append_zeros(count: int, registers: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the registers after ``count`` zero bytes, a power of two."""
    maps = _build_zero_maps(count)
    found: npt.NDArray[np.uint32] = maps[0][registers & 0xFF]
    for byte in (1, 2, 3):
        found = found ^ maps[byte][(registers >> np.uint32(8 * byte)) & 0xFF]
    return found


@functools.cache
def _build_zero_maps(count: int) -> npt.NDArray[np.uint32]:
    """Return the register of each value of each byte after ``count`` zero bytes, ``(4, 256)``."""
    values = np.arange(256, dtype=np.uint32) << (8 * np.arange(4, dtype=np.uint32))[:, None]
    if count == 1:
        once: npt.NDArray[np.uint32] = _build_table()[values & 0xFF] ^ (values >> 8)
        return once
    return _append_zeros(count // 2, _append_zeros(count // 2, values))


@functools.cache
def _build_table() -> npt.NDArray[np.uint32]:
    values: npt.NDArray[np.uint32] = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ np.uint32(_POLYNOMIAL), values >> 1)
    return values


_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


class TFRecordReader(DataReader):
    """Reads the features of all examples as columns.

    A feature with one number in each example becomes a column ``(n,)``, with several
    ``(n, count)``, and with different counts a list.  Bytes become a list of
    ``bytes``, or of lists of ``bytes`` if there are several.
    """

    def _read(self) -> dict[str, Column]:
        self._check_size(4 * self.path.stat().st_size, "the examples")
        rows = []
        for number, record in enumerate(iterate_records(self.path)):
            try:
                rows.append(parse_example(record))
            except (IndexError, ValueError, struct.error) as error:
                raise DatasetError(f"record {number}: no example: {error}") from None
        return transpose_rows(rows)


def iterate_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a file, with both checksums checked.

    Raises
    ------
    DatasetError
        If a record is damaged or truncated; the message names it.
    """
    number, left = 0, path.stat().st_size
    with open(path, "rb") as handle:
        while left:
            head = _read_exactly(handle, 12, left, number)
            (length,) = struct.unpack_from("<Q", head)
            if struct.unpack_from("<I", head, 8)[0] != compute_masked_crc32c(head[:8]):
                raise DatasetError(
                    f"record {number}: its length is damaged, or this is no TFRecord file"
                )
            left -= 12
            data = _read_exactly(handle, length + 4, left, number)
            left -= length + 4
            if struct.unpack_from("<I", data, length)[0] != compute_masked_crc32c(data[:length]):
                raise DatasetError(
                    f"record {number}: damaged: its checksum is not that of its data"
                )
            yield data[:length]
            number += 1


def parse_example(record: bytes) -> dict[str, Any]:
    """Return the features of a ``tf.train.Example``: arrays, ``bytes`` or lists of them."""
    found: dict[str, Any] = {}
    for features in _iterate_fields(record, 1):
        for entry in _iterate_fields(features, 1):
            name = b"".join(_iterate_fields(entry, 1)).decode("utf-8")
            value = next(iter(_iterate_fields(entry, 2)), b"")
            found[name] = _parse_feature(value)
    return found


def _parse_feature(message: bytes) -> Any:
    for texts in _iterate_fields(message, 1):
        values = list(_iterate_fields(texts, 1))
        return values[0] if len(values) == 1 else values
    for numbers in _iterate_fields(message, 2):
        return _unwrap_single(
            np.frombuffer(b"".join(_iterate_fields(numbers, 1, packed=_FOUR)), "<f4").astype(
                np.float32
            )
        )
    for numbers in _iterate_fields(message, 3):
        data, place, whole = b"".join(_iterate_fields(numbers, 1, packed=_VARINT)), 0, []
        while place < len(data):
            value, place = _read_varint(data, place)
            whole.append(value - (1 << 64) if value >> 63 else value)
        return _unwrap_single(np.array(whole, np.int64))
    return []


def _unwrap_single(values: np.ndarray[Any, Any]) -> Any:
    return values[0:1].reshape(()) if len(values) == 1 else values


def _iterate_fields(message: bytes, wanted: int, packed: int | None = None) -> Iterator[bytes]:
    """Yield the contents of the fields with a number; with ``packed``, also single values of
    that wire type.
    """
    place = 0
    while place < len(message):
        key, place = _read_varint(message, place)
        wire, begin = key & 7, place
        if wire == _VARINT:
            _, place = _read_varint(message, place)
        elif wire == _BYTES:
            length, begin = _read_varint(message, place)
            place = begin + length
        elif wire in (_EIGHT, _FOUR):
            place += 8 if wire == _EIGHT else 4
        else:
            raise ValueError(f"a field of wire type {wire}")
        if place > len(message):
            raise ValueError("a field is longer than what holds it")
        if key >> 3 == wanted:
            if wire not in (_BYTES, packed):
                raise ValueError(f"field {wanted} is of wire type {wire}")
            yield message[begin:place]


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place
    raise ValueError("a number of more than ten bytes")


def _read_exactly(handle: BinaryIO, count: int, left: int, number: int) -> bytes:
    if count > left:
        raise DatasetError(f"record {number}: cut short")
    return handle.read(count)
