"""Convolutions; images have channels last, see :mod:`nnpipe.compilers._torch_tf.values`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.compilers._torch_tf.pooling import apply_without_batch, make_pair
from nnpipe.compilers._torch_tf.values import (
    Value,
    build_shape_tensor,
    require_constant,
    require_static_length,
    transpose_tensor,
)
from nnpipe.core.errors import CompileError

_Pair = tuple[int, int]


def conv2d(
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    """Return a 2D convolution; weights are ``(out, in / groups, rows, columns)``."""
    import tensorflow as tf

    if x.rank == 3:
        return apply_without_batch(conv2d, x, weight, bias, stride, padding, dilation, groups)
    kernel = require_constant(weight, "conv2d")
    strides, dilations, size = make_pair(stride), make_pair(dilation), kernel.shape[2:]
    if isinstance(padding, str):
        # both frameworks put what cannot be halved after the image
        held, mode = x.last(), padding.upper()
    else:
        held, mode = _resolve_padding(x.last(), make_pair(padding), size, strides, dilations)
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
            [
                tf.nn.conv2d(p, k.transpose(2, 3, 1, 0), strides, mode, dilations=dilations)
                for p, k in parts
            ],
            -1,
        )
    if bias is not None:
        found = tf.nn.bias_add(found, require_constant(bias, "conv2d"))
    return Value(found, True)


def conv1d(
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    """Return a 1D convolution, computed as that of an image with one row."""
    import tensorflow as tf

    def add_row(value: Any, across: int) -> Any:
        return (
            value
            if isinstance(value, str)
            else (across, value if isinstance(value, int) else value[0])
        )

    image = Value(tf.expand_dims(x.first(), x.rank - 1))
    kernel = Value(require_constant(weight, "conv1d")[:, :, None])
    found = conv2d(
        image, kernel, bias, add_row(stride, 1), add_row(padding, 0), add_row(dilation, 1), groups
    )
    return Value(tf.squeeze(found.first(), x.rank - 1))


def _apply_conv3d(
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    import tensorflow as tf

    strides, pads, dilations = (_make_triple(value) for value in (stride, padding, dilation))
    if groups != 1 or max(dilations) > 1:
        raise CompileError("conv3d in groups or with dilation is not translated")
    held = transpose_tensor(x.first(), (0, 2, 3, 4, 1))
    if any(pads):
        held = tf.pad(held, [[0, 0], *([p, p] for p in pads), [0, 0]])
    kernel = require_constant(weight, "conv3d").transpose(2, 3, 4, 1, 0)
    found = tf.nn.conv3d(held, kernel, [1, *strides, 1], "VALID")
    if bias is not None:
        found = found + require_constant(bias, "conv3d")
    return Value(transpose_tensor(found, (0, 4, 1, 2, 3)))


def _apply_conv_transpose2d(
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Value:
    """Return a transposed 2D convolution; weights are ``(in, out / groups, rows, columns)``."""
    import tensorflow as tf

    if x.rank == 3:
        return apply_without_batch(
            _apply_conv_transpose2d,
            x,
            weight,
            bias,
            stride,
            padding,
            output_padding,
            groups,
            dilation,
        )
    kernel = _dilate_kernel(require_constant(weight, "conv_transpose2d"), make_pair(dilation))
    strides, pads, extra = make_pair(stride), make_pair(padding), make_pair(output_padding)
    lengths = [require_static_length(length, "conv_transpose2d") for length in x.shape[2:]]
    whole = [
        (have - 1) * s + k for have, s, k in zip(lengths, strides, kernel.shape[2:], strict=True)
    ]
    found = []
    parts = zip(tf.split(x.last(), groups, -1), np.split(kernel, groups), strict=True)
    for part, own in parts:
        shape = build_shape_tensor([x.length(0), *whole, own.shape[1]])
        found.append(
            tf.nn.conv2d_transpose(part, own.transpose(2, 3, 1, 0), shape, strides, "VALID")
        )
    held = found[0] if groups == 1 else tf.concat(found, -1)
    wanted = [length - 2 * p + e for length, p, e in zip(whole, pads, extra, strict=True)]
    missing = [
        max(p + want - length, 0) for p, want, length in zip(pads, wanted, whole, strict=True)
    ]
    if any(missing):
        held = tf.pad(held, [[0, 0], *([0, more] for more in missing), [0, 0]])
    if wanted != whole:
        held = held[:, pads[0] : pads[0] + wanted[0], pads[1] : pads[1] + wanted[1]]
    return Value(
        held if bias is None else tf.nn.bias_add(held, require_constant(bias, "conv_transpose2d")),
        True,
    )


def _apply_conv_transpose1d(
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Value:
    import tensorflow as tf

    def add_row(value: Any, across: int) -> tuple[int, int]:
        return across, value if isinstance(value, int) else value[0]

    image = Value(tf.expand_dims(x.first(), x.rank - 1))
    kernel = Value(require_constant(weight, "conv_transpose1d")[:, :, None])
    found = _apply_conv_transpose2d(
        image,
        kernel,
        bias,
        add_row(stride, 1),
        add_row(padding, 0),
        add_row(output_padding, 0),
        groups,
        add_row(dilation, 1),
    )
    return Value(tf.squeeze(found.first(), x.rank - 1))


def _apply_convolution(
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Value:
    """Return a convolution, as decomposed programs call it."""
    axes = weight.rank - 2
    if transposed and axes < 3:
        function = _apply_conv_transpose1d if axes == 1 else _apply_conv_transpose2d
        return function(x, weight, bias, stride, padding, output_padding, groups, dilation)
    if transposed:
        raise CompileError("conv_transpose3d is not translated")
    return (conv1d, conv2d, _apply_conv3d)[axes - 1](
        x, weight, bias, stride, padding, dilation, groups
    )


def _dilate_kernel(kernel: np.ndarray, dilations: _Pair) -> np.ndarray:
    """Return a kernel with zeros between its elements; TensorFlow Lite has no dilation here."""
    if dilations == (1, 1):
        return kernel
    size = [d * (k - 1) + 1 for d, k in zip(dilations, kernel.shape[2:], strict=True)]
    found = np.zeros((*kernel.shape[:2], *size), kernel.dtype)
    found[:, :, :: dilations[0], :: dilations[1]] = kernel
    return found


def _make_triple(value: Any) -> Sequence[int]:
    return (value,) * 3 if isinstance(value, int) else value if len(value) == 3 else (*value,) * 3


def _resolve_padding(
    held: Any, padding: _Pair, size: _Pair, strides: _Pair, dilations: _Pair
) -> tuple[Any, str]:
    """Return the padded tensor and the padding mode for TensorFlow."""
    import tensorflow as tf

    if not any(padding):
        return held, "VALID"
    # With a stride of 1, both frameworks pad equally before and after.
    if strides == (1, 1) and all(
        d * (k - 1) == 2 * p for p, k, d in zip(padding, size, dilations, strict=True)
    ):
        return held, "SAME"
    return tf.pad(held, [[0, 0], *([p, p] for p in padding), [0, 0]]), "VALID"


def build_operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch."""
    return {
        "conv1d": conv1d,
        "conv2d": conv2d,
        "conv3d": _apply_conv3d,
        "conv_transpose1d": _apply_conv_transpose1d,
        "conv_transpose2d": _apply_conv_transpose2d,
        "convolution": _apply_convolution,
    }
