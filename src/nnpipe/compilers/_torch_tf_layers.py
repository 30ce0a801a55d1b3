"""PyTorch's layers in TensorFlow: convolutions, pooling, normalisation, dense layers.

The functions have the names and arguments of PyTorch's operators.
Images have channels last; see :mod:`nnpipe.compilers._torch_tf_values`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnpipe.compilers._torch_tf_values import Value
from nnpipe.core.errors import CompileError

_Pair = tuple[int, int]


def conv2d(
    x: Value, weight: Value, bias: Value | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Value:  # fmt: skip
    """Return a 2D convolution; weights are ``(out, in / groups, rows, columns)``."""
    import tensorflow as tf

    kernel = constant(weight, "conv2d")
    strides, dilations, size = pair(stride), pair(dilation), kernel.shape[2:]
    if isinstance(padding, str):
        reach = [d * (k - 1) for k, d in zip(size, dilations, strict=True)]
        padding = (0, 0) if padding == "valid" else [length // 2 for length in reach]
        if any(length % 2 for length in reach) and any(padding):
            raise CompileError("conv2d with padding 'same' and an even kernel is not translated")
    held, mode = _padded(x.last(), pair(padding), size, strides, dilations)
    channels = x.shape[1]
    if groups == 1:
        found = tf.nn.conv2d(held, kernel.transpose(2, 3, 1, 0), strides, mode, dilations=dilations)
    elif groups == channels and strides[0] == strides[1] and (1 in strides or max(dilations) == 1):
        # PyTorch orders outputs by input channel; TensorFlow has a separate axis for them.
        depthwise = kernel.reshape(channels, -1, *size).transpose(2, 3, 0, 1)
        found = tf.nn.depthwise_conv2d(held, depthwise, [1, *strides, 1], mode, dilations=dilations)
    else:
        parts = zip(tf.split(held, groups, -1), np.split(kernel, groups), strict=True)
        found = tf.concat(
            [tf.nn.conv2d(p, k.transpose(2, 3, 1, 0), strides, mode, dilations=dilations) for p, k in parts], -1
        )
    if bias is not None:
        found = tf.nn.bias_add(found, constant(bias, "conv2d"))
    return Value(found, True)


def conv1d(
    x: Value, weight: Value, bias: Value | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Value:  # fmt: skip
    """Return a 1D convolution, computed as that of an image with one row."""
    import tensorflow as tf

    def row(value: Any, across: int) -> Any:
        return value if isinstance(value, str) else (across, value if isinstance(value, int) else value[0])

    image = Value(tf.expand_dims(x.first(), 2))
    kernel = Value(constant(weight, "conv1d")[:, :, None])
    found = conv2d(image, kernel, bias, row(stride, 1), row(padding, 0), row(dilation, 1), groups)
    return Value(tf.squeeze(found.first(), 2))


def convolution(
    x: Value, weight: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Value:  # fmt: skip
    """Return a 1D or 2D convolution, as decomposed programs call it."""
    if transposed or weight.rank not in (3, 4):
        raise CompileError("convolution that is transposed, or of more than two axes, is not translated")
    return (conv1d if weight.rank == 3 else conv2d)(x, weight, bias, stride, padding, dilation, groups)


def _padded(held: Any, padding: _Pair, size: _Pair, strides: _Pair, dilations: _Pair) -> tuple[Any, str]:
    """Return the padded tensor and the padding mode for TensorFlow."""
    import tensorflow as tf

    if not any(padding):
        return held, "VALID"
    # With a stride of 1, both frameworks pad equally before and after.
    if strides == (1, 1) and all(d * (k - 1) == 2 * p for p, k, d in zip(padding, size, dilations, strict=True)):
        return held, "SAME"
    return tf.pad(held, [[0, 0], *([p, p] for p in padding), [0, 0]]), "VALID"


def batch_norm(
    x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value, training: bool, momentum: float,
    eps: float, cudnn: bool = False,
) -> Value:  # fmt: skip
    """Return the values normalised by the training statistics; the converter folds this into the convolution before."""
    import tensorflow as tf

    if training:
        raise CompileError("batch_norm in training is not translated; export the model for inference")
    centre, spread = constant(mean, "batch_norm"), constant(variance, "batch_norm").astype(np.float64)
    factor = 1 / np.sqrt(spread + eps)
    if weight is not None:
        factor = factor * constant(weight, "batch_norm")
    shift = -centre * factor + (0 if bias is None else constant(bias, "batch_norm"))
    factor, shift = factor.astype(centre.dtype), shift.astype(centre.dtype)
    if x.rank == 4:
        return Value(tf.nn.bias_add(x.last() * factor, shift), True)
    rest = (1,) * max(x.rank - 2, 0)
    return Value(x.first() * factor.reshape(-1, *rest) + shift.reshape(-1, *rest))


def max_pool2d(x: Value, size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False) -> Value:
    """Return the maximum of each window."""
    import tensorflow as tf

    window, borders = pair(size), pair(padding)
    strides = pair(stride) if stride else window
    if pair(dilation) != (1, 1):
        raise CompileError("max_pool2d with dilation is not translated")
    _refuse_ceil("max_pool2d", x, window, strides, borders, ceil)
    held = x.last()
    if any(borders):
        # Windows extend past the border by half their size at most, so they already contain the mirrored elements.
        # Padding with the lowest number would also work, but widen the range of a quantised tensor.
        mode = "CONSTANT" if x.floor else "SYMMETRIC"
        held = tf.pad(held, [[0, 0], *([p, p] for p in borders), [0, 0]], mode)
    return Value(tf.nn.max_pool2d(held, window, strides, "VALID"), True, x.floor)


def avg_pool2d(
    x: Value, size: Any, stride: Any = (), padding: Any = 0, ceil: bool = False, count_padding: bool = True,
    divisor: int | None = None,
) -> Value:  # fmt: skip
    """Return the mean of each window."""
    import tensorflow as tf

    window, borders = pair(size), pair(padding)
    strides = pair(stride) if stride else window
    _refuse_ceil("avg_pool2d", x, window, strides, borders, ceil)
    held = x.last()
    pads = [[0, 0], *([p, p] for p in borders), [0, 0]]
    if any(borders):
        held = tf.pad(held, pads)
    found = tf.nn.avg_pool2d(held, window, strides, "VALID")
    if divisor is not None:
        found = found * (window[0] * window[1] / divisor)
    elif any(borders) and not count_padding:
        found = found / _covered(x.shape[2:], pads, window, strides)
    return Value(found, True, x.floor)


def _covered(lengths: Sequence[int | None], pads: list[Any], window: _Pair, strides: _Pair) -> np.ndarray:
    """Return the fraction of each window inside the image."""
    if None in lengths:
        raise CompileError("avg_pool2d that leaves its padding out needs images of one size")
    ones = np.pad(np.ones((1, *(length or 0 for length in lengths), 1), np.float32), pads)
    views = np.lib.stride_tricks.sliding_window_view(ones, window, (1, 2))[:, :: strides[0], :: strides[1]]
    found: np.ndarray = views.mean((-2, -1))
    return found


def _refuse_ceil(name: str, x: Value, window: _Pair, strides: _Pair, borders: _Pair, ceil: bool) -> None:
    """Raise ``CompileError`` for ``ceil_mode``, unless it has no effect."""
    for length, k, s, p in zip(x.shape[2:], window, strides, borders, strict=True):
        if ceil and (length is None or (length + 2 * p - k) % s):
            raise CompileError(f"{name} with ceil_mode is not translated")


def adaptive_avg_pool2d(x: Value, size: Any) -> Value:
    """Return the means over parts of equal size."""
    import tensorflow as tf

    wanted = pair(size)
    if wanted == (1, 1):
        return Value(tf.reduce_mean(x.last(), [1, 2], keepdims=True), True, x.floor)
    lengths = x.shape[2:]
    if any(have is None or have % want for have, want in zip(lengths, wanted, strict=True)):
        raise CompileError("adaptive_avg_pool2d to parts of unequal size is not translated")
    window = tuple(int(have or 0) // want for have, want in zip(lengths, wanted, strict=True))
    return Value(tf.nn.avg_pool2d(x.last(), window, window, "VALID"), True, x.floor)


def linear(x: Value, weight: Value, bias: Value | None = None) -> Value:
    """Return the product of the last axis with a matrix ``(out, in)``, plus the bias."""
    import tensorflow as tf

    matrix = weight.first()
    held = x.first()
    flat = x.rank == 2
    found = tf.matmul(held, matrix, transpose_b=True) if flat else tf.tensordot(held, matrix, [[-1], [1]])
    return Value(found if bias is None else found + bias.first())


def constant(value: Value, name: str) -> Any:
    """Return a weight as an array; raise ``CompileError`` if it is computed."""
    if not isinstance(value.held, np.ndarray):
        raise CompileError(f"{name} with weights that are computed is not translated")
    return value.held


def pair(value: Any) -> _Pair:
    """Return one number, or a list of one or two numbers, as a pair."""
    numbers = [value] if isinstance(value, int) else list(value)
    return int(numbers[0]), int(numbers[-1])
