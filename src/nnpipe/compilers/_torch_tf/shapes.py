"""Operators that change shapes or the order of axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.compilers._torch_tf.values import (
    TO_LAST,
    Value,
    build_shape_tensor,
    cast,
    get_type_name,
    require_static_length,
    transpose_tensor,
)
from nnpipe.core.errors import CompileError

_FIRST = [0, 3, 1, 2]


def view(x: Value, size: Sequence[Any], *ignored: Any) -> Value:
    """Return the tensor in another shape."""
    import tensorflow as tf

    if not isinstance(size, (list, tuple)):  # view.dtype
        return Value(cast(x.held, get_type_name(size)), x.channels_last, x.floor)
    lengths = list(size)
    if _is_same_shape(lengths, x.shape):
        return x
    open_places = [place for place, length in enumerate(lengths) if not isinstance(length, int)]
    if len(open_places) == 1 and not any(
        isinstance(length, int) and length == -1 for length in lengths
    ):
        lengths[open_places[0]] = -1
    if x.channels_last and x.shape[2:] == (1, 1):
        return Value(tf.reshape(x.held, build_shape_tensor(lengths)), floor=x.floor)
    return Value(tf.reshape(x.first(), build_shape_tensor(lengths)), floor=x.floor)


def _apply_flatten(x: Value, start: int = 0, end: int = -1) -> Value:
    import tensorflow as tf

    if x.rank == 0:
        return view(x, [1])
    start, end = start % x.rank, end % x.rank
    middle = x.shape[start : end + 1]
    fused = -1 if None in middle else math.prod(int(length or 0) for length in middle)
    shape = [*x.shape[:start], fused, *x.shape[end + 1 :]]
    if shape.count(None) + shape.count(-1) == 1:
        return view(x, [-1 if length is None else length for length in shape])
    dynamic = tf.shape(x.first())
    return Value(
        tf.reshape(x.first(), tf.concat([dynamic[:start], [fused], dynamic[end + 1 :]], 0)),
        floor=x.floor,
    )


def _apply_unflatten(x: Value, axis: int, sizes: Sequence[Any]) -> Value:
    lengths, place = x.lengths(), axis % x.rank
    return view(x, [*lengths[:place], *sizes, *lengths[place + 1 :]])


def permute(x: Value, axes: Sequence[int]) -> Value:
    """Return the tensor with its axes in another order; the two orders of images cost nothing."""
    order = [axis % x.rank for axis in axes]
    if x.channels_last and order == list(TO_LAST):
        return Value(x.held, floor=x.floor)
    if not x.channels_last and order == _FIRST and x.rank == 4:
        return Value(x.held, True, x.floor)
    return Value(transpose_tensor(x.held, [x.axis(axis) for axis in order]), floor=x.floor)


def transpose(x: Value, one: int, other: int) -> Value:
    """Return the tensor with two axes exchanged."""
    order = list(range(x.rank))
    one, other = one % x.rank, other % x.rank
    order[one], order[other] = other, one
    return permute(x, order)


def _apply_t(x: Value) -> Value:
    return x if x.rank < 2 else transpose(x, 0, 1)


def _apply_movedim(x: Value, source: Any, destination: Any) -> Value:
    sources, places = (
        [value] if isinstance(value, int) else value for value in (source, destination)
    )
    taken = {place % x.rank: axis % x.rank for axis, place in zip(sources, places, strict=True)}
    rest = iter(axis for axis in range(x.rank) if axis not in taken.values())
    return permute(x, [taken[place] if place in taken else next(rest) for place in range(x.rank)])


def unsqueeze(x: Value, axis: int) -> Value:
    """Return the tensor with a new axis of length 1."""
    import tensorflow as tf

    return Value(tf.expand_dims(x.first(), axis % (x.rank + 1)), floor=x.floor)


def _apply_squeeze(x: Value, axes: Any = None) -> Value:
    import tensorflow as tf

    given = range(x.rank) if axes is None else [axes] if isinstance(axes, int) else axes
    chosen = sorted({axis % max(x.rank, 1) for axis in given if x.rank and x.shape[axis] == 1})
    if x.channels_last and chosen == [2, 3]:
        return Value(tf.squeeze(x.held, [1, 2]), floor=x.floor)
    return Value(tf.squeeze(x.first(), chosen) if chosen else x.first(), floor=x.floor)


def expand(x: Value, size: Sequence[Any], *ignored: Any, **also: Any) -> Value:
    """Return the tensor repeated along axes of length 1; -1 keeps a length."""
    import tensorflow as tf

    missing = len(size) - x.rank
    here = [*([1] * missing), *x.lengths()]
    lengths = [
        have if isinstance(want, int) and want == -1 else want
        for have, want in zip(here, size, strict=True)
    ]
    if not missing and _is_same_shape(lengths, x.shape):
        return x
    if all(isinstance(have, int) and have == 1 for have in here) and x.rank == 0:
        return Value(tf.fill(build_shape_tensor(lengths), x.held), floor=x.floor)
    return Value(tf.broadcast_to(x.first(), build_shape_tensor(lengths)), floor=x.floor)


def _is_same_shape(lengths: Sequence[Any], shape: Sequence[int | None]) -> bool:
    """Return whether fixed lengths are those of a shape."""
    return all(isinstance(length, int) for length in lengths) and list(lengths) == list(shape)


def _apply_expand_as(x: Value, other: Value) -> Value:
    return expand(x, other.lengths())


def _apply_repeat(x: Value, times: Sequence[Any]) -> Value:
    import tensorflow as tf

    held = x.first()
    for _ in range(len(times) - x.rank):
        held = tf.expand_dims(held, 0)
    return Value(tf.tile(held, build_shape_tensor(times)), floor=x.floor)


def repeat_interleave(x: Value, times: Any, axis: int | None = None, **also: Any) -> Value:
    """Return each element of an axis several times."""
    if axis is None:
        x, axis = view(x, [-1]), 0
    place = axis % x.rank
    count = require_static_length(times, "repeat_interleave")
    lengths = x.lengths()
    wide = expand(unsqueeze(x, place + 1), [*lengths[: place + 1], count, *lengths[place + 1 :]])
    joined = lengths[place] * count
    return view(wide, [*lengths[:place], joined, *lengths[place + 1 :]])


def _apply_pixel_shuffle(x: Value, factor: int) -> Value:
    n, c, h, w = x.lengths()
    parts = view(x, [n, c // factor**2, factor, factor, h, w])
    return view(permute(parts, [0, 1, 4, 2, 5, 3]), [n, c // factor**2, h * factor, w * factor])


def _apply_pixel_unshuffle(x: Value, factor: int) -> Value:
    n, c, h, w = x.lengths()
    parts = view(x, [n, c, h // factor, factor, w // factor, factor])
    return view(permute(parts, [0, 1, 3, 5, 2, 4]), [n, c * factor**2, h // factor, w // factor])


def _apply_channel_shuffle(x: Value, groups: int) -> Value:
    n, c, *rest = x.lengths()
    return view(transpose(view(x, [n, groups, c // groups, *rest]), 1, 2), [n, c, *rest])


def _as_strided(
    x: Value, size: Sequence[Any], stride: Sequence[Any], offset: int | None = None
) -> Value:
    """Return a view of a tensor in PyTorch's plain memory layout; the program's walk refuses
    others.
    """
    import tensorflow as tf

    if all(isinstance(length, int) for length in x.shape):
        sizes = [require_static_length(length, "as_strided") for length in size]
        grid = np.indices(sizes, sparse=True)
        places = sum(
            (axis * step for axis, step in zip(grid, stride, strict=True)), np.array(offset or 0)
        )
        count = math.prod(int(length or 0) for length in x.shape)
        if np.array_equal(places.ravel(), np.arange(count)):
            return view(x, sizes)
        flat = tf.reshape(x.first(), [-1])
        return Value(
            tf.gather(flat, np.broadcast_to(places, sizes).astype(np.int32)), floor=x.floor
        )
    # With a free length, only the same elements in another shape.
    steps, expected = list(stride), 1
    for length, step in zip(reversed(list(size)), reversed(steps), strict=True):
        if not isinstance(length, int) and length is not size[0]:
            raise CompileError("as_strided with a free length is not translated")
        if isinstance(step, int) and step != expected:
            raise CompileError("as_strided with a free length is not translated")
        expected = expected * length if isinstance(length, int) else expected
    if offset:
        raise CompileError("as_strided with a free length is not translated")
    return view(x, [-1, *size[1:]])


def _apply_diagonal(x: Value, offset: int = 0, one: int = 0, other: int = 1) -> Value:
    import tensorflow as tf

    rest = [axis for axis in range(x.rank) if axis not in (one % x.rank, other % x.rank)]
    held = transpose_tensor(x.first(), [*rest, one % x.rank, other % x.rank])
    rows, columns = (require_static_length(length, "diagonal") for length in held.shape[-2:])
    places = [r * columns + r + offset for r in range(rows) if 0 <= r + offset < columns]
    flat = view(Value(held), [*Value(held).lengths()[:-2], rows * columns])
    return Value(tf.gather(flat.held, np.array(places, np.int32), axis=-1))


def _make_triangle(upper: bool) -> Callable[..., Value]:
    def apply(x: Value, diagonal: int = 0) -> Value:
        import tensorflow as tf

        rows, columns = (require_static_length(length, "tril and triu") for length in x.shape[-2:])
        ones = np.ones((rows, columns), bool)
        kept = np.triu(ones, diagonal) if upper else np.tril(ones, diagonal)
        held = x.first()
        return Value(tf.where(kept, held, tf.zeros((), held.dtype)), floor=x.floor)

    return apply


def _apply_unfold(x: Value, axis: int, size: int, step: int) -> Value:
    """Return the windows of an axis, each along a new last axis."""
    import tensorflow as tf

    place, length = axis % x.rank, require_static_length(x.shape[axis], "unfold")
    places = np.arange(0, length - size + 1, step)[:, None] + np.arange(size)
    found = tf.gather(x.first(), places.astype(np.int32), axis=place)
    return Value(
        transpose_tensor(found, [*range(place + 1), *range(place + 2, x.rank + 1), place + 1]),
        floor=x.floor,
    )


def _apply_im2col(x: Value, size: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    """Return the windows of an image as columns."""
    import tensorflow as tf

    held = x.first()
    if any(padding):
        held = tf.pad(held, [[0, 0], [0, 0], *([p, p] for p in padding)])
    for axis, k, d, s in zip((2, 4), size, dilation, stride, strict=True):
        length = require_static_length(held.shape[axis], "unfold")
        starts = np.arange(0, length - d * (k - 1), s)
        held = tf.gather(held, (np.arange(k)[:, None] * d + starts).astype(np.int32), axis=axis)
    n, c, k0, rows, k1, columns = Value(held).lengths()
    return view(
        permute(Value(held, floor=x.floor), [0, 1, 2, 4, 3, 5]), [n, c * k0 * k1, rows * columns]
    )


def _apply_col2im(
    x: Value, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any
) -> Value:
    """Return the image of columns that do not overlap."""
    if (
        list(kernel) != list(stride)
        or any(padding)
        or any(n % k for n, k in zip(size, kernel, strict=True))
    ):
        raise CompileError("fold with windows that overlap or are padded is not translated")
    (rows, columns), (k0, k1) = size, kernel
    n, c = x.length(0), require_static_length(x.shape[1], "fold") // (k0 * k1)
    parts = view(x, [n, c, k0, k1, rows // k0, columns // k1])
    return view(permute(parts, [0, 1, 4, 2, 5, 3]), [n, c, rows, columns])


def build_operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch."""
    return {
        "view": view,
        "reshape": view,
        "_unsafe_view": view,
        "_reshape_alias": view,
        "view_copy": view,
        "view_as": lambda x, other: view(x, other.lengths()),
        "reshape_as": lambda x, other: view(x, other.lengths()),
        "flatten": _apply_flatten,
        "unflatten": _apply_unflatten,
        "permute": permute,
        "permute_copy": permute,
        "transpose": transpose,
        "swapaxes": transpose,
        "t": _apply_t,
        "numpy_T": _apply_t,
        "movedim": _apply_movedim,
        "mT": lambda x: transpose(x, -1, -2),
        "unsqueeze": unsqueeze,
        "squeeze": _apply_squeeze,
        "expand": expand,
        "expand_as": _apply_expand_as,
        "repeat": _apply_repeat,
        "tile": _apply_repeat,
        "repeat_interleave": repeat_interleave,
        "pixel_shuffle": _apply_pixel_shuffle,
        "pixel_unshuffle": _apply_pixel_unshuffle,
        "channel_shuffle": _apply_channel_shuffle,
        "native_channel_shuffle": _apply_channel_shuffle,
        "as_strided": _as_strided,
        "diagonal": _apply_diagonal,
        "unfold": _apply_unfold,
        "im2col": _apply_im2col,
        "col2im": _apply_col2im,
        "tril": _make_triangle(False),
        "triu": _make_triangle(True),
        "copy": lambda x, y, *ignored: expand(
            Value(cast(y.held, x.dtype), y.channels_last), x.lengths()
        ),
    }


def _choose_type(value: Any, dtype: Any) -> str:
    if dtype is not None:
        return get_type_name(dtype)
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


def _apply_full(size: Sequence[Any], value: Any, dtype: Any = None, **also: Any) -> Value:
    import tensorflow as tf

    kind = _choose_type(value, dtype)
    held = cast(value.held if isinstance(value, Value) else value, kind)
    if isinstance(held, (bool, int, float)):
        held = np.array(held, kind)
    return Value(tf.fill(build_shape_tensor(size), held))


def _make_like(number: Any) -> Callable[..., Value]:
    def apply(x: Value, *given: Any, dtype: Any = None, **also: Any) -> Value:
        value = given[0] if number is None else number
        kind = x.dtype if dtype is None else get_type_name(dtype)
        if None not in x.shape:
            return Value(np.full(x.shape, cast(value, kind), kind))
        return _apply_full(x.lengths(), cast(value, kind), kind)

    return apply


def _make_filled(number: Any) -> Callable[..., Value]:
    def apply(size: Sequence[Any], dtype: Any = None, **also: Any) -> Value:
        return _apply_full(size, number, dtype if dtype is not None else "float32")

    return apply


def _make_new(number: Any) -> Callable[..., Value]:
    def apply(x: Value, size: Sequence[Any], *given: Any, dtype: Any = None, **also: Any) -> Value:
        value = given[0] if number is None else number
        return _apply_full(size, value, x.dtype if dtype is None else dtype)

    return apply


def _apply_arange(*given: Any, dtype: Any = None, **also: Any) -> Value:
    import tensorflow as tf

    start, end, step = (0, given[0], 1) if len(given) == 1 else (*given, 1)[:3]
    real = any(isinstance(value, float) for value in (start, end, step))
    kind = get_type_name(dtype) if dtype is not None else "float32" if real else "int64"
    if all(isinstance(value, (int, float)) for value in (start, end, step)):
        return Value(np.arange(start, end, step).astype(kind))
    held = tf.range(*(tf.cast(value, tf.int32) for value in (start, end, step)))
    return Value(tf.cast(held, kind))


def _make_scalar(value: Any, dtype: Any = None, **also: Any) -> Value:
    import tensorflow as tf

    kind = _choose_type(value, dtype)
    if isinstance(value, (bool, int, float)):
        return Value(np.array(value, kind))
    return Value(tf.cast(value, kind))


def _apply_eye(rows: Any, columns: Any = None, dtype: Any = None, **also: Any) -> Value:
    columns = rows if isinstance(columns, (type(None), bool)) else columns
    return Value(
        np.eye(
            require_static_length(rows, "eye"),
            require_static_length(columns, "eye"),
            dtype=get_type_name(dtype or "float32"),
        )
    )


def build_creation_operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch."""
    return {
        "full": _apply_full,
        "full_like": _make_like(None),
        "zeros_like": _make_like(0),
        "ones_like": _make_like(1),
        "empty_like": _make_like(0),
        "zeros": _make_filled(0),
        "ones": _make_filled(1),
        "empty": _make_filled(0),
        "new_full": _make_new(None),
        "new_zeros": _make_new(0),
        "new_ones": _make_new(1),
        "new_empty": _make_new(0),
        "fill": _make_like(None),
        "arange": _apply_arange,
        "scalar_tensor": _make_scalar,
        "eye": _apply_eye,
    }
