"""Convolutions and dense layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.fixed_point import float_range, scales_of, zero_of
from nnpipe.compilers._c_code.operators.common_kernels import (
    CLAMP,
    CLAMP_Q,
    INSIDE,
    RESCALE,
    RESCALE64,
    RESCALE_ONCE,
    WINDOW,
    ZEROS,
)
from nnpipe.compilers._c_code.operators.int8_layers import (
    conv_2d_int8,
    depthwise_conv_2d_int8,
    fully_connected_int8,
)
from nnpipe.compilers._c_code.operators.quantised_layer import bias_of, quantised_layer
from nnpipe.compilers._c_code.step import C_TYPES, SUFFIXES, CKernel, CStep, OperatorView, struct, text_of


def window(
    op: OperatorView, filter_shape: tuple[int, int, int], out_channels: int, steps: Sequence[int], padding: int
) -> list[int]:
    """Return the numbers of a window over the input, after checking that all of it lies inside of input and output.

    Parameters
    ----------
    op
        The operator; its input and output have four axes.
    filter_shape
        Rows, columns and channels of the filter.
    out_channels
        Channels of the output.
    steps
        Strides along rows and columns, and dilations along them.
    padding
        0 for SAME, 1 for VALID.
    """
    shape = op.input(0).shape
    op.expect(len(shape) == 4 and min(shape) > 0, f"its input has the shape {shape}")
    op.expect(min(*filter_shape, out_channels, *steps) > 0, "a filter, stride or dilation is not positive")
    op.expect(max(*filter_shape, out_channels, *steps) < 1 << 16, "a filter, stride or dilation is too large")
    op.expect(padding in (0, 1), "its padding is neither SAME nor VALID")
    lengths, pads = [], []
    for length, size, stride, step in zip(shape[1:3], filter_shape[:2], steps[:2], steps[2:], strict=True):
        reach = (size - 1) * step + 1
        made = -(-length // stride) if padding == 0 else (length - reach + stride) // stride
        lengths.append(made)
        pads.append(max(0, (made - 1) * stride + reach - length) // 2 if padding == 0 else 0)
    op.expect(min(lengths) > 0, "its window is larger than its input")
    op.expect_shape((shape[0], *lengths, out_channels))
    return [*shape, *lengths, out_channels, *filter_shape, *steps, *pads]


def conv_2d(op: OperatorView) -> CStep:
    """Return the step of CONV_2D, also in groups."""
    weights = op.input(1)
    op.expect(len(weights.shape) == 4, "its filter has not four axes")
    channels, rows, columns, depth = weights.shape
    steps = [op.operator.option(n, "<i", 1) for n in (2, 1, 5, 4)]
    numbers = window(op, (rows, columns, depth), channels, steps, op.operator.option(0, "<b"))
    op.expect(numbers[3] % depth == 0 and channels % (numbers[3] // depth) == 0, "its groups have different sizes")
    return _windowed(op, "conv", numbers, channels, 0, op.operator.option(3, "<b"))


def depthwise_conv_2d(op: OperatorView) -> CStep:
    """Return the step of DEPTHWISE_CONV_2D."""
    weights = op.input(1)
    op.expect(len(weights.shape) == 4 and weights.shape[0] == 1, "its filter has another shape than (1, h, w, c)")
    _, rows, columns, channels = weights.shape
    steps = [op.operator.option(n, "<i", 1) for n in (2, 1, 6, 5)]
    numbers = window(op, (rows, columns, 1), channels, steps, op.operator.option(0, "<b"))
    op.expect(channels % numbers[3] == 0, "its channels are no multiple of the input's")
    return _windowed(op, "depthwise", numbers, channels, 3, op.operator.option(4, "<b"))


def _windowed(op: OperatorView, name: str, numbers: list[int], channels: int, axis: int, activation: int) -> CStep:
    place = [struct("nn_window", "w", numbers)]
    if op.input(0).spec.dtype == "float32":
        low, high = map(text_of, float_range(activation))
        return CStep(
            f"nn_{name}_f32({{in0}}, {{weights}}, {bias_place(op)}, {{out0}}, &w, {low}, {high});",
            (CLAMP, WINDOW, INSIDE, CKernel(f"{name}_f.c")), float_constants(op, channels), place,
        )  # fmt: skip
    layer = quantised_layer(op, channels, axis, activation)
    if layer.dtype == "int8" and layer.weight_zero == 0 and name == "depthwise":
        return depthwise_conv_2d_int8(layer, place[0], numbers)
    if layer.dtype == "int8" and layer.weight_zero == 0 and numbers[9] == numbers[3]:
        return conv_2d_int8(layer, place[0])
    kernel, bias = f"nn_{name}_plain_{SUFFIXES[layer.dtype]}", bias_place(op)
    return CStep(
        f"{kernel}({{in0}}, {{weights}}, {bias}, {{multiplier}}, {{shift}}, {{out0}}, &w, &z);",
        (CLAMP_Q, RESCALE64 if layer.dtype == "int16" else RESCALE, ZEROS, WINDOW, INSIDE,
         CKernel(f"{name}_q.c", layer_words(op))), layer.constants(), [*place, layer.zeros],
    )  # fmt: skip


def fully_connected(op: OperatorView) -> CStep:
    """Return the step of FULLY_CONNECTED."""
    weights = op.input(1)
    op.expect(len(weights.shape) == 2 and min(weights.shape) > 0, "its weights have not two axes")
    op.expect(op.operator.option(1, "<b") == 0, "its weights are shuffled")
    units, depth = weights.shape
    op.expect(op.input(0).count % depth == 0, "its input is no multiple of its weights")
    batches = op.input(0).count // depth
    op.expect(op.output().count == batches * units, "its output has another size than is computed")
    activation = op.operator.option(0, "<b")
    if op.input(0).spec.dtype == "float32":
        low, high = map(text_of, float_range(activation))
        return CStep(
            f"nn_dense_f32({{in0}}, {{weights}}, {bias_place(op)}, {{out0}}, {batches}, {depth}, {units}, "
            f"{low}, {high});",
            (CLAMP, CKernel("dense_f.c")), float_constants(op, units),
        )  # fmt: skip
    layer = quantised_layer(op, units, 0, activation)
    if layer.dtype == "int8" and layer.weight_zero == 0:
        return fully_connected_int8(layer, batches)
    suffix = SUFFIXES[layer.dtype]
    return CStep(
        f"nn_dense_plain_{suffix}({{in0}}, {{weights}}, {bias_place(op)}, {{multiplier}}, {{shift}}, {{out0}}, "
        f"{batches}, {depth}, {units}, &z);",
        (CLAMP_Q, RESCALE64 if layer.dtype == "int16" else RESCALE_ONCE, ZEROS,
         CKernel("dense_q.c", layer_words(op, "nn_rescale_once"))), layer.constants(), [layer.zeros],
    )  # fmt: skip


def _has_bias(op: OperatorView) -> bool:
    return len(op.inputs) > 2 and op.inputs[2] is not None


def bias_place(op: OperatorView) -> str:
    """Return what stands for the bias in a statement."""
    return "{bias}" if _has_bias(op) else "0"


def float_constants(op: OperatorView, channels: int) -> dict[str, npt.NDArray[np.generic]]:
    """Return weights and bias of a layer that is computed in floats."""
    weights = op.input(1)
    op.expect(op.output().spec.dtype == "float32" and weights.spec.dtype in ("float32", "int8"), str(op.unsupported()))
    content = op.constant(1)
    if weights.spec.dtype == "int8":  # LiteRT rounds the input, too; with real numbers the result is closer
        axis = weights.spec.axis or 0
        scales = np.asarray(scales_of(weights, weights.shape[axis], axis), np.float32)
        content = (content.astype(np.float32) - (0 if weights.spec.axis is not None else zero_of(weights))) * (
            scales.reshape([-1 if n == axis else 1 for n in range(content.ndim)])
        )
    bias = bias_of(op, channels, "float32")
    return {"weights": content} if bias is None else {"weights": content, "bias": bias}


def layer_words(op: OperatorView, rescale: str = "nn_rescale") -> tuple[tuple[str, str], ...]:
    """Return the words for types and functions in the kernel of a quantised layer."""
    kind = op.input(0).spec.dtype
    wide = kind == "int16"
    bias = op.input(2).spec.dtype if _has_bias(op) else "int64" if wide else "int32"
    return (
        ("@", SUFFIXES[kind]), ("IN", C_TYPES[kind]), ("OUT", C_TYPES[kind]),
        ("WEIGHT", C_TYPES[op.input(1).spec.dtype]), ("BIAS", C_TYPES[bias]),
        ("SUM", "int64_t" if wide else "int32_t"), ("RESCALE", "nn_rescale64" if wide else rescale),
    )  # fmt: skip
