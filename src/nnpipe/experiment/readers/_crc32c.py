"""CRC-32C (Castagnoli, RFC 3720), the checksum of TFRecord files, computed with numpy.

Feeding zeros into the register is a linear map.  So long data are cut into lanes
of equal length, whose registers are computed in parallel and then joined in pairs:
the register of ``A + B`` is that of ``A`` after ``len(B)`` zeros, XOR that of ``B``.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78  # reflected
_SHORT = 4096  # bytes; below this, one lane is faster
_MANY = 1 << 16  # bytes; from here on, more lanes are faster


def masked_crc32c(data: bytes) -> int:
    """Return the checksum as TFRecord files store it: rotated, with a constant added."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of some bytes."""
    if len(data) < _SHORT:
        table, register = _table().tolist(), 0xFFFFFFFF
        for byte in data:
            register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
        return register ^ 0xFFFFFFFF
    lanes = 2048 if len(data) >= _MANY else 256
    length = 1 << (-(-len(data) // lanes) - 1).bit_length()  # a power of two, so that few maps are needed
    padded = np.zeros(lanes * length, np.uint8)  # zeros in front change nothing
    begin = len(padded) - len(data)
    padded[begin:] = np.frombuffer(data, np.uint8)
    padded[begin : begin + 4] ^= 0xFF  # as if the register began with ones
    registers, table = np.zeros(lanes, np.uint32), _table()
    for column in np.ascontiguousarray(padded.reshape(lanes, length).T):
        registers = table[(registers ^ column) & 0xFF] ^ (registers >> 8)
    while len(registers) > 1:
        registers = _after_zeros(length, registers[0::2]) ^ registers[1::2]
        length *= 2
    return int(registers[0]) ^ 0xFFFFFFFF


def _after_zeros(count: int, registers: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the registers after ``count`` zero bytes, a power of two."""
    maps = _maps(count)
    found: npt.NDArray[np.uint32] = maps[0][registers & 0xFF]
    for byte in (1, 2, 3):
        found = found ^ maps[byte][(registers >> np.uint32(8 * byte)) & 0xFF]
    return found


@functools.cache
def _maps(count: int) -> npt.NDArray[np.uint32]:
    """Return the register of each value of each byte after ``count`` zero bytes, ``(4, 256)``."""
    values = np.arange(256, dtype=np.uint32) << (8 * np.arange(4, dtype=np.uint32))[:, None]
    if count == 1:
        once: npt.NDArray[np.uint32] = _table()[values & 0xFF] ^ (values >> 8)
        return once
    return _after_zeros(count // 2, _after_zeros(count // 2, values))


@functools.cache
def _table() -> npt.NDArray[np.uint32]:
    values: npt.NDArray[np.uint32] = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ np.uint32(_POLYNOMIAL), values >> 1)
    return values
