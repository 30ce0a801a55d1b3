"""Convolutions and dense layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.fixed_point import (
    float_range,
    multiplier_of,
    quantised_range,
    scale_of,
    scales_of,
    zero_of,
)
from nnpipe.compilers._c_code.step import C_TYPES, SUFFIXES, CKernel, CStep, OperatorView, struct, text_of
from nnpipe.core.errors import CompileError
from nnpipe.formats.tflite_program import ProgramTensor

RESCALE = CKernel("rescale.c")
RESCALE64 = CKernel("rescale64.c")
RESCALE_ONCE = CKernel("rescale_once.c")
CLAMP_Q = CKernel("clamp_q.c")
WINDOW = CKernel("window.c")
CLAMP = CKernel("clamp_f.c")
_ZEROS = CKernel("quantised.c")
_LARGEST_SUM = (1 << 31) - 1


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
            f"nn_{name}_f32({{in0}}, {{weights}}, {_bias(op)}, {{out0}}, &w, {low}, {high});",
            (CLAMP, WINDOW, CKernel(f"{name}_f.c")), _float_constants(op, channels), place,
        )  # fmt: skip
    kernels, constants, zeros = _quantised(op, channels, axis, activation)
    suffix = SUFFIXES[op.input(0).spec.dtype]
    return CStep(
        f"nn_{name}_{suffix}({{in0}}, {{weights}}, {_bias(op)}, {{multiplier}}, {{shift}}, {{out0}}, &w, &z);",
        (*kernels, WINDOW, CKernel(f"{name}_q.c", _words(op))), constants, [*place, zeros],
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
            f"nn_dense_f32({{in0}}, {{weights}}, {_bias(op)}, {{out0}}, {batches}, {depth}, {units}, {low}, {high});",
            (CLAMP, CKernel("dense_f.c")), _float_constants(op, units),
        )  # fmt: skip
    kernels, constants, zeros = _quantised(op, units, 0, activation)
    suffix = SUFFIXES[op.input(0).spec.dtype]
    return CStep(
        f"nn_dense_{suffix}({{in0}}, {{weights}}, {_bias(op)}, {{multiplier}}, {{shift}}, {{out0}}, "
        f"{batches}, {depth}, {units}, &z);",
        (*kernels, CKernel("dense_q.c", _words(op, "nn_rescale_once"))), constants, [zeros],
    )  # fmt: skip


def _has_bias(op: OperatorView) -> bool:
    return len(op.inputs) > 2 and op.inputs[2] is not None


def _bias(op: OperatorView) -> str:
    return "{bias}" if _has_bias(op) else "0"


def _float_constants(op: OperatorView, channels: int) -> dict[str, npt.NDArray[np.generic]]:
    weights = op.input(1)
    op.expect(op.output().spec.dtype == "float32" and weights.spec.dtype in ("float32", "int8"), str(op.unsupported()))
    content = op.constant(1)
    if weights.spec.dtype == "int8":  # LiteRT rounds the input, too; with real numbers the result is closer
        axis = weights.spec.axis or 0
        scales = np.asarray(scales_of(weights, weights.shape[axis], axis), np.float32)
        content = (content.astype(np.float32) - (0 if weights.spec.axis is not None else zero_of(weights))) * (
            scales.reshape([-1 if n == axis else 1 for n in range(content.ndim)])
        )
    found: dict[str, npt.NDArray[np.generic]] = {"weights": content}
    if _has_bias(op):
        found["bias"] = _bias_content(op, channels, "float32")
    return found


def _bias_content(op: OperatorView, channels: int, *kinds: str) -> npt.NDArray[np.generic]:
    bias = op.constant(2)
    op.expect(bias.size == channels and str(bias.dtype) in kinds, "its bias has another size or type")
    return bias


def _words(op: OperatorView, rescale: str = "nn_rescale") -> tuple[tuple[str, str], ...]:
    kind = op.input(0).spec.dtype
    wide = kind == "int16"
    bias = op.input(2).spec.dtype if _has_bias(op) else "int64" if wide else "int32"
    return (
        ("@", SUFFIXES[kind]), ("IN", C_TYPES[kind]), ("OUT", C_TYPES[kind]),
        ("WEIGHT", C_TYPES[op.input(1).spec.dtype]), ("BIAS", C_TYPES[bias]),
        ("SUM", "int64_t" if wide else "int32_t"), ("RESCALE", "nn_rescale64" if wide else rescale),
    )  # fmt: skip


def _quantised(
    op: OperatorView, channels: int, axis: int, activation: int
) -> tuple[tuple[CKernel, ...], dict[str, npt.NDArray[np.generic]], str]:
    """Return kernels, constants and zero points of a quantised layer."""
    data, weights, out = op.input(0), op.input(1), op.output()
    kinds = (data.spec.dtype, weights.spec.dtype, out.spec.dtype)
    if kinds not in (("int8",) * 3, ("uint8",) * 3, ("int16", "int8", "int16")):
        raise op.unsupported()
    wide = kinds[0] == "int16"
    if wide and (zero_of(data) or zero_of(out)):
        raise CompileError("a zero point of 16-bit numbers is not 0")
    bias = _bias_content(op, channels, *(("int64", "int32") if wide else ("int32",))) if _has_bias(op) else None
    weight_zero = zero_of(weights) if isinstance(weights.spec.scale, float) else 0
    content = op.constant(1)
    _check_sums(content, weight_zero, data, bias, channels, axis)
    factors = [multiplier_of(each) for each in _factors(op, scales_of(weights, channels, axis))]
    found: dict[str, npt.NDArray[np.generic]] = {
        "weights": content,
        "multiplier": np.array([m for m, _ in factors], np.int32),
        "shift": np.array([s for _, s in factors], np.int8),
    }
    if wide and max(s for _, s in factors) > 14:
        raise CompileError("its scales are too far apart for 16-bit numbers")
    if bias is not None:
        found["bias"] = bias
    low, high = quantised_range(activation, out)
    zeros = struct("nn_zeros", "z", [zero_of(data), weight_zero, zero_of(out), low, high])
    rescale = RESCALE64 if wide else RESCALE_ONCE if op.operator.code == 9 else RESCALE
    return ((CLAMP_Q, rescale, _ZEROS), found, zeros)


def _factors(op: OperatorView, scales: list[float]) -> list[float]:
    first, last = scale_of(op.input(0)), scale_of(op.output())
    if isinstance(op.input(1).spec.scale, float) and op.input(0).spec.dtype == "uint8":
        # These kernels multiply in 32 bits.
        return [float(np.float32(first) * np.float32(scale)) / last for scale in scales]
    return [first * scale / last for scale in scales]


def _check_sums(
    content: npt.NDArray[np.generic], zero: int, data: ProgramTensor, bias: npt.NDArray[np.generic] | None,
    channels: int, axis: int,
) -> None:  # fmt: skip
    """Check that no input can overflow a sum: what overflows in C is undefined."""
    low, high = (-32768, 32767) if data.spec.dtype == "int16" else (0, 255)
    most = max(abs(low), abs(high))
    sums = np.abs(np.moveaxis(content.astype(np.int64) - zero, axis, 0).reshape(channels, -1)).sum(1) * most
    if bias is not None:
        sums = sums.astype(object) + np.abs(bias.astype(object))
    limit = _LARGEST_SUM if data.spec.dtype != "int16" else 1 << 47
    if max(sums.tolist(), default=0) > limit - math.ceil(limit / 1e6):
        raise CompileError("its sums could overflow")
