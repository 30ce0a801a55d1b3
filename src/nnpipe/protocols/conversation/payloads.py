"""Payloads other than tensors: errors, a model's description, timestamps, statistics, log lines."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import RemoteProtocolError
from nnpipe.protocols.conversation.frame import CODES, ErrorCode, HeaderField, layout
from nnpipe.protocols.conversation.rules import FIXED_BOUNDS, STAMPS_SIZE, Bound

ERROR_FIELDS = (HeaderField("code", "H", "why"), HeaderField("reserved", "H", "0"))
MODEL_FIELDS = (
    HeaderField("size", "Q", "bytes in the file"),
    HeaderField("sha256", "32s", "of the file"),
)
STAMP_FIELDS = (
    HeaderField("received", "Q", "the target's counter when PROCESS had come"),
    HeaderField("started", "Q", "just before the inference"),
    HeaderField("stopped", "Q", "just after it"),
    HeaderField("answered", "Q", "just before the second OK was sent"),
)
STATS_FIELDS = (
    HeaderField("counter", "B", "what the counter counts: 0 wall (time), 1 cycles, 2 instructions"),
    HeaderField("reserved", "3B", "0"),
    HeaderField("row_size", "I", "bytes in each row that follows"),
    HeaderField("rate", "Q", "counts in a second; 0 if that means nothing"),
    HeaderField("received", "Q", "the counter when STATS had come"),
    HeaderField("answered", "Q", "the counter just before the answer was sent"),
    HeaderField("inferences", "Q", "inferences in this conversation"),
    HeaderField("load", "Q", "counts that loading the model took"),
)
ROW_FIELDS = (
    HeaderField("time", "Q", "the counter when the row was taken"),
    HeaderField(
        "process_bytes", "Q", "resident memory of the process that runs the model, or what the model uses of a board"
    ),
    HeaderField("memory_bytes", "Q", "memory used on the whole target"),
    HeaderField("gpu_bytes", "Q", "memory used on its GPU; all ones where there is none"),
    HeaderField("cpu_percent", "f", "of one core, by the process; not a number where unknown"),
    HeaderField("gpu_percent", "f", "not a number where there is none"),
)
LOG_FIELDS = (HeaderField("level", "B", "10 debug, 20 info, 30 warning, 40 error"), HeaderField("reserved", "3B", "0"))

_ERROR, _MODEL, _STAMPS = layout(ERROR_FIELDS), layout(MODEL_FIELDS), layout(STAMP_FIELDS)
_unpack_stamps = _STAMPS.unpack_from
_STATS, _ROW, _LOG = layout(STATS_FIELDS), layout(ROW_FIELDS), layout(LOG_FIELDS)
_COUNT = struct.Struct("<Q")
ROW_SIZE = _ROW.size
NO_GPU = (1 << 64) - 1


class Counter(IntEnum):
    """The kind of a target's counter."""

    WALL = 0
    CYCLES = 1
    INSTRUCTIONS = 2


@dataclass(frozen=True)
class ErrorPayload:
    """The content of an ERROR."""

    code: int
    text: str

    def pack(self) -> bytes:
        """Return the payload; its text is truncated to the limit."""
        room = FIXED_BOUNDS[Bound.TEXT] - _ERROR.size
        text = self.text.encode("utf-8", "replace")[:room].decode("utf-8", "ignore").encode("utf-8")
        return _ERROR.pack(self.code, 0) + text

    @classmethod
    def unpack(cls, payload: bytes | memoryview) -> ErrorPayload:
        """Read the payload; control characters in the text become spaces, since it will be shown to users."""
        if len(payload) < _ERROR.size:
            raise RemoteProtocolError("an ERROR without a code came")
        code, _ = _ERROR.unpack_from(payload)
        text = bytes(payload[_ERROR.size :]).decode("utf-8", "replace")
        return cls(code, printable(text))

    def __str__(self) -> str:
        known = CODES[ErrorCode(self.code)] if self.code in ErrorCode._value2member_map_ else f"code {self.code}"
        return f"{known}: {self.text}" if self.text else known


def printable(text: str) -> str:
    """Replace control characters, which a terminal could interpret."""
    return "".join(character if character.isprintable() else " " for character in text)


def unpack_stamps(payload: bytes | memoryview, alone: bool = True) -> tuple[int, int, int, int]:
    """Return the target's counter values of one inference: received, started, stopped, answered.

    If not ``alone``, the payload may contain more bytes after them.
    """
    length = len(payload)
    if length != STAMPS_SIZE and (alone or length < STAMPS_SIZE):
        raise RemoteProtocolError(f"the stamps of an inference have {STAMPS_SIZE} bytes, {length} came")
    received, started, stopped, answered = found = _unpack_stamps(payload)
    if not received <= started <= stopped <= answered:
        raise RemoteProtocolError("the stamps of an inference run backwards")
    return found


pack_stamps = _STAMPS.pack


@dataclass(frozen=True)
class Stats:
    """The target's counter, its clock, and its resources over time."""

    counter: Counter
    rate: int
    received: int
    answered: int
    inferences: int
    load: int
    rows: bytes = b""

    def pack(self) -> bytes:
        """Return the payload."""
        return (
            _STATS.pack(
                self.counter, 0, 0, 0, ROW_SIZE, self.rate, self.received, self.answered, self.inferences, self.load
            )
            + self.rows
        )

    @classmethod
    def unpack(cls, payload: bytes | memoryview) -> Stats:
        """Read the payload."""
        if len(payload) < _STATS.size:
            raise RemoteProtocolError(f"statistics of only {len(payload)} bytes came")
        counter, _, _, _, row_size, rate, received, answered, inferences, load = _STATS.unpack_from(payload)
        rows = bytes(payload[_STATS.size :])
        if counter not in Counter._value2member_map_ or answered < received:
            raise RemoteProtocolError("statistics that make no sense came")
        if row_size != ROW_SIZE or len(rows) % ROW_SIZE:
            raise RemoteProtocolError(f"statistics with rows of {row_size} bytes came, {ROW_SIZE} are expected")
        return cls(Counter(counter), rate, received, answered, inferences, load, rows)

    def table(self) -> dict[str, tuple[float, ...]]:
        """Return the rows as columns."""
        columns = list(zip(*_ROW.iter_unpack(self.rows), strict=True)) or [()] * len(ROW_FIELDS)
        return {field.name: column for field, column in zip(ROW_FIELDS, columns, strict=True)}


pack_row = _ROW.pack


def pack_count(count: int) -> bytes:
    """Return the payload of an offset or a number of bytes."""
    return _COUNT.pack(count)


def unpack_count(payload: bytes | memoryview) -> int:
    """Read the output of :func:`pack_count`."""
    if len(payload) != _COUNT.size:
        raise RemoteProtocolError(f"a number of {_COUNT.size} bytes was expected, {len(payload)} came")
    return int(_COUNT.unpack(payload)[0])


@dataclass(frozen=True)
class ModelOffer:
    """The content of MODEL (begin): the size, hash and description of a model."""

    size: int
    sha256: bytes
    description: Mapping[str, Any]

    def pack(self) -> bytes:
        """Return the payload."""
        return _MODEL.pack(self.size, self.sha256) + to_json(self.description)

    @classmethod
    def unpack(cls, payload: bytes | memoryview) -> ModelOffer:
        """Read the payload."""
        if len(payload) < _MODEL.size:
            raise RemoteProtocolError("a MODEL without size and SHA-256 came")
        size, digest = _MODEL.unpack_from(payload)
        return cls(size, digest, from_json(payload[_MODEL.size :]))


@dataclass(frozen=True)
class LoadedModel:
    """The content of the OK to MODEL (end): the time to load in counts, the tensors, and facts about the target."""

    load: int
    io: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)

    def pack(self) -> bytes:
        """Return the payload."""
        return _COUNT.pack(self.load) + to_json({"io": self.io, "about": self.about})

    @classmethod
    def unpack(cls, payload: bytes | memoryview) -> LoadedModel:
        """Read the payload; a target that cannot write JSON leaves that part out."""
        if len(payload) < _COUNT.size:
            raise RemoteProtocolError("the answer to MODEL is too short")
        rest = payload[_COUNT.size :]
        found = from_json(rest) if len(rest) else {}
        io, about = found.get("io", {}), found.get("about", {})
        if not isinstance(io, dict) or not isinstance(about, dict):
            raise RemoteProtocolError("the answer to MODEL makes no sense")
        return cls(int(_COUNT.unpack_from(payload)[0]), io, about)


def pack_log(level: int, text: str) -> bytes:
    """Return the payload of LOG."""
    return _LOG.pack(level, 0, 0, 0) + text.encode("utf-8", "replace")[: FIXED_BOUNDS[Bound.TEXT] - _LOG.size]


def unpack_log(payload: bytes | memoryview) -> tuple[int, str]:
    """Read the payload of LOG."""
    if len(payload) < _LOG.size:
        raise RemoteProtocolError("a LOG without a level came")
    return payload[0], printable(bytes(payload[_LOG.size :]).decode("utf-8", "replace"))


def to_json(value: Mapping[str, Any]) -> bytes:
    """Return a JSON object as UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")


def from_json(payload: bytes | memoryview) -> Mapping[str, Any]:
    """Read a JSON object from the other side, which is not trusted."""
    try:
        found = parse_json(bytes(payload).decode("utf-8"))
    except (ValueError, RecursionError):
        raise RemoteProtocolError("a description that is not JSON came") from None
    if not isinstance(found, dict):
        raise RemoteProtocolError("a description that is not a JSON object came")
    return found
