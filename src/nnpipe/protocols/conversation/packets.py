"""Packets for serial lines that may lose or corrupt bytes: byte stuffing with a zero as delimiter,
and a CRC.

A packet is a type (1 byte), the session (1 byte), a sequence number (2 bytes)
and up to some hundred bytes of content, followed by their CRC-32, all
little-endian.  Consistent overhead byte stuffing (Cheshire and Baker, IEEE/ACM
Transactions on Networking 7(2), 1999) removes the zeros, and a zero is sent before
and after the packet.  A receiver that is out of step drops bytes up to the next
zero.  A packet that noise has changed fails its CRC and is dropped.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from nnpipe.protocols.conversation.frame import HeaderField, build_struct


class PacketType(IntEnum):
    """The type of a packet."""

    OPEN = 1
    OPENED = 2
    BYTES = 3
    CLOSE = 4


TYPES: dict[PacketType, str] = {
    PacketType.OPEN: "the host opens a line: a new session, whose number it picks; repeated until OPENED comes",
    PacketType.OPENED: "the target's answer; whatever was before is forgotten",
    PacketType.BYTES: "bytes of frames; numbers count up from 0 on each side",
    PacketType.CLOSE: "the line is closed",
}
PACKET_FIELDS = (
    HeaderField("type", "B", "what the packet is for"),
    HeaderField("session", "B", "a number that the host picks when it opens the line"),
    HeaderField("sequence", "H", "of BYTES, modulo 65,536; else 0"),
)
_HEAD = build_struct(PACKET_FIELDS)
_CRC = struct.Struct("<I")
OVERHEAD = _HEAD.size + _CRC.size


class Packet(NamedTuple):
    """A packet whose CRC has been verified."""

    type: int
    session: int
    sequence: int
    content: bytes


def encode(type: int, session: int, sequence: int, content: bytes = b"") -> bytes:
    """Return the bytes of a packet on the line, with a zero before and after."""
    body = _HEAD.pack(type, session, sequence) + content
    return b"\0" + stuff(body + _CRC.pack(zlib.crc32(body))) + b"\0"


def decode(stuffed: bytes) -> Packet | None:
    """Return the packet from the bytes between two zeros, or None if they are not a valid
    packet.
    """
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
    """Remove the zeros by byte stuffing; the result is longer by one byte, plus at most one for
    every 254 bytes.
    """
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
    """Reverse :func:`stuff`; return None if ``data`` is not a result of it."""
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
    """Finds packets in the bytes from a line.

    Parameters
    ----------
    longest
        The largest size of a packet on the line, in bytes; more bytes without a zero are noise.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._open = bytearray()

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Process received bytes, and yield the packets that they complete."""
        *whole, rest = data.split(b"\0")
        for piece in whole:
            stuffed = bytes(self._open) + piece if self._open else piece
            self._open.clear()
            packet = decode(stuffed) if 0 < len(stuffed) <= self._longest else None
            if packet is not None:
                yield packet
        if len(self._open) <= self._longest:
            self._open += rest
