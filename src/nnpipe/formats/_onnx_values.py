"""Readers of single values in an ONNX file: descriptions of tensors, and constants with one element.

Field numbers are those of ``onnx/onnx.proto3``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from nnpipe.formats._protobuf import Span, fields, integers, spans, text

DTYPES = dict(
    enumerate("float32 uint8 int8 uint16 int16 int32 int64 string bool float16 float64 uint32 uint64".split(), 1)
) | {16: "bfloat16", 21: "uint4", 22: "int4"}
"""Names of element types by their number in ``TensorProto.DataType``."""

_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_FLOATS, _TENSOR_INT32S, _TENSOR_RAW = 1, 2, 4, 5, 9


def value_info(data: memoryview, span: Span) -> tuple[str, tuple[str | None, tuple[int | None, ...] | None]]:
    """Return the name of a tensor with its element type and shape, read from a ValueInfoProto.

    The element type is ``None`` if it is not stated or unknown; the shape is ``None`` if it is not stated.
    """
    name, dtype, shape = "", None, None
    for number, value in messages(data, span):
        if number == 1:
            name = text(data, value)
        elif number == 2:
            for tensor in spans(data, value, 1):
                for part, content in fields(data, tensor):
                    if part == 1 and isinstance(content, int):
                        dtype = DTYPES.get(content)
                    elif part == 2 and not isinstance(content, int):
                        shape = tuple(_length(data, axis) for axis in spans(data, content, 1))
    return name, (dtype, shape)


def _length(data: memoryview, span: Span) -> int | None:
    """Return the length of a dimension; ``None`` for a free one, which has a name or nothing instead of a length."""
    known = [value for number, value in fields(data, span) if number == 1 and isinstance(value, int)]
    return known[-1] if known and known[-1] < 1 << 63 else None


def first_axis_name(data: memoryview, span: Span) -> str:
    """Return the name of a tensor's first axis, read from a ValueInfoProto.

    The empty string is returned if the axis has a length or no name.
    """
    for kind in spans(data, span, 2):
        for tensor in spans(data, kind, 1):
            for shape in spans(data, tensor, 2):
                for axis in itertools.islice(spans(data, shape, 1), 1):
                    named = [value for number, value in fields(data, axis) if number == 2]
                    if _length(data, axis) is None and named and not isinstance(named[-1], int):
                        return text(data, named[-1])
    return ""


def only_element(data: memoryview, span: Span) -> float | None:
    """Return the element of a TensorProto with one element; ``None`` if it has more, or holds no number."""
    kind, size, raw, plain = "", 1, b"", 0.0
    for number, value in fields(data, span):
        content = b"" if isinstance(value, int) else bytes(data[value[0] : min(value[1], value[0] + 16)])
        if number == _TENSOR_TYPE and isinstance(value, int):
            kind = DTYPES.get(value, "")
        elif number == _TENSOR_DIMS:
            size *= math.prod(integers(data, value))
        elif number == _TENSOR_RAW:
            raw = content
        elif number == _TENSOR_FLOATS and len(content) == 4:
            plain = float(np.frombuffer(content, "<f4")[0])
        elif number == _TENSOR_INT32S:
            plain = float(next(iter(integers(data, value)), 0))
    if size != 1 or not kind or kind == "string":
        return None
    if raw and kind != "bfloat16" and len(raw) == np.dtype(kind).itemsize:
        return float(np.frombuffer(raw, np.dtype(kind).newbyteorder("<"))[0])
    return plain


def messages(data: memoryview, span: Span) -> Iterator[tuple[int, Span]]:
    """Yield the number of each field that is not an integer, and the span of its content."""
    for number, value in fields(data, span):
        if not isinstance(value, int):
            yield number, value
