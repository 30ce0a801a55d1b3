"""Pooling of images and sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.compilers._torch_tf.shapes import view
from nnpipe.compilers._torch_tf.values import Value, require_static_length
from nnpipe.core.errors import CompileError

_Pair = tuple[int, int]


def max_pool2d(
    x: Value, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Value:
    """Return the maximum of each window."""
    import tensorflow as tf

    if x.rank == 3:
        return apply_without_batch(max_pool2d, x, size, stride, padding, dilation, ceil)
    window, borders = make_pair(size), make_pair(padding)
    strides = make_pair(stride) if stride else window
    if make_pair(dilation) != (1, 1):
        raise CompileError("max_pool2d with dilation is not translated")
    held = x.last()
    pads = _compute_borders("max_pool2d", x, window, strides, borders, ceil)
    if any(map(any, pads)):
        # Windows begin inside the image or its border, so they contain the elements at the edge
        # already. Padding with the lowest number would also work, but widen the range of a
        # quantised tensor.
        if x.floor:
            held = tf.pad(held, [(0, 0), *pads, (0, 0)])
        elif all(p <= k // 2 and q <= k // 2 for (p, q), k in zip(pads, window, strict=True)):
            held = tf.pad(held, [(0, 0), *pads, (0, 0)], "SYMMETRIC")
        else:
            for axis, around in enumerate(pads, 1):
                length = int(held.shape[axis] or 0)
                if any(around) and not length:
                    raise CompileError("max_pool2d with ceil_mode needs images of one size")
                if any(around):
                    held = tf.gather(
                        held, np.pad(np.arange(length, dtype=np.int32), around, "edge"), axis=axis
                    )
    return Value(tf.nn.max_pool2d(held, window, strides, "VALID"), True, x.floor)


def avg_pool2d(
    x: Value,
    size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    count_padding: bool = True,
    divisor: int | None = None,
) -> Value:
    """Return the mean of each window."""
    import tensorflow as tf

    if x.rank == 3:
        return apply_without_batch(
            avg_pool2d, x, size, stride, padding, ceil, count_padding, divisor
        )
    window, borders = make_pair(size), make_pair(padding)
    strides = make_pair(stride) if stride else window
    sides = x.shape[2:]
    if (
        divisor is None
        and not any(borders)
        and all(n is not None and k >= n for k, n in zip(window, sides, strict=True))
    ):
        # a window far larger than the image would be padded to its size
        return adaptive_avg_pool2d(x, 1)
    held = x.last()
    pads = _compute_borders("avg_pool2d", x, window, strides, borders, ceil)
    if any(map(any, pads)):
        held = tf.pad(held, [(0, 0), *pads, (0, 0)])
    found = tf.nn.avg_pool2d(held, window, strides, "VALID")
    if divisor is not None:
        found = found * (window[0] * window[1] / divisor)
    elif any(map(any, pads)) and (not count_padding or any(p != q for p, q in pads)):
        found = found * _compute_border_factors(
            x.shape[2:], pads, window, strides, borders, ceil, count_padding
        )
    return Value(found, True, x.floor)


def _compute_border_factors(
    lengths: Sequence[int | None],
    pads: Sequence[_Pair],
    window: _Pair,
    strides: _Pair,
    borders: _Pair,
    ceil: bool,
    count_padding: bool,
) -> np.ndarray:
    """Return what the mean over whole windows must be multiplied by to be PyTorch's: 1 where
    they are inside.
    """
    import torch

    if None in lengths:
        raise CompileError("avg_pool2d that leaves its padding out needs images of one size")
    image = np.ones((1, 1, *(length or 0 for length in lengths)), np.float32)
    padded = np.pad(image, [(0, 0), (0, 0), *pads])
    views = np.lib.stride_tricks.sliding_window_view(padded[0, 0], window)[
        :: strides[0], :: strides[1]
    ]
    wanted = torch.nn.functional.avg_pool2d(
        torch.from_numpy(image), window, strides, borders, ceil, count_padding
    )
    found: np.ndarray = (
        wanted.numpy()[0, 0][None, :, :, None] / views.mean((-2, -1))[None, :, :, None]
    )
    return found


def _compute_borders(
    name: str, x: Value, window: _Pair, strides: _Pair, borders: _Pair, ceil: bool
) -> list[_Pair]:
    """Return the padding before and after rows and columns, with what ``ceil_mode`` adds."""
    found = []
    for length, k, s, p in zip(x.shape[2:], window, strides, borders, strict=True):
        extra = 0
        if ceil:
            if length is None:
                raise CompileError(f"{name} with ceil_mode needs images of one size")
            count = -(-(length + 2 * p - k) // s) + 1
            if (count - 1) * s >= length + p:  # the last window would begin outside
                count -= 1
            extra = max((count - 1) * s + k - length - 2 * p, 0)
        found.append((p, p + extra))
    return found


def adaptive_avg_pool2d(x: Value, size: Any) -> Value:
    """Return the means over parts, which may overlap where the length cannot be divided."""
    import tensorflow as tf

    if x.rank == 3:
        return apply_without_batch(adaptive_avg_pool2d, x, size)
    wanted = tuple(
        have if want is None else want
        for want, have in zip(_get_two_numbers(size), x.shape[2:], strict=True)
    )
    if wanted == (1, 1):
        return Value(tf.reduce_mean(x.last(), [1, 2], keepdims=True), True, x.floor)
    window = _find_equal_parts(x.shape[2:], wanted)
    if window:
        return Value(tf.nn.avg_pool2d(x.last(), window, window, "VALID"), True, x.floor)
    return _reduce_parts(x, wanted, "reduce_mean")


def adaptive_max_pool2d(x: Value, size: Any) -> tuple[Value, None]:
    """Return the maxima over parts; where they were is not translated."""
    import tensorflow as tf

    wanted = make_pair(size)
    window = _find_equal_parts(x.shape[2:], wanted)
    if wanted == (1, 1):
        return Value(tf.reduce_max(x.last(), [1, 2], keepdims=True), True, x.floor), None
    if window:
        return Value(tf.nn.max_pool2d(x.last(), window, window, "VALID"), True, x.floor), None
    return _reduce_parts(x, wanted, "reduce_max"), None


def _find_equal_parts(lengths: Sequence[int | None], wanted: Sequence[Any]) -> _Pair | None:
    if any(have is None or have % want for have, want in zip(lengths, wanted, strict=True)):
        return None
    first, second = (int(have or 0) // want for have, want in zip(lengths, wanted, strict=True))
    return first, second


def _reduce_parts(x: Value, wanted: Sequence[Any], reduce: str) -> Value:
    """Return the reduction of each part, first along the rows, then along the columns."""
    import tensorflow as tf

    held = x.last()
    for axis, (length, count) in enumerate(zip(x.shape[2:], wanted, strict=True), 1):
        if length is None:
            raise CompileError("adaptive pooling to parts of unequal size needs images of one size")
        ends = [(at * length // count, -(-(at + 1) * length // count)) for at in range(count)]
        parts = [
            getattr(tf, reduce)(held[(slice(None),) * axis + (slice(*end),)], axis, keepdims=True)
            for end in ends
        ]
        held = tf.concat(parts, axis)
    return Value(held, True, x.floor)


def apply_without_batch(function: Callable[..., Value], x: Value, *given: Any) -> Value:
    """Return the result of an operator of batches of images for a single image."""
    import tensorflow as tf

    found = function(Value(tf.expand_dims(x.first(), 0), floor=x.floor), *given)
    return Value(tf.squeeze(found.first(), 0), floor=x.floor)


def _make_sequence_operator(
    function: Callable[..., Any], numbers: int, ones: Sequence[int]
) -> Callable[..., Any]:
    """Return the operator for sequences; the first ``numbers`` arguments become pairs with
    ``ones`` for the rows.
    """

    def apply(x: Value, *given: Any) -> Any:
        import tensorflow as tf

        def add_row(value: Any, across: int) -> Any:
            if value is None or value == []:
                return ()
            return across, value if isinstance(value, int) else value[0]

        pairs = [add_row(value, one) for value, one in zip(given[:numbers], ones, strict=False)]
        found = function(
            Value(tf.expand_dims(x.first(), x.rank - 1), floor=x.floor), *pairs, *given[numbers:]
        )
        if isinstance(found, tuple):
            return Value(tf.squeeze(found[0].first(), x.rank - 1), floor=x.floor), None
        return Value(tf.squeeze(found.first(), x.rank - 1), floor=x.floor)

    return apply


def _make_volume_operator(function: Callable[..., Value], numbers: int) -> Callable[..., Value]:
    """Return the operator for volumes, which takes the depth and then the images; both means and
    maxima allow that.
    """

    def apply(x: Value, *given: Any) -> Value:
        if x.rank != 5:
            raise CompileError("pooling of one volume without a batch is not translated")
        triples = [
            [value] * 3 if isinstance(value, int) else list(value) for value in given[:numbers]
        ]
        rest = given[numbers:]
        n, c, depth, rows, columns = x.lengths()
        deep = [
            [value[0], 0 if place == 2 else 1] if value else []
            for place, value in enumerate(triples)
        ]
        flat = [value[1:] for value in triples]
        found = function(view(x, [n, c, depth, rows * columns]), *deep, *rest)
        depth = found.length(2)
        found = function(view(found, [n, c * depth, rows, columns]), *flat, *rest)
        return view(found, [n, c, depth, *found.lengths()[2:]])

    return apply


def make_pair(value: Any) -> _Pair:
    """Return one number, or a list of one or two numbers, as a pair."""
    numbers = [value] if isinstance(value, int) else list(value)
    return int(numbers[0]), int(numbers[-1])


def _get_two_numbers(value: Any) -> tuple[Any, Any]:
    numbers = [value] if isinstance(value, int) else list(value)
    return numbers[0], numbers[-1]


def build_operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch."""
    return {
        "max_pool2d": max_pool2d,
        "max_pool2d_with_indices": lambda *given: (max_pool2d(*given), None),
        "avg_pool2d": avg_pool2d,
        "adaptive_avg_pool2d": adaptive_avg_pool2d,
        "_adaptive_avg_pool2d": adaptive_avg_pool2d,
        "adaptive_max_pool2d": adaptive_max_pool2d,
        "max_pool1d": _make_sequence_operator(max_pool2d, 4, (1, 1, 0, 1)),
        "avg_pool1d": _make_sequence_operator(avg_pool2d, 3, (1, 1, 0)),
        "max_pool1d_with_indices": lambda *given: (
            _make_sequence_operator(max_pool2d, 4, (1, 1, 0, 1))(*given),
            None,
        ),
        "max_pool3d": _make_volume_operator(max_pool2d, 4),
        "avg_pool3d": _make_volume_operator(avg_pool2d, 3),
        "max_pool3d_with_indices": lambda *given: (
            _make_volume_operator(max_pool2d, 4)(*given),
            None,
        ),
        "adaptive_avg_pool1d": _make_sequence_operator(adaptive_avg_pool2d, 1, (1,)),
        "adaptive_max_pool1d": _make_sequence_operator(adaptive_max_pool2d, 1, (1,)),
    }


def _compute_lengths(x: Value, size: Any, factors: Sequence[float | None]) -> list[int]:
    """Return the lengths after resizing."""
    lengths = x.shape[2:]
    if size is not None:
        return [require_static_length(length, "resizing") for length in size]
    return [
        int(require_static_length(have, "resizing") * float(f or 1))
        for have, f in zip(lengths, factors, strict=True)
    ]


def _has_plain_factors(x: Value, wanted: Sequence[int], factors: Sequence[float | None]) -> bool:
    """Return whether the factor between positions is that of the lengths, which is what
    TensorFlow takes.
    """
    lengths = x.shape[2:]
    return all(
        not factor or (have is not None and abs(want / have - factor) < 1e-9)
        for have, want, factor in zip(lengths, wanted, factors, strict=True)
    )


def _read_factors(given: Sequence[Any], axes: int) -> tuple[Any, list[float | None]]:
    """Return size and factors; the overload ``vec`` has a list of factors, the other one for
    each axis.
    """
    if len(given) == 1 and isinstance(given[0], (list, tuple)):
        return None, list(given[0])
    return None, list(given) if len(given) == axes else [None] * axes


def _apply_bilinear(x: Value, size: Any, corners: bool, *given: Any) -> Value:
    import tensorflow as tf

    _, factors = _read_factors(given, 2)
    wanted = _compute_lengths(x, size, factors)
    if list(x.shape[2:]) == wanted:
        return x
    if not corners and not _has_plain_factors(x, wanted, factors):
        return _resize_by_matrices(x, wanted, "bilinear", corners, factors)
    found = tf.raw_ops.ResizeBilinear(
        images=x.last(), size=wanted, align_corners=corners, half_pixel_centers=not corners
    )
    return Value(found, True, x.floor)


def _apply_bicubic(x: Value, size: Any, corners: bool, *given: Any) -> Value:
    _, factors = _read_factors(given, 2)
    return _resize_by_matrices(x, _compute_lengths(x, size, factors), "bicubic", corners, factors)


def _apply_linear_resize(x: Value, size: Any, corners: bool, *given: Any) -> Value:
    import tensorflow as tf

    _, factors = _read_factors(given, 1)
    (length,) = _compute_lengths(x, size, factors)
    matrix = _compute_resize_matrix(
        require_static_length(x.shape[2], "resizing"), length, "linear", corners, factors[0]
    )
    return Value(tf.tensordot(x.first(), matrix, [[-1], [1]]), floor=x.floor)


def _resize_by_matrices(
    x: Value, wanted: Sequence[int], mode: str, corners: bool, factors: Sequence[float | None]
) -> Value:
    """Return the image resized by one matrix for the rows and one for the columns."""
    import tensorflow as tf

    rows, columns = (
        _compute_resize_matrix(
            require_static_length(have, "resizing"),
            want,
            {"bilinear": "linear"}.get(mode, mode),
            corners,
            factor,
        )
        for have, want, factor in zip(x.shape[2:], wanted, factors, strict=True)
    )
    held = tf.tensordot(x.first(), columns, [[-1], [1]])
    return Value(tf.matmul(rows, held), floor=x.floor and mode != "bicubic")


def _compute_resize_matrix(
    have: int, want: int, mode: str, corners: bool, factor: float | None
) -> np.ndarray:
    """Return the matrix that resizes one axis, by resizing each unit vector in PyTorch."""
    import torch

    units = torch.eye(have)[:, None]
    how: dict[str, Any] = (
        {"scale_factor": factor, "recompute_scale_factor": False} if factor else {"size": want}
    )
    if mode == "bicubic":
        how = (
            {"scale_factor": (1.0, factor), "recompute_scale_factor": False}
            if factor
            else {"size": (1, want)}
        )
        found = torch.nn.functional.interpolate(
            units[:, None], mode=mode, align_corners=corners, **how
        )[:, 0]
    else:
        found = torch.nn.functional.interpolate(units, mode=mode, align_corners=corners, **how)
    matrix: np.ndarray = found[:, 0].T.contiguous().numpy()
    return matrix


def _make_nearest(mode: str, axes: int) -> Callable[..., Value]:
    def apply(x: Value, size: Any, *given: Any) -> Value:
        import tensorflow as tf
        import torch

        _, factors = _read_factors(given, axes)
        wanted = _compute_lengths(x, size, factors)
        if axes == 2 and mode == "nearest" and _has_plain_factors(x, wanted, factors):
            found = tf.raw_ops.ResizeNearestNeighbor(
                images=x.last(), size=wanted, align_corners=False, half_pixel_centers=False
            )
            return Value(found, True, x.floor)
        held = x.held
        for axis, (want, factor) in enumerate(zip(wanted, factors, strict=True), 2):
            length = require_static_length(x.shape[axis], "resizing")
            places = torch.arange(length, dtype=torch.float32)[None, None]
            how = (
                {"scale_factor": factor, "recompute_scale_factor": False}
                if factor
                else {"size": want}
            )
            chosen = torch.nn.functional.interpolate(places, mode=mode, **how)[0, 0]
            held = tf.gather(held, chosen.numpy().astype(np.int32), axis=x.axis(axis))
        return Value(held, x.channels_last, x.floor)

    return apply


def build_resizing_operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch."""
    return {
        "upsample_bilinear2d": _apply_bilinear,
        "upsample_bicubic2d": _apply_bicubic,
        "upsample_linear1d": _apply_linear_resize,
        "upsample_nearest1d": _make_nearest("nearest", 1),
        "upsample_nearest2d": _make_nearest("nearest", 2),
        "upsample_nearest3d": _make_nearest("nearest", 3),
        "_upsample_nearest_exact1d": _make_nearest("nearest-exact", 1),
        "_upsample_nearest_exact2d": _make_nearest("nearest-exact", 2),
    }
