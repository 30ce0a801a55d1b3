"""Layers of int8: zero points and weights are arranged ahead of time, for kernels that compute several sums at once.

A sum of ``(x - zero) * weight`` is a sum of ``x * weight`` and a constant, which becomes part of the bias.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.operators.common_kernels import (
    CLAMP_Q,
    DSP,
    MVE,
    REQUANTISE,
    RESCALE,
    RESCALE_ONCE,
    WINDOW,
    ZEROS,
)
from nnpipe.compilers._c_code.operators.quantised_layer import QuantisedLayer, factor_constants
from nnpipe.compilers._c_code.step import CKernel, CStep

_HALF = 1 << 30


def conv_2d_int8(layer: QuantisedLayer, place: str) -> CStep:
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
    suffix, kernels, constants = _rounded(layer)
    return CStep(
        f"nn_conv_{suffix}({{in0}}, {{weights}}, {{bias}}, {{multiplier}}, {{shift}}, {{out0}}, {{scratch}}, &w, &z);",
        (*kernels, *map(CKernel, ("columns.c", "products.c", "rows.c")), CKernel("conv_s8.c", _words(suffix))),
        {**constants, "weights": weights}, [place, layer.zeros], 4 * weights[0].size,
    )  # fmt: skip


def depthwise_conv_2d_int8(layer: QuantisedLayer, place: str, window: Sequence[int]) -> CStep:
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
    suffix, kernels, constants = _rounded(layer, axis=3)
    return CStep(
        f"nn_depthwise_{suffix}({{in0}}, {{weights}}, {{bias}}, {{multiplier}}, {{shift}}, {{out0}}, {{scratch}}, "
        f"{width}, {height}, &w, &z);",
        (*kernels, CKernel("taps.c"), CKernel("depthwise_s8.c", _words(suffix))),
        {**constants, "weights": weights}, [place, layer.zeros], width * height + 4,
    )  # fmt: skip


def fully_connected_int8(layer: QuantisedLayer, batches: int) -> CStep:
    """Return the step of a dense layer."""
    units, depth = layer.weights.shape
    weights = np.pad(layer.weights, ((0, 0), (0, -depth % 4)))
    return CStep(
        f"nn_dense_s8({{in0}}, {{weights}}, {{bias}}, {{multiplier}}, {{shift}}, {{out0}}, "
        f"{batches}, {depth}, {units}, &z);",
        (CLAMP_Q, RESCALE_ONCE, ZEROS, DSP, MVE, CKernel("rows.c"), CKernel("dense_s8.c")),
        {**layer.factor_constants(), "weights": weights, "bias": _bias(layer, 0)}, [layer.zeros],
    )  # fmt: skip


def _by_channel(layer: QuantisedLayer, axis: int) -> npt.NDArray[np.int64]:
    return np.moveaxis(layer.weights.astype(np.int64), axis, 0).reshape(len(layer.factors), -1)


def _bias(layer: QuantisedLayer, axis: int) -> npt.NDArray[np.int32]:
    """Return the bias with the zero point of the input."""
    bias = 0 if layer.bias is None else layer.bias.reshape(-1).astype(np.int64)
    found: npt.NDArray[np.int32] = (bias - layer.in_zero * _by_channel(layer, axis).sum(1)).astype(np.int32)
    return found


def _rounded(
    layer: QuantisedLayer, axis: int = 0
) -> tuple[str, tuple[CKernel, ...], dict[str, npt.NDArray[np.generic]]]:
    """Return the end of a kernel's name, which says how it rounds and clamps; what it needs; bias and factors."""
    bias = _bias(layer, axis)
    most = np.abs(bias.astype(np.int64)) + 128 * np.abs(_by_channel(layer, axis)).sum(1)
    quick = _quick_factors(layer, most.tolist())
    clamps = (layer.low, layer.high) != (-128, 127)
    suffix = "s8" + ("" if quick else "_any") + ("_clamped" if clamps else "")
    rounding = (REQUANTISE,) if quick else (RESCALE, CKernel("requantise_any.c"))
    kernels = (*((CLAMP_Q,) if clamps else ()), ZEROS, WINDOW, DSP, MVE, *rounding)
    return suffix, kernels, {"bias": bias, **factor_constants(quick or layer.factors)}


def _quick_factors(layer: QuantisedLayer, most: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return factors for ``nn_requantise``, or None if it cannot compute a channel; ``most`` bounds each one's sum."""
    found = []
    for (multiplier, shift), bound in zip(layer.factors, most, strict=True):
        if multiplier == 0 or (shift < 0 and bound < 1 << -shift - 1):  # it is always rounded to 0
            multiplier, shift = 0, -1
        if shift >= 0 or bound >= _HALF or abs(2 * layer.out_zero + 1) << -shift - 1 >= _HALF:
            return None
        found.append((multiplier, shift))
    return found


def _words(suffix: str) -> tuple[tuple[str, str], ...]:
    any_shift = "_any" if "_any" in suffix else ""
    return (
        ("@", suffix), ("ROUNDING", f"nn_rounding{any_shift}"), ("REQUANTISE", f"nn_requantise{any_shift}"),
        ("QUICK", "0" if any_shift else "1"), ("CLAMP", "nn_clamp" if "_clamped" in suffix else "nn_saturate"),
    )  # fmt: skip
