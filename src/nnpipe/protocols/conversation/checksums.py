"""Checksums of payloads: 64 bits over any number of bytes, fast enough for every payload.

There are two algorithms, one of which both sides choose in the handshake:

``crc32``
    CRC-32 (IEEE 802.3, polynomial 0x04C11DB7, as in zlib), upper half zero.
    Every side must support it; it takes a few lines of C, without a table.
``xxh3``
    XXH3-64 with seed 0 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md),
    at memory speed.  A small target may lack it.

A payload of no bytes has the check 0 in both.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import xxhash

Buffer: TypeAlias = "bytes | memoryview"


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
XXH3 = Check(2, "xxh3", _xxh3)
CHECKS = (CRC32, XXH3)
"""All algorithms, with the preferred one last."""


def available(names: Sequence[str] | None = None) -> int:
    """Return the bits of all algorithms, or of those named; ``crc32`` is always included."""
    return CRC32.bit | sum(
        check.bit for check in CHECKS if check is not CRC32 and (names is None or check.name in names)
    )


def best(bits: int) -> Check:
    """Return the preferred algorithm among those whose bits are set."""
    return next((check for check in reversed(CHECKS) if bits & check.bit), CRC32)


def by_bit(bit: int) -> Check | None:
    """Return the algorithm with this bit, or None."""
    return next((check for check in CHECKS if check.bit == bit), None)
