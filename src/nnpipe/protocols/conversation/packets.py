"""Packets on a line that may lose and invent bytes: byte stuffing, so that a zero ends each, and a CRC.

A packet is a type (1 byte), the session (1 byte), a sequence number (2 bytes)
and up to some hundred bytes of content, followed by their CRC-32, all
little-endian; consistent overhead byte stuffing (Cheshire and Baker, IEEE/ACM
Transactions on Networking 7(2), 1999) takes the zeros out, and a zero goes
before and after.  A receiver that has lost its place drops bytes up to the next
zero and is back in step; what noise makes of a packet fails its CRC and is
dropped.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from nnpipe.protocols.conversation.frame import HeaderField, layout


class Type(IntEnum):
    """What a packet is for."""

    OPEN = 1
    OPENED = 2
    BYTES = 3
    CLOSE = 4


TYPES: dict[Type, str] = {
    Type.OPEN: "the host opens a line: a new session, whose number it picks; repeated until OPENED comes",
    Type.OPENED: "the target's answer; whatever was before is forgotten",
    Type.BYTES: "bytes of frames; numbers count up from 0 on each side",
    Type.CLOSE: "the line is closed",
}
PACKET_FIELDS = (
    HeaderField("type", "B", "what the packet is for"),
    HeaderField("session", "B", "a number that the host picks when it opens the line"),
    HeaderField("sequence", "H", "of BYTES, modulo 65,536; else 0"),
)
_HEAD = layout(PACKET_FIELDS)
_CRC = struct.Struct("<I")
OVERHEAD = _HEAD.size + _CRC.size


class Packet(NamedTuple):
    """A packet whose CRC is right."""

    type: int
    session: int
    sequence: int
    content: bytes


def encode(type: int, session: int, sequence: int, content: bytes = b"") -> bytes:
    """Return the bytes for the line, with a zero before and after."""
    body = _HEAD.pack(type, session, sequence) + content
    return b"\0" + stuff(body + _CRC.pack(zlib.crc32(body))) + b"\0"


def decode(stuffed: bytes) -> Packet | None:
    """Read what stood between two zeros; None if it is not a packet."""
    body = unstuff(stuffed)
    if body is None or len(body) < OVERHEAD:
        return None
    (crc,) = _CRC.unpack(body[-_CRC.size :])
    body = body[: -_CRC.size]
    if zlib.crc32(body) != crc:
        return None
    type, session, sequence = _HEAD.unpack_from(body)
    return Packet(type, session, sequence, body[_HEAD.size :])


def stuff(data: bytes) -> bytes:
    """Take the zeros out; the result is longer by one byte in 254, at most, and one."""
    found = bytearray()
    for run in data.split(b"\0"):
        while len(run) >= 254:
            found.append(255)
            found += run[:254]
            run = run[254:]
        found.append(len(run) + 1)
        found += run
    return bytes(found)


def unstuff(data: bytes) -> bytes | None:
    """Undo :func:`stuff`; None if that could not have made ``data``."""
    found = bytearray()
    at = 0
    while at < len(data):
        code = data[at]
        end = at + code
        if code == 0 or end > len(data):
            return None
        found += data[at + 1 : end]
        at = end
        if code < 255 and at < len(data):
            found.append(0)
    return bytes(found) if data else None


class PacketReader:
    """Finds packets in what a line gives.

    Parameters
    ----------
    longest
        Most bytes that a packet has on the line; more without a zero is noise.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._open = bytearray()

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Take bytes and give the packets that they complete."""
        *whole, rest = data.split(b"\0")
        for piece in whole:
            stuffed = bytes(self._open) + piece if self._open else piece
            self._open.clear()
            packet = decode(stuffed) if 0 < len(stuffed) <= self._longest else None
            if packet is not None:
                yield packet
        if len(self._open) <= self._longest:
            self._open += rest
