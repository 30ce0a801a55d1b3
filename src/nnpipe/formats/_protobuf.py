"""Reading protocol buffers field by field, with every length checked.

The wire format is that of https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Iterator

from nnpipe.formats._errors import Damaged

Span = tuple[int, int]
"""Where a field's content starts and ends."""

_FIXED = {1: 8, 5: 4}
_VARINT, _LENGTH = 0, 2


def fields(data: memoryview, span: Span) -> Iterator[tuple[int, int | Span]]:
    """Go through a message: field number, and its integer or where its content lies.

    Integers come as unsigned; numbers of fixed size come as where they lie.
    """
    at, end = span
    while at < end:
        tag, at = varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = varint(data, at, end)
            yield number, value
            continue
        if kind == _LENGTH:
            length, at = varint(data, at, end)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise Damaged("a field of no known kind")
        if length > end - at:
            raise Damaged("a field reaches beyond the end of what holds it")
        yield number, (at, at + length)
        at += length


def varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """Read an integer of variable length; give it and where it ends."""
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise Damaged("a number without an end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def spans(data: memoryview, span: Span, wanted: int) -> Iterator[Span]:
    """Where the contents of all fields of one number lie."""
    for number, value in fields(data, span):
        if number == wanted:
            if isinstance(value, int):
                raise Damaged("a number where a message belongs")
            yield value


def text(data: memoryview, value: int | Span) -> str:
    """Read a string."""
    if isinstance(value, int):
        raise Damaged("a number where a text belongs")
    try:
        return bytes(data[value[0] : value[1]]).decode("utf-8")
    except UnicodeDecodeError:
        raise Damaged("a text that is not UTF-8") from None


def integers(data: memoryview, value: int | Span) -> list[int]:
    """Read a field of signed integers, stored one by one or packed."""
    found = [] if isinstance(value, tuple) else [value]
    if isinstance(value, tuple):
        at, end = value
        while at < end:
            number, at = varint(data, at, end)
            found.append(number)
    return [number - (1 << 64) if number >= 1 << 63 else number for number in found]


def integer(data: memoryview, value: int | Span) -> int:
    """Read a field of one signed integer; of several the last one counts."""
    found = integers(data, value)
    if not found:
        raise Damaged("a number that is left out")
    return found[-1]
