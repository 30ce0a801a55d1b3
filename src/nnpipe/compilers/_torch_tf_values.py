"""Tensors of a program on their way to TensorFlow, some of which lie with their channels last.

PyTorch puts channels before rows and columns, TensorFlow Lite's convolutions
want them behind.  Turning a tensor costs as much as a layer, so a tensor stays
as it lies until an operator needs it otherwise, and says how it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_TO_LAST = (0, 2, 3, 1)
_TO_FIRST = (0, 3, 1, 2)
_PLACES = (0, 3, 1, 2)  # where an axis of a tensor with channels first lies in one with channels last


@dataclass(frozen=True)
class Value:
    """A tensor as PyTorch's program means it.

    Attributes
    ----------
    held
        A TensorFlow tensor or, for a constant, an array.
    channels_last
        Whether it lies as (samples, rows, columns, channels) and is meant as
        (samples, channels, rows, columns).
    floor
        Whether no element is below 0, which padding makes use of.
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
        """Lengths of the axes as the program means them."""
        lengths = tuple(self.held.shape)
        return tuple(lengths[place] for place in _PLACES) if self.channels_last else lengths

    def axis(self, axis: int) -> int:
        """Return the place of an axis, which may count from the end, in what is held."""
        place = axis % max(self.rank, 1)
        return _PLACES[place] if self.channels_last else place

    def first(self) -> Any:
        """Return the tensor as the program means it."""
        return turned(self.held, _TO_FIRST) if self.channels_last else self.held

    def last(self) -> Any:
        """Return the tensor with channels last; only for four axes."""
        return self.held if self.channels_last else turned(self.held, _TO_LAST)


def turned(held: Any, order: Sequence[int]) -> Any:
    """Put axes in another order."""
    if isinstance(held, np.ndarray):
        return np.ascontiguousarray(held.transpose(order))
    import tensorflow as tf

    return tf.transpose(held, order)


def together(values: Sequence[Any]) -> tuple[list[Any], bool]:
    """Let operands that are combined element by element lie alike; give them, and whether channels are last.

    Operands with fewer axes count from the last axis, as PyTorch has it.
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
