"""The frame: 24 bytes of header, then the payload.

All numbers are little-endian, and every field is aligned to its size.  The needed
memory is always known beforehand: a target in C reads the header into a struct,
checks ``kind`` and ``length``, and reads the payload to its destination.

The header has its own checksum.  The length is used only after that checksum has
been verified, so noise that begins with the magic byte cannot pass for a length.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import xxhash

from nnpipe.core.errors import RemoteProtocolError

# Checksums of payloads: 64 bits over any number of bytes, fast enough for every payload.
#
# There are two algorithms, one of which both sides choose in the handshake:
#
# ``crc32``
#     CRC-32 (IEEE 802.3, polynomial 0x04C11DB7, as in zlib), upper half zero.
#     Every side must support it; it takes a few lines of C, without a table.
# ``xxh3``
#     XXH3-64 with seed 0 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md),
#     at memory speed.  A small target may lack it.
#
# A payload of no bytes has the check 0 in both.

Buffer: TypeAlias = "bytes | memoryview"


@dataclass(frozen=True)
class Check:
    """An algorithm: its bit in the handshake, its name, and the function from parts of a payload
    to 64 bits.
    """

    bit: int
    name: str
    of: Callable[[Sequence[Buffer]], int]


def _compute_crc32(parts: Sequence[Buffer]) -> int:
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value


def _compute_xxh3(parts: Sequence[Buffer]) -> int:
    if len(parts) == 1 and len(parts[0]):
        value: int = xxhash.xxh3_64_intdigest(parts[0])
        return value
    running = xxhash.xxh3_64()
    empty = True
    for part in parts:
        running.update(part)
        empty = empty and not len(part)
    return 0 if empty else int(running.intdigest())


CRC32 = Check(1, "crc32", _compute_crc32)
XXH3 = Check(2, "xxh3", _compute_xxh3)
CHECKS = (CRC32, XXH3)
"""All algorithms, with the preferred one last."""


def get_check_bits(names: Sequence[str] | None = None) -> int:
    """Return the bits of all algorithms, or of those named; ``crc32`` is always included."""
    return CRC32.bit | sum(
        check.bit
        for check in CHECKS
        if check is not CRC32 and (names is None or check.name in names)
    )


def select_check(bits: int) -> Check:
    """Return the preferred algorithm among those whose bits are set."""
    return next((check for check in reversed(CHECKS) if bits & check.bit), CRC32)


def find_check(bit: int) -> Check | None:
    """Return the algorithm with this bit, or None."""
    return next((check for check in CHECKS if check.bit == bit), None)


MAGIC = 0x6E
VERSION = 1


class FrameKind(IntEnum):
    """The kind of a frame."""

    OK = 1
    ERROR = 2
    DATA = 3
    MODEL = 4
    PROCESS = 5
    OUTPUT = 6
    STATS = 7
    HELLO = 8
    AUTH = 9
    LOG = 10
    INFER = 11


class FrameFlag(IntEnum):
    """Bits of the header's ``flags``; their meaning depends on the kind."""

    BEGIN = 0  # MODEL: describes the model, the upload begins
    PART = 1  # MODEL: a part of the file
    END = 2  # MODEL: the file is complete, load it
    STARTED = 1  # OK to PROCESS: the first of the two
    CLOCK = 1  # STATS: only the clock is asked for
    FATAL = 0x80  # ERROR: the sender closes the line


class ErrorCode(IntEnum):
    """The reason for an ERROR."""

    PROTOCOL = 1
    BUSY = 2
    AUTHENTICATION = 3
    VERSION = 4
    SKIPPED = 5
    TIMEOUT = 6
    STOPPING = 7
    MODEL = 8
    NATIVE_CODE = 9
    DAMAGED = 10
    NO_SPACE = 11
    TENSORS = 12
    RUNTIME = 13
    DIED = 14
    MEMORY = 15


CODES: dict[ErrorCode, str] = {
    ErrorCode.PROTOCOL: "the rules of the protocol were broken",
    ErrorCode.BUSY: "another client is being served",
    ErrorCode.AUTHENTICATION: "the proof of the shared token is wrong or missing",
    ErrorCode.VERSION: "no version of the protocol is known to both sides",
    ErrorCode.SKIPPED: "an earlier pipelined request failed, so this one was passed over",
    ErrorCode.TIMEOUT: "the time allowed has passed",
    ErrorCode.STOPPING: "the server is being stopped",
    ErrorCode.MODEL: "the model cannot be taken or loaded",
    ErrorCode.NATIVE_CODE: "the model's format runs machine code, which the server was not started to allow",
    ErrorCode.DAMAGED: "the model's content is not what its SHA-256 says",
    ErrorCode.NO_SPACE: "the target has no room for the model",
    ErrorCode.TENSORS: "the payload does not hold the tensors that the model takes",
    ErrorCode.RUNTIME: "the runtime failed",
    ErrorCode.DIED: "the process that runs the model died",
    ErrorCode.MEMORY: "the target has not enough memory",
}


@dataclass(frozen=True)
class HeaderField:
    """A field of a fixed layout, used for the struct and for the documentation."""

    name: str
    format: str
    meaning: str

    @property
    def size(self) -> int:
        """The size in bytes."""
        return struct.calcsize("<" + self.format)


def build_struct(fields: Sequence[HeaderField]) -> struct.Struct:
    """Return the struct of a list of fields."""
    return struct.Struct("<" + "".join(field.format for field in fields))


HEADER_FIELDS = (
    HeaderField("magic", "B", f"{MAGIC:#04x}"),
    HeaderField("version", "B", f"{VERSION}"),
    HeaderField("kind", "B", "what the frame says"),
    HeaderField("flags", "B", "bits whose meaning depends on the kind, else 0"),
    HeaderField("number", "I", "of the request; an answer repeats its request's"),
    HeaderField("length", "I", "bytes of payload"),
    HeaderField("check_low", "I", "lower half of the payload's check"),
    HeaderField("check_high", "I", "upper half of the payload's check"),
    HeaderField("header_check", "I", "CRC-32 of the 20 bytes before"),
)
HEADER = build_struct(HEADER_FIELDS)
HEADER_SIZE = HEADER.size
CHECKED_SIZE = HEADER_SIZE - 4
# The same bytes with both halves of the payload's check as one number, which is faster.
_CHECKED = struct.Struct("<BBBBIIQ")
_WHOLE = struct.Struct(_CHECKED.format + "I")
_PACK, _CRC32 = _CHECKED.pack, zlib.crc32
read_header = _WHOLE.unpack_from
"""Magic, version, kind, flags, number, length, check of the payload, check of the header."""


def pack_header(kind: int, flags: int, number: int, length: int, check: int) -> bytes:
    """Return the bytes of a frame's header."""
    packed = _PACK(MAGIC, VERSION, kind, flags, number, length, check)
    return packed + _CRC32(packed).to_bytes(4, "little")


def size_of(parts: Sequence[Buffer]) -> int:
    """Return the total size of the parts of a payload in bytes."""
    return len(parts[0]) if len(parts) == 1 else sum(map(len, parts))


STAGING = 1 << 13

Admit = Callable[[int, int, int, int], "memoryview | None"]
"""Checks a header (kind, flags, number, length): raises an error, or returns the memory for the
payload.
"""


Frame = tuple[int, int, int, "bytes | memoryview"]
"""Kind, flags, number, and payload: the memory that was returned for it, or bytes."""


class FrameReader:
    """Receives bytes in pieces of any length and returns frames.

    The owner reads into the memory of :meth:`get_buffer`, reports the number of bytes
    with :meth:`report_received`, and calls :meth:`next_frame` until it returns None.
    Headers and small payloads are read into a staging buffer of fixed size.  After
    a header has been accepted, a payload with its own memory is read directly
    into it.

    Parameters
    ----------
    staging
        The size of the staging buffer in bytes.

    Attributes
    ----------
    begin, end
        The range of unread bytes in the staging buffer.  If they are equal, no part of a next frame
        has been received, or its payload is read into its own memory.

    Raises
    ------
    RemoteProtocolError
        Raised by :meth:`next_frame`; afterwards the reader must not be used.
    """

    def __init__(self, staging: int = STAGING) -> None:
        self.set_check(CRC32)
        self._staging = memoryview(bytearray(staging))
        self.begin = self.end = 0  # of the bytes in staging; read by owners, with every frame
        # of a frame whose payload is incomplete
        self._header: tuple[int, int, int, int, int] | None = None
        self._payload: memoryview | None = None  # where the present payload goes, if not to staging
        self._filled = 0

    def set_check(self, check: Check) -> None:
        """Use this checksum for payloads from now on."""
        self._check_of = check.of

    @property
    def between_frames(self) -> bool:
        """Whether no part of a next frame has been received."""
        return self._header is None and self.begin == self.end

    def get_buffer(self) -> memoryview:
        """Return the memory for the next bytes; it is never empty while a frame is incomplete."""
        if self._payload is not None:
            return self._payload[self._filled :]
        if self.begin:
            left = self.end - self.begin
            if left:
                self._staging[:left] = self._staging[self.begin : self.end]
            self.begin, self.end = 0, left
        return self._staging[self.end :]

    def report_received(self, count: int) -> None:
        """Report that ``count`` bytes have been written to the memory of :meth:`get_buffer`."""
        if self._payload is not None:
            self._filled += count
        else:
            self.end += count

    def next_frame(self, admit: Admit) -> Frame | None:
        """Return the next complete frame after verifying its checksums, or None.

        Parameters
        ----------
        admit
            Called with each header before its payload is read.  The reader does
            not store it: the reference cycle would delay freeing the many
            conversations of a server.
        """
        payload: bytes | memoryview
        place = self._payload
        if self._header is None:
            begin = self.begin
            if self.end - begin < HEADER_SIZE:
                return None
            staging = self._staging
            magic, version, kind, flags, number, length, check, own = read_header(staging, begin)
            if _CRC32(staging[begin : begin + CHECKED_SIZE]) != own or magic != MAGIC:
                raise RemoteProtocolError(
                    "something came that is not a frame of nnpipe, or a frame's header was damaged"
                )
            if version != VERSION:
                raise RemoteProtocolError(
                    f"a frame of version {version} came, this side reads version {VERSION}"
                )
            place = admit(kind, flags, number, length)
            begin += HEADER_SIZE
            if not length:
                self.begin = begin
                if check:
                    raise RemoteProtocolError("a frame without payload came with a check of one")
                return kind, flags, number, b""
            end = begin + length
            if end <= self.end:  # it has been received completely
                self.begin = end
                payload = _copy_payload(staging[begin:end], place)
                if self._check_of((payload,)) != check:
                    raise _create_damage_error(length)
                return kind, flags, number, payload
            self.begin = begin
            self._header = (kind, flags, number, length, check)
            if place is not None or length > len(staging):
                place = self._begin_payload(place, length)
        else:
            kind, flags, number, length, check = self._header
        if place is not None:
            if self._filled < length:
                return None
            payload, self._payload = place, None
        else:
            begin = self.begin
            if self.end - begin < length:
                return None
            payload = bytes(self._staging[begin : begin + length])
            self.begin = begin + length
        self._header = None
        if self._check_of((payload,)) != check:
            raise _create_damage_error(length)
        return kind, flags, number, payload

    def _begin_payload(self, place: memoryview | None, length: int) -> memoryview:
        """Copy the received part of a payload to its memory."""
        if place is None:
            place = np.empty(
                length, np.uint8
            ).data  # within the limit of the kind; pages are used only when bytes arrive
        elif len(place) != length:
            raise ValueError(f"{length} bytes of payload were given a place of {len(place)}")
        self._payload = place
        begin = self.begin
        here = self._filled = self.end - begin
        place[:here] = self._staging[begin : begin + here]
        self.begin = begin + here
        return place


def _copy_payload(payload: memoryview, place: memoryview | None) -> bytes | memoryview:
    if place is None:
        return bytes(payload)
    place[:] = payload
    return place


def _create_damage_error(length: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"the payload of a frame of {length:,} bytes was damaged on its way")
