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

_TO_LAST = (0, 2, 3, 1)
_TO_FIRST = (0, 3, 1, 2)
_PLACES = (0, 3, 1, 2)  # position with channels last of each axis of a tensor with channels first


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
    def shape(self) -> tuple[int | None, ...]:
        """Lengths of the axes in the program's order."""
        lengths = tuple(self.held.shape)
        return tuple(lengths[place] for place in _PLACES) if self.channels_last else lengths

    def axis(self, axis: int) -> int:
        """Return the position in ``held`` of an axis of the program, which may count from the end."""
        place = axis % max(self.rank, 1)
        return _PLACES[place] if self.channels_last else place

    def first(self) -> Any:
        """Return the tensor in the program's order of axes."""
        return turned(self.held, _TO_FIRST) if self.channels_last else self.held

    def last(self) -> Any:
        """Return the tensor with channels last; only for tensors with four axes."""
        return self.held if self.channels_last else turned(self.held, _TO_LAST)


def turned(held: Any, order: Sequence[int]) -> Any:
    """Return a tensor with its axes in another order."""
    if isinstance(held, np.ndarray):
        return np.ascontiguousarray(held.transpose(order))
    import tensorflow as tf

    return tf.transpose(held, order)


def together(values: Sequence[Any]) -> tuple[list[Any], bool]:
    """Return the operands of an elementwise operation in one layout, and whether it has channels last.

    Operands with fewer axes are aligned at the last axis, as in PyTorch.
    """
    tensors = [value for value in values if isinstance(value, Value)]
    if not any(value.channels_last for value in tensors):
        return [value.held if isinstance(value, Value) else value for value in values], False
    if any(value.rank > 4 for value in tensors):
        return [value.first() if isinstance(value, Value) else value for value in values], False
    return [_four(value).last() if isinstance(value, Value) and value.rank else _bare(value) for value in values], True


def _bare(value: Any) -> Any:
    return value.held if isinstance(value, Value) else value


def _four(value: Value) -> Value:
    if value.rank == 4:
        return value
    missing = 4 - value.rank
    if isinstance(value.held, np.ndarray):
        return Value(value.held.reshape((1,) * missing + value.held.shape))
    import tensorflow as tf

    return Value(tf.reshape(value.held, tf.concat([[1] * missing, tf.shape(value.held)], 0)))
