"""Operators that cut tensors, join them, pad them, and pick elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.compilers._torch_tf.shapes import unsqueeze, view
from nnpipe.compilers._torch_tf.values import (
    Value,
    cast,
    find_common_type,
    prepare_operands,
    require_static_length,
)
from nnpipe.core.errors import CompileError

_END = (1 << 63) - 1


def concat(parts: Sequence[Value], axis: int = 0) -> Value:
    """Return tensors joined along an axis."""
    import tensorflow as tf

    # PyTorch joins anything with a tensor without elements and one axis.
    parts = [part for part in parts if part.shape != (0,)] or parts[:1]
    dtype = find_common_type(parts) if len(parts) > 1 else parts[0].dtype
    last = any(part.channels_last for part in parts) and all(part.rank == 4 for part in parts)
    lying = [Value(part.last(), True) if last else Value(part.first()) for part in parts]
    found = tf.concat([cast(part.held, dtype) for part in lying], lying[0].axis(axis))
    return Value(found, last, all(part.floor for part in parts))


def _apply_stack(parts: Sequence[Value], axis: int = 0) -> Value:
    return concat(
        [unsqueeze(part, axis % (part.rank + 1)) for part in parts], axis % (parts[0].rank + 1)
    )


def slice_axis(x: Value, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    """Return the elements of an axis from ``start`` to ``end``."""
    import tensorflow as tf

    stop = None if end is None or (isinstance(end, int) and end >= _END) else end
    length = x.shape[axis]
    if (
        (start or 0) == 0
        and step == 1
        and (stop is None or (isinstance(stop, int) and stop == length))
    ):
        return x
    where = [slice(None)] * x.rank
    where[x.axis(axis)] = slice(start, stop, step)
    return Value(tf.convert_to_tensor(x.held)[tuple(where)], x.channels_last, x.floor)


def _apply_narrow(x: Value, axis: int, start: Any, length: Any) -> Value:
    return slice_axis(x, axis, start, start + length)


def _apply_select(x: Value, axis: int, index: Any) -> Value:
    import tensorflow as tf

    where: list[Any] = [slice(None)] * x.rank
    where[axis % x.rank] = index
    return Value(tf.convert_to_tensor(x.first())[tuple(where)], floor=x.floor)


def _apply_split(x: Value, sizes: Any, axis: int = 0) -> tuple[Value, ...]:
    """Return parts of one length, the last perhaps shorter, or of given lengths."""
    length = require_static_length(x.shape[axis], "split")
    lengths = (
        [min(sizes, length - at) for at in range(0, length, sizes)]
        if isinstance(sizes, int)
        else list(sizes)
    )
    ends = np.cumsum([0, *lengths]).tolist()
    return tuple(slice_axis(x, axis, start, end) for start, end in itertools.pairwise(ends))


def _apply_chunk(x: Value, count: int, axis: int = 0) -> tuple[Value, ...]:
    return _apply_split(x, -(-require_static_length(x.shape[axis], "chunk") // count), axis)


def _apply_tensor_split(x: Value, sections: Any, axis: int = 0) -> tuple[Value, ...]:
    length = require_static_length(x.shape[axis], "tensor_split")
    parts = np.array_split(np.arange(length), sections)
    return _apply_split(x, [len(part) for part in parts], axis)


def _apply_unbind(x: Value, axis: int = 0) -> tuple[Value, ...]:
    return tuple(
        _apply_select(x, axis, place)
        for place in range(require_static_length(x.shape[axis], "unbind"))
    )


def _apply_flip(x: Value, axes: Sequence[int]) -> Value:
    import tensorflow as tf

    held = x.held
    for axis in axes:  # TensorFlow Lite reverses one axis at a time
        held = tf.reverse(held, [x.axis(axis)])
    return Value(held, x.channels_last, x.floor)


def _apply_roll(x: Value, shifts: Any, axes: Any = ()) -> Value:
    shifts, axes = ([value] if isinstance(value, int) else list(value) for value in (shifts, axes))
    if not axes:
        raise CompileError("roll of a flattened tensor is not translated; name the axes")
    for shift, axis in zip(shifts, axes, strict=True):
        by = shift % require_static_length(x.shape[axis], "roll")
        if by:
            x = concat([slice_axis(x, axis, -by), slice_axis(x, axis, 0, -by)], axis)
    return x


def _apply_pad(
    x: Value, pads: Sequence[int], mode: Any = "constant", value: float | None = 0
) -> Value:
    import tensorflow as tf

    if isinstance(mode, (int, float)):  # constant_pad_nd
        mode, value = "constant", mode
    for place in range(len(pads) // 2):  # negative lengths cut
        axis = x.rank - 1 - place
        before, after = (max(-length, 0) for length in pads[2 * place : 2 * place + 2])
        x = slice_axis(x, axis, before, -after if after else None)
    pairs = [(max(pads[i], 0), max(pads[i + 1], 0)) for i in range(0, len(pads), 2)]
    if not any(map(any, pairs)):
        return x
    if mode != "constant":
        return _apply_mirror_pad(x, pairs, mode)
    table = [(0, 0)] * x.rank
    for place, pair in enumerate(pairs):
        table[x.axis(x.rank - 1 - place)] = pair
    held = tf.pad(x.held, table, constant_values=cast(value or 0, x.dtype))
    return Value(held, x.channels_last, x.floor and (value or 0) >= 0)


def _apply_mirror_pad(x: Value, pairs: Sequence[tuple[int, int]], mode: str) -> Value:
    """Return the tensor padded with its own elements."""
    import tensorflow as tf

    names = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    held = x.held
    for place, pair in enumerate(pairs):
        axis = x.rank - 1 - place
        if any(pair):
            length = require_static_length(x.shape[axis], f"padding by {mode}")
            found = np.pad(np.arange(length, dtype=np.int32), pair, names[mode])  # type: ignore[call-overload]
            held = tf.gather(held, found, axis=x.axis(axis))
    return Value(held, x.channels_last, x.floor)


def _make_padding(mode: str) -> Callable[..., Value]:
    return lambda x, pads: _apply_pad(x, pads, mode)


def _gather_along_axis(held: Any, places: Any, axis: int) -> Any:
    import tensorflow as tf

    return tf.gather(held, places, axis=axis)


def _normalize_indices(index: Value, length: Any) -> Any:
    """Return indices of which none counts from the end."""
    import tensorflow as tf

    held = index.first()
    if isinstance(held, np.ndarray):
        return (
            np.where(held < 0, held + length, held).astype(np.int32)
            if isinstance(length, int)
            else held
        )
    return tf.where(held < 0, held + tf.cast(length, held.dtype), held)


def _apply_index_select(x: Value, axis: int, index: Value) -> Value:
    held = index.first()
    places = held.astype(np.int32) if isinstance(held, np.ndarray) else held
    return Value(_gather_along_axis(x.held, places, x.axis(axis)), x.channels_last, x.floor)


def _apply_embedding(weight: Value, index: Value, *ignored: Any) -> Value:
    return Value(_gather_along_axis(weight.first(), index.first(), 0))


def _apply_index(x: Value, indices: Sequence[Value | None]) -> Value:
    import tensorflow as tf

    chosen = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if any(index.dtype == "bool" for _, index in chosen):
        raise CompileError(
            "index by truth values has as many results as there are, and TensorFlow Lite's shapes "
            "must not depend on values; use torch.where"
        )
    if len(chosen) == 1:
        ((axis, index),) = chosen
        return Value(
            _gather_along_axis(x.first(), _normalize_indices(index, x.length(axis)), axis),
            floor=x.floor,
        )
    axes = [axis for axis, _ in chosen]
    if axes != list(range(axes[0], axes[-1] + 1)):
        rest = [axis for axis in range(x.rank) if axis not in axes]
        x, axes = Value(tf.transpose(x.first(), [*axes, *rest])), list(range(len(axes)))
    lengths = x.lengths()
    place: Any = 0
    for axis, (_, index) in zip(axes, chosen, strict=True):
        here = Value(_normalize_indices(index, lengths[axis]))
        (before, now), _ = prepare_operands(
            [Value(place) if hasattr(place, "shape") else place, here], here.dtype
        )
        place = before * convert_length(lengths[axis], here.dtype) + now
    start, end = axes[0], axes[-1] + 1
    fused = [*lengths[:start], -1, *lengths[end:]]

    return Value(
        _gather_along_axis(view(Value(x.first()), fused).held, place, start), floor=x.floor
    )


def convert_length(length: Any, dtype: str) -> Any:
    """Return a length, which may be free, as a factor for tensors of a type."""
    return length if isinstance(length, int) else cast(length, dtype)


def _apply_gather(x: Value, axis: int, index: Value, *ignored: Any, **also: Any) -> Value:
    import tensorflow as tf

    place = axis % x.rank
    held = Value(x.first())
    for other in range(x.rank):
        if other != place and index.shape[other] != x.shape[other]:
            held = slice_axis(held, other, 0, index.length(other))
    order = [i for i in range(x.rank) if i != place] + [place]
    back = [order.index(i) for i in range(x.rank)]
    params, places = tf.transpose(held.held, order), tf.transpose(index.first(), order)
    found = tf.gather(params, places, axis=x.rank - 1, batch_dims=x.rank - 1)
    return Value(tf.transpose(found, back), floor=x.floor)


def _apply_slice_scatter(
    x: Value, source: Value, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    import tensorflow as tf

    length = require_static_length(x.shape[axis], "writing into a slice")
    first, last, _ = slice(start, min(end, length) if end is not None else None).indices(length)
    source = Value(cast(source.held, x.dtype), source.channels_last, source.floor)
    if step == 1:
        parts = [
            slice_axis(x, axis, 0, first) if first else None,
            source,
            slice_axis(x, axis, last) if last < length else None,
        ]
        return concat([part for part in parts if part is not None], axis)
    hit = np.zeros(length, bool)
    hit[first:last:step] = True
    places = np.maximum(np.cumsum(hit) - 1, 0).astype(np.int32)
    spread = tf.gather(source.first(), places, axis=axis % x.rank)
    shape = [length if i == axis % x.rank else 1 for i in range(x.rank)]
    return Value(tf.where(hit.reshape(shape), spread, x.first()), floor=x.floor and source.floor)


def _apply_select_scatter(x: Value, source: Value, axis: int, index: int) -> Value:
    at = index % require_static_length(x.shape[axis], "writing into a slice")
    return _apply_slice_scatter(x, unsqueeze(source, axis % x.rank), axis, at, at + 1)


def _apply_index_put(
    x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    import tensorflow as tf

    chosen = [index for index in indices if index is not None]
    if (
        len(chosen) != 1
        or chosen[0].dtype != "bool"
        or values.rank
        or accumulate
        or indices[0] is None
    ):
        raise CompileError("index_put is translated with one mask and one number only")
    mask = chosen[0].first()
    mask = (
        mask.reshape(mask.shape + (1,) * (x.rank - mask.ndim))
        if isinstance(mask, np.ndarray)
        else tf.reshape(mask, tf.concat([tf.shape(mask), [1] * (x.rank - len(mask.shape))], 0))
    )
    return Value(tf.where(mask, cast(values.held, x.dtype), x.first()))


def build_operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch."""
    return {
        "cat": concat,
        "concat": concat,
        "concatenate": concat,
        "stack": _apply_stack,
        "slice": slice_axis,
        "narrow": _apply_narrow,
        "select": _apply_select,
        "split": _apply_split,
        "split_with_sizes": _apply_split,
        "chunk": _apply_chunk,
        "tensor_split": _apply_tensor_split,
        "unbind": _apply_unbind,
        "flip": _apply_flip,
        "roll": _apply_roll,
        "pad": _apply_pad,
        "constant_pad_nd": _apply_pad,
        "index_select": _apply_index_select,
        "embedding": _apply_embedding,
        "index": _apply_index,
        "gather": _apply_gather,
        "slice_scatter": _apply_slice_scatter,
        "select_scatter": _apply_select_scatter,
        "index_put": _apply_index_put,
        "_pad_circular": _make_padding("circular"),
        **{f"reflection_pad{n}d": _make_padding("reflect") for n in (1, 2, 3)},
        **{f"replication_pad{n}d": _make_padding("replicate") for n in (1, 2, 3)},
    }
