"""Integrity checks of payloads: 64 bits over any number of bytes, fast enough to be left on.

Three algorithms, one of which both sides choose at the handshake:

``crc32``
    CRC-32 (IEEE 802.3, polynomial 0x04C11DB7, as in zlib), upper half zero.
    Everybody has it; a few lines of C and no table are enough.
``fold``
    The payload is read as 64-bit little-endian words, zero-padded, in blocks
    of 512 * 511 of them.  Word number *i* of a block is XORed into
    ``a[i mod 512]`` and into ``b[i mod 511]``.  The lower half of the check is
    the CRC-32 of all blocks' ``a``, the upper half that of all blocks' ``b``.
    Up to 8,192 bytes it is the plain CRC-32.  With numpy this runs at memory
    speed, several times faster than ``crc32``.

    Every error of one or two bits is found, and of three bits in payloads
    below 4 MB: folding and CRC are linear, so only the XOR of right and wrong
    bytes matters.  512 and 511 have no common divisor, hence two words of a
    block that meet in ``a`` do not meet in ``b``, and at least one of the two
    short strings keeps one to three wrong bits; CRC-32 finds these.  Random
    damage passes once in 2**64.
``xxh3``
    XXH3-64 with seed 0, where the package ``xxhash`` is installed on both
    sides; the fastest.

A payload of no bytes has the check 0 in all three.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

try:  # light, and looked up with every payload
    import xxhash
except ImportError:
    xxhash = None  # type: ignore[assignment,unused-ignore]

Buffer: TypeAlias = "bytes | memoryview"
Words: TypeAlias = "npt.NDArray[np.uint64]"

COLUMNS_A, COLUMNS_B = 512, 511
BLOCK = COLUMNS_A * COLUMNS_B * 8
SMALL = 8192
_WORD = np.dtype("<u8")


@dataclass(frozen=True)
class Check:
    """An algorithm: its bit in the handshake, its name, and the function from parts of a payload to 64 bits."""

    bit: int
    name: str
    of: Callable[[Sequence[Buffer]], int]


def _crc32(parts: Sequence[Buffer]) -> int:
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value


def _fold(parts: Sequence[Buffer]) -> int:
    if len(parts) == 1:  # the usual case, without bookkeeping
        part = parts[0]
        length = len(part)
        if length <= SMALL:
            return zlib.crc32(part)
        if length <= BLOCK and not length % 8:
            words = np.frombuffer(part, _WORD)
            return zlib.crc32(_folded(words, COLUMNS_A).data) | zlib.crc32(_folded(words, COLUMNS_B).data) << 32
    elif sum(map(len, parts)) <= SMALL:
        return _crc32(parts)
    running = _Folding()
    for part in parts:
        running.add(memoryview(part))
    return running.value()


def _folded(words: Words, columns: int) -> Words:
    """XOR all rows of a table with so many columns; the last row may be short."""
    rows = len(words) // columns
    whole = rows * columns
    row: Words = np.bitwise_xor.reduce(words[:whole].reshape(rows, columns), axis=0)
    if whole < len(words):
        short = row[: len(words) - whole]
        np.bitwise_xor(short, words[whole:], out=short)
    return row


class _Folding:
    """The fold of a payload that comes in parts of any length."""

    def __init__(self) -> None:
        self._a = np.zeros(COLUMNS_A, _WORD)
        self._b = np.zeros(COLUMNS_B, _WORD)
        self._at = 0  # words of the present block
        self._low = self._high = 0
        self._odd = b""  # bytes that do not fill a word yet

    def add(self, part: memoryview) -> None:
        if self._odd:
            missing = 8 - len(self._odd)
            self._odd, part = self._odd + bytes(part[:missing]), part[missing:]
            if len(self._odd) < 8:
                return
            self._add_words(np.frombuffer(self._odd, _WORD))
            self._odd = b""
        whole = len(part) // 8 * 8
        if whole:
            self._add_words(np.frombuffer(part[:whole], _WORD))
        self._odd = bytes(part[whole:])

    def _add_words(self, words: Words) -> None:
        while len(words):
            piece = words[: BLOCK // 8 - self._at]
            _fold_into(self._a, piece, self._at)
            _fold_into(self._b, piece, self._at)
            self._at += len(piece)
            if self._at == BLOCK // 8:
                self._end_block()
            words = words[len(piece) :]

    def _end_block(self) -> None:
        self._low, self._high = zlib.crc32(self._a.data, self._low), zlib.crc32(self._b.data, self._high)
        self._a[:] = 0
        self._b[:] = 0
        self._at = 0

    def value(self) -> int:
        if self._odd:
            self.add(memoryview(bytes(8 - len(self._odd))))
        if self._at:
            self._end_block()
        return self._low | self._high << 32


def _fold_into(row: Words, words: Words, at: int) -> None:
    start = at % len(row)
    head, rest = words[: len(row) - start], words[len(row) - start :]
    row[start : start + len(head)] ^= head
    if len(rest) >= len(row):
        row ^= _folded(rest, len(row))
    elif len(rest):
        row[: len(rest)] ^= rest


def _xxh3(parts: Sequence[Buffer]) -> int:
    if len(parts) == 1 and len(parts[0]):
        value: int = xxhash.xxh3_64_intdigest(parts[0])
        return value
    running = xxhash.xxh3_64()
    empty = True
    for part in parts:
        running.update(part)
        empty = empty and not len(part)
    return 0 if empty else int(running.intdigest())


CRC32 = Check(1, "crc32", _crc32)
FOLD = Check(2, "fold", _fold)
XXH3 = Check(4, "xxh3", _xxh3)
CHECKS = (CRC32, FOLD, XXH3)
"""All algorithms, the preferred one last."""


def available(names: Sequence[str] | None = None) -> int:
    """Give the bits of the algorithms that this machine has, or of those named; ``crc32`` always counts."""
    bits = CRC32.bit
    for check in CHECKS:
        wanted = names is None or check.name in names
        if wanted and (check is not XXH3 or xxhash is not None):
            bits |= check.bit
    return bits


def best(bits: int) -> Check:
    """Give the preferred algorithm among those whose bits are set."""
    return next((check for check in reversed(CHECKS) if bits & check.bit), CRC32)


def by_bit(bit: int) -> Check | None:
    """Give the algorithm of that bit."""
    return next((check for check in CHECKS if check.bit == bit), None)
