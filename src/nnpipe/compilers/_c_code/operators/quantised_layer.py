"""What a layer of quantised weights computes: checked, and with its factors as whole numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.fixed_point import (
    get_channel_scales,
    get_scale,
    get_zero_point,
    quantize_activation_range,
    quantize_multiplier,
)
from nnpipe.compilers._c_code.step import CKernel, CStep, OperatorView, format_struct
from nnpipe.core.errors import CompileError
from nnpipe.formats.tflite_graph import ProgramTensor

_LARGEST_SUM = (1 << 31) - 1


@dataclass(frozen=True)
class QuantisedLayer:
    """A layer of quantised weights.

    Attributes
    ----------
    dtype
        The type of its input and output.
    weights
        Its weights as the file has them.
    bias
        Of shape (channels,), or None.
    factors
        A multiplier and a shift for each channel.
    in_zero, weight_zero, out_zero
        Zero points.
    low, high
        The least and greatest output.
    """

    dtype: str
    weights: npt.NDArray[np.generic]
    bias: npt.NDArray[np.generic] | None
    factors: Sequence[tuple[int, int]]
    in_zero: int
    weight_zero: int
    out_zero: int
    low: int
    high: int

    @property
    def zeros(self) -> str:
        """The definition of its zero points and bounds."""
        return format_struct(
            "nn_zeros", "z", [self.in_zero, self.weight_zero, self.out_zero, self.low, self.high]
        )

    def make_factor_constants(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the factors as constants."""
        return make_factor_constants(self.factors)

    def constants(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return all of it as constants."""
        found = {"weights": self.weights, **make_factor_constants(self.factors)}
        return found if self.bias is None else {**found, "bias": self.bias}


def make_factor_constants(factors: Sequence[tuple[int, int]]) -> dict[str, npt.NDArray[np.generic]]:
    """Return multipliers and shifts as constants."""
    return {
        "multiplier": np.array([multiplier for multiplier, _ in factors], np.int32),
        "shift": np.array([shift for _, shift in factors], np.int8),
    }


def build_quantized_layer(
    op: OperatorView, channels: int, axis: int, activation: int
) -> QuantisedLayer:
    """Return a quantised layer.

    Parameters
    ----------
    op
        The operator.
    channels
        The length of its output's last axis.
    axis
        The axis of the weights that has this length.
    activation
        The fused activation.

    Raises
    ------
    CompileError
        If no kernel computes it, or its sums could overflow.
    """
    data, weights, out = op.input(0), op.input(1), op.output()
    kinds = (data.spec.dtype, weights.spec.dtype, out.spec.dtype)
    if kinds not in (("int8",) * 3, ("uint8",) * 3, ("int16", "int8", "int16")):
        raise op.make_no_kernel_error()
    wide = kinds[0] == "int16"
    if wide and (get_zero_point(data) or get_zero_point(out)):
        raise CompileError("a zero point of 16-bit numbers is not 0")
    bias = get_bias(op, channels, *(("int64", "int32") if wide else ("int32",)))
    weight_zero = get_zero_point(weights) if isinstance(weights.spec.scale, float) else 0
    content = op.constant(1)
    _check_sums(content, weight_zero, data, bias, channels, axis)
    factors = [
        quantize_multiplier(each)
        for each in _compute_factors(op, get_channel_scales(weights, channels, axis))
    ]
    if wide and max(s for _, s in factors) > 14:
        raise CompileError("its scales are too far apart for 16-bit numbers")
    low, high = quantize_activation_range(activation, out)
    return QuantisedLayer(
        kinds[0],
        content,
        bias,
        factors,
        get_zero_point(data),
        weight_zero,
        get_zero_point(out),
        low,
        high,
    )


def get_bias(op: OperatorView, channels: int, *kinds: str) -> npt.NDArray[np.generic] | None:
    """Return the bias, whose type must be one of a few, or None if there is none."""
    if len(op.inputs) < 3 or op.inputs[2] is None:
        return None
    bias = op.constant(2)
    op.expect(
        bias.size == channels and str(bias.dtype) in kinds, "its bias has another size or type"
    )
    return bias.reshape(-1)


def _compute_factors(op: OperatorView, scales: list[float]) -> list[float]:
    first, last = get_scale(op.input(0)), get_scale(op.output())
    if isinstance(op.input(1).spec.scale, float) and op.input(0).spec.dtype == "uint8":
        # These kernels multiply in 32 bits.
        return [float(np.float32(first) * np.float32(scale)) / last for scale in scales]
    return [first * scale / last for scale in scales]


def _check_sums(
    content: npt.NDArray[np.generic],
    zero: int,
    data: ProgramTensor,
    bias: npt.NDArray[np.generic] | None,
    channels: int,
    axis: int,
) -> None:
    """Check that no input can overflow a sum: what overflows in C is undefined."""
    # A part of a sum may be a little larger than the whole where the zero point is in the bias.
    most = 32768 if data.spec.dtype == "int16" else 256
    sums = (
        np.abs(np.moveaxis(content.astype(np.int64) - zero, axis, 0).reshape(channels, -1)).sum(1)
        * most
    )
    if bias is not None:
        sums = sums.astype(object) + np.abs(bias.astype(object))
    limit = _LARGEST_SUM if data.spec.dtype != "int16" else 1 << 47
    if max(sums.tolist(), default=0) > limit - math.ceil(limit / 1e6):
        raise CompileError("its sums could overflow")


RAISED = CKernel("raised.c")
RESCALE = CKernel("rescale.c")
RESCALE64 = CKernel("rescale64.c")
RESCALE_ONCE = CKernel("rescale_once.c")
CLAMP = CKernel("clamp_f.c")
CLAMP_Q = CKernel("clamp_q.c")
WINDOW = CKernel("window.c")
ZEROS = CKernel("quantised.c")
DSP = CKernel("dsp.c")
REQUANTISE = CKernel("requantise.c")
INSIDE = CKernel("inside.c")
MVE = CKernel("mve.c")


# Layers of int8: zero points and weights are arranged ahead of time, for kernels that compute
# several sums at once.
#
# A sum of ``(x - zero) * weight`` is a sum of ``x * weight`` and a constant, which becomes part of
# the bias.

_HALF = 1 << 30


def build_conv_2d_int8(layer: QuantisedLayer, place: str) -> CStep:
    """Return the step of a convolution that is not in groups.

    Parameters
    ----------
    layer
        The layer; its weights have the axes channels, rows, columns, depth.
    place
        The definition of the window.
    """
    channels, rows, columns, depth = layer.weights.shape
    flat = layer.weights.reshape(channels, rows, columns * depth)
    weights = np.pad(flat, ((0, 0), (0, 0), (0, -columns * depth % 4)))
    suffix, kernels, constants = _choose_rounding(layer)
    return CStep(
        f"nn_conv_{suffix}({{in0}}, {{weights}}, {{bias}}, {{multiplier}}, {{shift}}, {{out0}}, "
        f"{{scratch}}, &w, &z);",
        (
            *kernels,
            *map(CKernel, ("columns.c", "products.c", "rows.c")),
            CKernel("conv_s8.c", _make_kernel_words(suffix)),
        ),
        {**constants, "weights": weights},
        [place, layer.zeros],
        4 * weights[0].size,
    )


def build_depthwise_conv_2d_int8(layer: QuantisedLayer, place: str, window: Sequence[int]) -> CStep:
    """Return the step of a convolution of each channel.

    Parameters
    ----------
    layer
        The layer; its weights have the axes 1, rows, columns, channels.
    place
        The definition of the window.
    window
        Its numbers.
    """
    rows, columns = layer.weights.shape[1:3]
    out_h, out_w, stride_h, stride_w, step_h, step_w = window[4], window[5], *window[10:14]
    # Two outputs of a row are computed at a time, from four bytes.
    width = (out_w + out_w % 2 - 1) * stride_w + (columns - 1) * step_w + 1
    height = (out_h - 1) * stride_h + (rows - 1) * step_h + 1
    weights = np.append(np.moveaxis(layer.weights, 3, 0).reshape(-1), np.zeros(3, np.int8))
    suffix, kernels, constants = _choose_rounding(layer, axis=3)
    return CStep(
        f"nn_depthwise_{suffix}({{in0}}, {{weights}}, {{bias}}, {{multiplier}}, {{shift}}, "
        f"{{out0}}, {{scratch}}, {width}, {height}, &w, &z);",
        (*kernels, CKernel("taps.c"), CKernel("depthwise_s8.c", _make_kernel_words(suffix))),
        {**constants, "weights": weights},
        [place, layer.zeros],
        width * height + 4,
    )


def build_fully_connected_int8(layer: QuantisedLayer, batches: int) -> CStep:
    """Return the step of a dense layer."""
    units, depth = layer.weights.shape
    weights = np.pad(layer.weights, ((0, 0), (0, -depth % 4)))
    return CStep(
        f"nn_dense_s8({{in0}}, {{weights}}, {{bias}}, {{multiplier}}, {{shift}}, {{out0}}, "
        f"{batches}, {depth}, {units}, &z);",
        (CLAMP_Q, RESCALE_ONCE, ZEROS, DSP, MVE, CKernel("rows.c"), CKernel("dense_s8.c")),
        {
            **layer.make_factor_constants(),
            "weights": weights,
            "bias": _fold_input_zero_point(layer, 0),
        },
        [layer.zeros],
    )


def _flatten_by_channel(layer: QuantisedLayer, axis: int) -> npt.NDArray[np.int64]:
    return np.moveaxis(layer.weights.astype(np.int64), axis, 0).reshape(len(layer.factors), -1)


def _fold_input_zero_point(layer: QuantisedLayer, axis: int) -> npt.NDArray[np.int32]:
    """Return the bias with the zero point of the input."""
    bias = 0 if layer.bias is None else layer.bias.reshape(-1).astype(np.int64)
    found: npt.NDArray[np.int32] = (
        bias - layer.in_zero * _flatten_by_channel(layer, axis).sum(1)
    ).astype(np.int32)
    return found


def _choose_rounding(
    layer: QuantisedLayer, axis: int = 0
) -> tuple[str, tuple[CKernel, ...], dict[str, npt.NDArray[np.generic]]]:
    """Return the end of a kernel's name, which says how it rounds and clamps; what it needs;
    bias and factors.
    """
    bias = _fold_input_zero_point(layer, axis)
    most = np.abs(bias.astype(np.int64)) + 128 * np.abs(_flatten_by_channel(layer, axis)).sum(1)
    quick = _find_quick_factors(layer, most.tolist())
    clamps = (layer.low, layer.high) != (-128, 127)
    suffix = "s8" + ("" if quick else "_any") + ("_clamped" if clamps else "")
    rounding = (REQUANTISE,) if quick else (RESCALE, CKernel("requantise_any.c"))
    kernels = (*((CLAMP_Q,) if clamps else ()), ZEROS, WINDOW, DSP, MVE, *rounding)
    return suffix, kernels, {"bias": bias, **make_factor_constants(quick or layer.factors)}


def _find_quick_factors(layer: QuantisedLayer, most: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return factors for ``nn_requantise``, or None if it cannot compute a channel; ``most``
    bounds each one's sum.
    """
    found = []
    for (multiplier, shift), bound in zip(layer.factors, most, strict=True):
        if multiplier == 0 or (shift < 0 and bound < 1 << -shift - 1):  # it is always rounded to 0
            multiplier, shift = 0, -1
        if shift >= 0 or bound >= _HALF or abs(2 * layer.out_zero + 1) << -shift - 1 >= _HALF:
            return None
        found.append((multiplier, shift))
    return found


def _make_kernel_words(suffix: str) -> tuple[tuple[str, str], ...]:
    any_shift = "_any" if "_any" in suffix else ""
    return (
        ("@", suffix),
        ("ROUNDING", f"nn_rounding{any_shift}"),
        ("REQUANTISE", f"nn_requantise{any_shift}"),
        ("QUICK", "0" if any_shift else "1"),
        ("CLAMP", "nn_clamp" if "_clamped" in suffix else "nn_saturate"),
    )
