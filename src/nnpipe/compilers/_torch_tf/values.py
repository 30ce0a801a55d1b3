"""Tensors of a program during its translation to TensorFlow, in either memory layout.

PyTorch has channels before rows and columns, TensorFlow Lite's convolutions
need them last.  Transposing a tensor costs as much as a layer, so each tensor
records its layout and keeps it until an operator needs the other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.core.errors import CompileError

TO_LAST = (0, 2, 3, 1)
"""Axes of the program in the order in which they lie with channels last."""

_TO_FIRST = (0, 3, 1, 2)
_PLACES = (0, 3, 1, 2)  # position with channels last of each axis of a tensor with channels first
_AS_FLOAT32 = ("float16", "bfloat16", "float64")


@dataclass(frozen=True)
class Value:
    """A tensor of PyTorch's program.

    Attributes
    ----------
    held
        A TensorFlow tensor or, for a constant, an array.
    channels_last
        Whether it is stored as (batch, rows, columns, channels) and represents
        (batch, channels, rows, columns).
    floor
        Whether no element is negative, which allows zeros as padding.
    """

    held: Any
    channels_last: bool = False
    floor: bool = False

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.held.shape)

    @property
    def dtype(self) -> str:
        """Element type by its name in numpy."""
        return str(self.held.dtype.name)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Lengths of the axes in the program's order."""
        lengths = tuple(self.held.shape)
        return tuple(lengths[place] for place in _PLACES) if self.channels_last else lengths

    def axis(self, axis: int) -> int:
        """Return the position in ``held`` of an axis of the program, which may count from the
        end.
        """
        place = axis % max(self.rank, 1)
        return _PLACES[place] if self.channels_last else place

    def first(self) -> Any:
        """Return the tensor in the program's order of axes."""
        return transpose_tensor(self.held, _TO_FIRST) if self.channels_last else self.held

    def last(self) -> Any:
        """Return the tensor with channels last; only for tensors with four axes."""
        return self.held if self.channels_last else transpose_tensor(self.held, TO_LAST)

    def length(self, axis: int) -> Any:
        """Return the length of an axis: a number, or a scalar tensor if it is free."""
        import tensorflow as tf

        known = self.shape[axis]
        return tf.shape(self.held)[self.axis(axis)] if known is None else known

    def lengths(self) -> list[Any]:
        """Return the lengths of all axes."""
        return [self.length(axis) for axis in range(self.rank)]


def transpose_tensor(held: Any, order: Sequence[int]) -> Any:
    """Return a tensor with its axes in another order."""
    if list(order) == list(range(len(order))):
        return held
    if isinstance(held, np.ndarray):
        return np.ascontiguousarray(held.transpose(order))
    import tensorflow as tf

    return tf.transpose(held, order)


def restore_axis_order(held: Any, axes: Sequence[int], floor: bool = False) -> Value:
    """Return a tensor whose axes are those ``axes`` of the program, in the program's order."""
    return Value(transpose_tensor(held, [axes.index(axis) for axis in sorted(axes)]), floor=floor)


def get_type_name(dtype: Any) -> str:
    """Return the type for TensorFlow of one of PyTorch; TensorFlow Lite computes in float32
    only.
    """
    name = str(dtype).removeprefix("torch.")
    return "float32" if name in _AS_FLOAT32 else name


def cast(held: Any, dtype: str) -> Any:
    """Return a tensor or a number with another element type."""
    if isinstance(held, (bool, int, float)):
        return {"bool": bool, "float32": float}.get(dtype, int)(held)
    if held.dtype.name == dtype:
        return held
    if isinstance(held, np.ndarray):
        return held.astype(dtype)
    import tensorflow as tf

    return held != tf.zeros((), held.dtype) if dtype == "bool" else tf.cast(held, dtype)


def find_common_type(values: Sequence[Any]) -> str:
    """Return the element type to which PyTorch promotes operands; numbers and scalars count less
    than tensors.
    """
    import torch

    def make_stand_in(value: Any) -> Any:
        if isinstance(value, (bool, int, float)):
            return value
        if not isinstance(value, Value):  # a length
            return 1
        return torch.empty(
            (1,) * min(value.rank, 1), dtype=getattr(torch, value.dtype), device="meta"
        )

    one, *others = sorted(
        (make_stand_in(value) for value in values),
        key=lambda value: isinstance(value, (bool, int, float)),
    )
    for other in others:
        one = torch.empty(
            (1,) * max(getattr(one, "ndim", 0), getattr(other, "ndim", 0)),
            dtype=torch.result_type(one, other),
            device="meta",
        )
    return get_type_name(one.dtype)


def prepare_operands(values: Sequence[Any], dtype: str | None = None) -> tuple[list[Any], bool]:
    """Return the operands of an elementwise operation in one type and layout, and whether it has
    channels last.

    Without ``dtype``, PyTorch's promotion decides.  Operands with fewer axes are
    aligned at the last axis, as in PyTorch.
    """
    held, last = align_layouts(values)
    wanted = dtype or find_common_type(values)
    return [cast(value, wanted) for value in held], last


def align_layouts(values: Sequence[Any]) -> tuple[list[Any], bool]:
    """Return operands in one layout, and whether it has channels last."""
    tensors = [value for value in values if isinstance(value, Value)]
    if not any(value.channels_last for value in tensors):
        return [value.held if isinstance(value, Value) else value for value in values], False
    if any(value.rank > 4 for value in tensors):
        return [value.first() if isinstance(value, Value) else value for value in values], False
    return [
        _to_four_axes(value).last() if isinstance(value, Value) and value.rank else _unwrap(value)
        for value in values
    ], True


def build_shape_tensor(lengths: Sequence[Any]) -> Any:
    """Return lengths, of which some may be scalar tensors, as a shape for TensorFlow."""
    if all(isinstance(length, (int, np.integer)) for length in lengths):
        return [int(length) for length in lengths]
    import tensorflow as tf

    return tf.stack([tf.cast(length, tf.int32) for length in lengths])


def build_reshape_target(lengths: Sequence[Any]) -> Any:
    """Return lengths as a shape for a reshape, in which one free length is what is left."""
    free = [place for place, length in enumerate(lengths) if not isinstance(length, int)]
    if len(free) == 1 and -1 not in [length for length in lengths if isinstance(length, int)]:
        lengths = [-1 if place in free else length for place, length in enumerate(lengths)]
    return build_shape_tensor(lengths)


def require_static_length(value: Any, what: str) -> int:
    """Return a length that must be fixed; raise ``CompileError`` if it is free."""
    if not isinstance(value, (int, np.integer)):
        raise CompileError(f"{what} needs a fixed length; export the model with that axis fixed")
    return int(value)


def require_constant(value: Value, name: str) -> Any:
    """Return a weight as an array; raise ``CompileError`` if it is computed."""
    if not isinstance(value.held, np.ndarray):
        raise CompileError(f"{name} with weights that are computed is not translated")
    return value.held


def _unwrap(value: Any) -> Any:
    return value.held if isinstance(value, Value) else value


def _to_four_axes(value: Value) -> Value:
    if value.rank == 4:
        return value
    missing = 4 - value.rank
    if isinstance(value.held, np.ndarray):
        return Value(value.held.reshape((1,) * missing + value.held.shape))
    import tensorflow as tf

    return Value(tf.reshape(value.held, tf.concat([[1] * missing, tf.shape(value.held)], 0)))
