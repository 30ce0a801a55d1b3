"""Tensors as payloads: the bytes of the tensors in the order of their specifications.

The payload begins with a preamble: the length of each free axis (32 bits,
little-endian), in the order of the tensors, padded to a multiple of 8 bytes.
The tensors follow in C order, little-endian, each but the last padded with zeros
to a multiple of 8 bytes.  A model with fixed shapes has no preamble; if it has a
single input, the payload is just that array.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from nnpipe.core.errors import NotSupported, SpecMismatch
from nnpipe.core.tensors import Batch, TensorSpec

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
        self._wire = tuple((spec.name, _wire_dtype(spec)) for spec in self._specs)
        self._last = self._specs[-1].name if self._specs else ""
        free = sum(spec.shape.count(None) for spec in self._specs)
        self._free = free
        self._preamble = _padded(free * _LENGTH.itemsize)
        shapes = [tuple(length for length in spec.shape if length is not None) for spec in self._specs]
        self._fixed = None if free else self._plan(shapes)
        self.size: int | None = self._fixed.size if self._fixed else None
        """The size of every payload in bytes, or None if axes are free."""

    def pack(self, batch: Batch) -> list[memoryview | bytes]:
        """Return the parts of a payload; arrays that already have the right layout are not copied."""
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
            content = _bytes_of(array if array.dtype is dtype else np.ascontiguousarray(array, dtype))
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
        size, tensors = self._fixed or self._plan(self._lengths(payload, begin))
        if size != len(payload) - begin:
            raise SpecMismatch(f"the tensors take {size:,} bytes, {len(payload) - begin:,} came")
        found = {}
        for name, dtype, count, at, shape in tensors:
            found[name] = np.ndarray(shape, dtype, payload, begin + at) if count else np.empty(shape, dtype)
        return found

    def _lengths(self, payload: memoryview | bytes, begin: int) -> list[tuple[int, ...]]:
        if len(payload) - begin < self._preamble:
            raise SpecMismatch(f"the lengths of free axes take {self._preamble} bytes, {len(payload) - begin} came")
        lengths = iter(np.frombuffer(payload, _LENGTH, self._free, begin).tolist())
        return [tuple(next(lengths) if want is None else want for want in spec.shape) for spec in self._specs]

    def _plan(self, shapes: Sequence[tuple[int, ...]]) -> _Plan:
        at = end = self._preamble
        tensors = []
        for (name, dtype), shape in zip(self._wire, shapes, strict=True):
            count = math.prod(shape)
            tensors.append((name, dtype, count, at, shape))
            end = at + count * dtype.itemsize
            at = _padded(end)
        return _Plan(end, tensors)


class _Plan(NamedTuple):
    """The position of each tensor: name, element type, number of elements, offset, shape."""

    size: int
    tensors: list[tuple[str, np.dtype[Any], int, int, tuple[int, ...]]]


def _bytes_of(array: np.ndarray) -> memoryview:
    """Return the bytes of an array in C order."""
    try:
        return array.data.cast("B")  # three times as fast as the general way
    except (TypeError, ValueError, BufferError):
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _wire_dtype(spec: TensorSpec) -> np.dtype[Any]:
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
    return cast("np.dtype[Any]", own if own == little else little)  # most arrays share numpy's own dtype object
