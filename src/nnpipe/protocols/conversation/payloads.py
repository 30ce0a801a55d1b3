"""Payloads other than tensors: errors, a model's description, timestamps, statistics, log lines."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, cast

import numpy as np

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import NotSupported, RemoteProtocolError, SpecMismatch
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.protocols.conversation.frame import CODES, ErrorCode, HeaderField, build_struct
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
        "process_bytes",
        "Q",
        "resident memory of the process that runs the model, or what the model uses of a board",
    ),
    HeaderField("memory_bytes", "Q", "memory used on the whole target"),
    HeaderField("gpu_bytes", "Q", "memory used on its GPU; all ones where there is none"),
    HeaderField("cpu_percent", "f", "of one core, by the process; not a number where unknown"),
    HeaderField("gpu_percent", "f", "not a number where there is none"),
)
LOG_FIELDS = (
    HeaderField("level", "B", "10 debug, 20 info, 30 warning, 40 error"),
    HeaderField("reserved", "3B", "0"),
)

_ERROR, _MODEL, _STAMPS = (
    build_struct(ERROR_FIELDS),
    build_struct(MODEL_FIELDS),
    build_struct(STAMP_FIELDS),
)
_unpack_stamps = _STAMPS.unpack_from
_STATS, _ROW, _LOG = build_struct(STATS_FIELDS), build_struct(ROW_FIELDS), build_struct(LOG_FIELDS)
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
        """Read the payload; control characters in the text become spaces, since it will be shown
        to users.
        """
        if len(payload) < _ERROR.size:
            raise RemoteProtocolError("an ERROR without a code came")
        code, _ = _ERROR.unpack_from(payload)
        text = bytes(payload[_ERROR.size :]).decode("utf-8", "replace")
        return cls(code, replace_control_characters(text))

    def __str__(self) -> str:
        known = (
            CODES[ErrorCode(self.code)]
            if self.code in ErrorCode._value2member_map_
            else f"code {self.code}"
        )
        return f"{known}: {self.text}" if self.text else known


def replace_control_characters(text: str) -> str:
    """Replace control characters, which a terminal could interpret."""
    return "".join(character if character.isprintable() else " " for character in text)


def unpack_stamps(payload: bytes | memoryview, alone: bool = True) -> tuple[int, int, int, int]:
    """Return the target's counter values of one inference: received, started, stopped, answered.

    If not ``alone``, the payload may contain more bytes after them.
    """
    length = len(payload)
    if length != STAMPS_SIZE and (alone or length < STAMPS_SIZE):
        raise RemoteProtocolError(
            f"the stamps of an inference have {STAMPS_SIZE} bytes, {length} came"
        )
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
                self.counter,
                0,
                0,
                0,
                ROW_SIZE,
                self.rate,
                self.received,
                self.answered,
                self.inferences,
                self.load,
            )
            + self.rows
        )

    @classmethod
    def unpack(cls, payload: bytes | memoryview) -> Stats:
        """Read the payload."""
        if len(payload) < _STATS.size:
            raise RemoteProtocolError(f"statistics of only {len(payload)} bytes came")
        counter, _, _, _, row_size, rate, received, answered, inferences, load = _STATS.unpack_from(
            payload
        )
        rows = bytes(payload[_STATS.size :])
        if counter not in Counter._value2member_map_ or answered < received:
            raise RemoteProtocolError("statistics that make no sense came")
        if row_size != ROW_SIZE or len(rows) % ROW_SIZE:
            raise RemoteProtocolError(
                f"statistics with rows of {row_size} bytes came, {ROW_SIZE} are expected"
            )
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
        raise RemoteProtocolError(
            f"a number of {_COUNT.size} bytes was expected, {len(payload)} came"
        )
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
    """The content of the OK to MODEL (end): the time to load in counts, the tensors, and facts
    about the target.
    """

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
    return (
        _LOG.pack(level, 0, 0, 0)
        + text.encode("utf-8", "replace")[: FIXED_BOUNDS[Bound.TEXT] - _LOG.size]
    )


def unpack_log(payload: bytes | memoryview) -> tuple[int, str]:
    """Read the payload of LOG."""
    if len(payload) < _LOG.size:
        raise RemoteProtocolError("a LOG without a level came")
    return payload[0], replace_control_characters(
        bytes(payload[_LOG.size :]).decode("utf-8", "replace")
    )


def to_json(value: Mapping[str, Any]) -> bytes:
    """Return a JSON object as UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(
        "utf-8"
    )


def from_json(payload: bytes | memoryview) -> Mapping[str, Any]:
    """Read a JSON object from the other side, which is not trusted."""
    try:
        found = parse_json(bytes(payload).decode("utf-8"))
    except (ValueError, RecursionError):
        raise RemoteProtocolError("a description that is not JSON came") from None
    if not isinstance(found, dict):
        raise RemoteProtocolError("a description that is not a JSON object came")
    return found


# Tensors as payloads: the bytes of the tensors in the order of their specifications.
#
# The payload begins with a preamble: the length of each free axis (32 bits, little-endian), in the
# order of the tensors, padded to a multiple of 8 bytes. The tensors follow in C order, little-
# endian, each but the last padded with zeros to a multiple of 8 bytes.  A model with fixed shapes
# has no preamble; if it has a single input, the payload is just that array.

_ALIGN = 8
_LENGTH = np.dtype("<u4")


class TensorLayout:
    """The layout of a model's inputs, or outputs, in a payload.

    Parameters
    ----------
    specs
        The tensors, in the order in which they are sent.

    Raises
    ------
    NotSupported
        If an element type has no fixed size, or numpy does not support it here.
    """

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self._specs = tuple(specs)
        self._wire = tuple((spec.name, _get_wire_dtype(spec)) for spec in self._specs)
        self._last = self._specs[-1].name if self._specs else ""
        free = sum(spec.shape.count(None) for spec in self._specs)
        self._free = free
        self._preamble = _pad_size(free * _LENGTH.itemsize)
        shapes = [
            tuple(length for length in spec.shape if length is not None) for spec in self._specs
        ]
        self._fixed = None if free else self._build_plan(shapes)
        self.size: int | None = self._fixed.size if self._fixed else None
        """The size of every payload in bytes, or None if axes are free."""

    def pack(self, batch: Batch) -> list[memoryview | bytes]:
        """Return the parts of a payload; arrays that already have the right layout are not
        copied.
        """
        parts: list[memoryview | bytes] = []
        if self._free:
            lengths = [
                length
                for spec in self._specs
                for length, want in zip(batch[spec.name].shape, spec.shape, strict=True)
                if want is None
            ]
            preamble = np.zeros(self._preamble // _LENGTH.itemsize, _LENGTH)
            preamble[: self._free] = lengths
            parts.append(preamble.tobytes())
        for name, dtype in self._wire:
            array = batch[name]
            content = _get_bytes(
                array if array.dtype is dtype else np.ascontiguousarray(array, dtype)
            )
            parts.append(content)
            padding = -len(content) % _ALIGN
            if padding and name != self._last:
                parts.append(bytes(padding))
        return parts

    def unpack(self, payload: memoryview | bytes, begin: int = 0) -> dict[str, np.ndarray]:
        """Return the tensors from byte ``begin`` on, as arrays that share the payload's memory.

        Raises
        ------
        SpecMismatch
            If the payload has more or fewer bytes than the tensors.
        """
        size, tensors = self._fixed or self._build_plan(self._read_lengths(payload, begin))
        if size != len(payload) - begin:
            raise SpecMismatch(f"the tensors take {size:,} bytes, {len(payload) - begin:,} came")
        found = {}
        for name, dtype, count, at, shape in tensors:
            found[name] = (
                np.ndarray(shape, dtype, payload, begin + at) if count else np.empty(shape, dtype)
            )
        return found

    def _read_lengths(self, payload: memoryview | bytes, begin: int) -> list[tuple[int, ...]]:
        if len(payload) - begin < self._preamble:
            raise SpecMismatch(
                f"the lengths of free axes take {self._preamble} bytes, {len(payload) - begin} came"
            )
        lengths = iter(np.frombuffer(payload, _LENGTH, self._free, begin).tolist())
        return [
            tuple(next(lengths) if want is None else want for want in spec.shape)
            for spec in self._specs
        ]

    def _build_plan(self, shapes: Sequence[tuple[int, ...]]) -> _Plan:
        at = end = self._preamble
        tensors = []
        for (name, dtype), shape in zip(self._wire, shapes, strict=True):
            count = math.prod(shape)
            tensors.append((name, dtype, count, at, shape))
            end = at + count * dtype.itemsize
            at = _pad_size(end)
        return _Plan(end, tensors)


class _Plan(NamedTuple):
    """The position of each tensor: name, element type, number of elements, offset, shape."""

    size: int
    tensors: list[tuple[str, np.dtype[Any], int, int, tuple[int, ...]]]


def _get_bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of an array in C order."""
    try:
        return array.data.cast("B")  # three times as fast as the general way
    except (TypeError, ValueError, BufferError):
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _pad_size(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _get_wire_dtype(spec: TensorSpec) -> np.dtype[Any]:
    if spec.dtype == "string":
        raise NotSupported(f"tensor {spec.name!r} holds strings, which do not travel to a target")
    if spec.dtype == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise NotSupported(f"tensor {spec.name!r} is bfloat16: pip install ml_dtypes") from None
        return cast("np.dtype[Any]", np.dtype(ml_dtypes.bfloat16))
    own = np.dtype(spec.dtype)
    little = own.newbyteorder("<")
    # most arrays share numpy's own dtype object
    return cast("np.dtype[Any]", own if own == little else little)
