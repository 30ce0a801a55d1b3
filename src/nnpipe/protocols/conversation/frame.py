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
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from nnpipe.protocols.conversation.checksums import Buffer

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


def layout(fields: Sequence[HeaderField]) -> struct.Struct:
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
HEADER = layout(HEADER_FIELDS)
HEADER_SIZE = HEADER.size
CHECKED_SIZE = HEADER_SIZE - 4
# The same bytes with both halves of the payload's check as one number, which is faster.
_CHECKED = struct.Struct("<BBBBIIQ")
_WHOLE = struct.Struct(_CHECKED.format + "I")
_PACK, _CRC32 = _CHECKED.pack, zlib.crc32
read_header = _WHOLE.unpack_from
"""Magic, version, kind, flags, number, length, check of the payload, check of the header."""


def header(kind: int, flags: int, number: int, length: int, check: int) -> bytes:
    """Return the bytes of a frame's header."""
    packed = _PACK(MAGIC, VERSION, kind, flags, number, length, check)
    return packed + _CRC32(packed).to_bytes(4, "little")


def size_of(parts: Sequence[Buffer]) -> int:
    """Return the total size of the parts of a payload in bytes."""
    return len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
