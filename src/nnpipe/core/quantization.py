"""Affine quantisation, bit for bit as ONNX defines it.

Quantising divides by the scale in float32, rounds to the nearest integer (halves
to the even one), adds the zero point, and saturates.  Dequantising
subtracts the zero point exactly and multiplies by the scale in float32.  See
https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html and
https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html (operator set 21).

The specification leaves some cases open.  This module defines them, the same on every machine:

* NaN becomes the lowest value of the quantised type, as in ONNX Runtime.
* Infinities and quotients beyond the integers saturate by their sign, as in
  ONNX Runtime.  (``onnx.reference`` 1.23 casts to
  int32 before it saturates and is wrong beyond ±2**31.)
* Scales must be finite and, for quantising, above zero.  Dequantising takes any
  finite scale: converters give the scale 0 to weights that are all zero.

Blocked quantisation and types of 4 bits and fewer are not offered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec

_QUANTIZED = ("int8", "uint8", "int16", "uint16")
_DEQUANTIZED = (*_QUANTIZED, "int32")
_PIECE = 1 << 15  # elements worked on at a time: 128 KiB of float32 stay in the cache

_Slices = tuple[slice, slice]


def quantize_linear(
    x: npt.ArrayLike,
    scale: npt.ArrayLike,
    zero_point: npt.ArrayLike | None = None,
    dtype: npt.DTypeLike = "int8",
    axis: int | None = None,
) -> npt.NDArray[Any]:
    """Quantise ``x``: ``saturate(round_half_even(x / scale) + zero_point)``.

    Parameters
    ----------
    x
        Real numbers of any shape.  Other types than float32 are converted to
        float32 first.
    scale
        Size of one quantisation step, taken as float32: one number for the
        whole tensor, or a vector with one for each channel along ``axis``.
    zero_point
        The quantised value that stands for 0.0; one number or one for each
        channel.  ``None`` means 0.
    dtype
        ``"int8"``, ``"uint8"``, ``"int16"`` or ``"uint16"``.
    axis
        The axis of channels in ``x``; negative values count from the end.  Only
        used when ``scale`` or ``zero_point`` is a vector.

    Returns
    -------
    ndarray
        ``x.shape`` of ``dtype``, C-contiguous, owned by the caller.

    Raises
    ------
    SpecMismatch
        If a type, shape, axis, scale or zero point does not fit.
    """
    kind = _validate_dtype(dtype, _QUANTIZED)
    source = np.asarray(x)
    if source.dtype.kind not in "fiu":
        raise SpecMismatch(
            f"quantize_linear needs real numbers, but x is {source.dtype}; convert it to float32 "
            f"first"
        )
    view, steps, zeros = _broadcast_parameters(source, scale, zero_point, kind, axis)
    if not (steps > 0).all():
        raise SpecMismatch(
            f"a scale must be above zero to quantise with, but the lowest is {steps.min():g}"
        )

    low, high = np.float32(np.iinfo(kind).min), np.float32(np.iinfo(kind).max)
    out = np.empty(view.shape, kind)
    # Overflow, 0 * inf and the like are ordinary input here, with results defined above.
    with np.errstate(all="ignore"):
        for piece in _iter_pieces(view.shape):
            values = np.divide(view[piece], _slice_parameter(steps, piece), dtype=np.float32)
            np.rint(values, out=values)
            # Exact where it matters: float32 represents sums up to 2**23 exactly, and larger ones
            # saturate.
            np.add(values, _slice_parameter(zeros, piece), out=values)
            np.clip(values, low, high, out=values)
            if np.isnan(values.max()):
                values[np.isnan(values)] = low
            np.copyto(out[piece], values, casting="unsafe")
    return out.reshape(source.shape)


def dequantize_linear(
    q: npt.ArrayLike,
    scale: npt.ArrayLike,
    zero_point: npt.ArrayLike | None = None,
    axis: int | None = None,
) -> npt.NDArray[np.float32]:
    """Convert quantised values to real numbers: ``(q - zero_point) * scale``.

    Parameters
    ----------
    q
        int8, uint8, int16, uint16 or int32 of any shape.
    scale, zero_point, axis
        As for :func:`quantize_linear`, but a scale may be zero or negative.
        int32 has no zero point: it must be ``None`` or 0.

    Returns
    -------
    ndarray
        ``q.shape`` of float32, C-contiguous, owned by the caller.

    Raises
    ------
    SpecMismatch
        If a type, shape, axis, scale or zero point does not fit.
    """
    source = np.asarray(q)
    kind = _validate_dtype(source.dtype, _DEQUANTIZED)
    view, steps, zeros = _broadcast_parameters(source, scale, zero_point, kind, axis)
    if kind == np.int32 and zeros.any():
        raise SpecMismatch("int32 is dequantised without a zero point; give None or 0")

    out = np.empty(view.shape, np.float32)
    with np.errstate(all="ignore"):
        for piece in _iter_pieces(view.shape):
            values = out[piece]
            values[...] = view[piece]  # exact, except for int32, which is first rounded to float32
            np.subtract(values, _slice_parameter(zeros, piece), out=values)
            np.multiply(values, _slice_parameter(steps, piece), out=values)
    return out.reshape(source.shape)


def compute_quantization_parameters(
    low: npt.ArrayLike, high: npt.ArrayLike, dtype: npt.DTypeLike = "int8", symmetric: bool = False
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Return the scale and zero point that cover the values from ``low`` to ``high``.

    The range is first widened to include 0.0, so that zero (padding, ReLU) is
    represented exactly.  Asymmetric: ``scale = (high - low) / (qmax - qmin)``.
    Symmetric: ``scale = max(-low, high) / qmax``; the zero point is 0 for signed
    types and the middle of the range for unsigned ones (128 for uint8).  These are the
    formulas of Jacob et al. 2018 (arXiv:1712.05877) and of the TensorFlow Lite
    8-bit specification.

    Parameters
    ----------
    low, high
        Smallest and largest observed value: numbers, or arrays with one value
        for each channel.
    dtype
        ``"int8"``, ``"uint8"``, ``"int16"`` or ``"uint16"``.
    symmetric
        Whether zero lies in the middle of the quantised range.

    Returns
    -------
    scale, zero_point
        float32 and int32 arrays of the shape of ``low`` and ``high`` (0-d for
        numbers).  An empty range (both 0) has scale 1.

    Raises
    ------
    SpecMismatch
        If ``low`` exceeds ``high``, or one is not a finite float32.
    """
    kind = _validate_dtype(dtype, _QUANTIZED)
    limits = np.iinfo(kind)
    bottom, top = np.broadcast_arrays(np.asarray(low, np.float64), np.asarray(high, np.float64))
    largest = np.finfo(np.float32).max
    bad = ~((bottom <= top) & (bottom >= -largest) & (top <= largest))
    if bad.any():
        raise SpecMismatch(
            f"a range needs finite float32 limits with low <= high, but one goes from "
            f"{bottom[bad][0]} to {top[bad][0]}"
        )
    bottom, top = np.minimum(bottom, 0.0), np.maximum(top, 0.0)

    middle = (limits.max + 1) // 2 if limits.min == 0 else 0
    width = (
        np.maximum(-bottom, top) / (limits.max - middle)
        if symmetric
        else (top - bottom) / (limits.max - limits.min)
    )
    # A subnormal scale is too imprecise to divide by; a range that narrow is practically all zeros.
    scale = np.where(width == 0, 1.0, np.maximum(width, np.finfo(np.float32).tiny)).astype(
        np.float32
    )
    if symmetric:
        zero = np.full(scale.shape, middle)
    else:
        zero = np.clip(
            np.rint(limits.min - bottom / scale.astype(np.float64)), limits.min, limits.max
        )
    return scale, zero.astype(np.int32)


def _validate_dtype(dtype: npt.DTypeLike, known: tuple[str, ...]) -> np.dtype[Any]:
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if name not in known:
        raise SpecMismatch(
            f"{name} is not a quantised type that is known here; use one of {', '.join(known)}"
        )
    kind: np.dtype[Any] = np.dtype(name)
    return kind


def _broadcast_parameters(
    source: npt.NDArray[Any],
    scale: npt.ArrayLike,
    zero_point: npt.ArrayLike | None,
    kind: np.dtype[Any],
    axis: int | None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return x with shape (outer, channels, inner), and float32 scales and zero points with (1
    or channels, 1).
    """
    given, zeros = np.asarray(scale), np.asarray(0 if zero_point is None else zero_point)
    if given.size and given.dtype.kind not in "fiu":
        raise SpecMismatch(f"a scale must be a real number, but scale is of type {given.dtype}")
    if zeros.size and zeros.dtype.kind not in "iu":
        raise SpecMismatch(
            f"a zero point must be a whole number, but zero_point is of type {zeros.dtype}"
        )
    with np.errstate(over="ignore", under="ignore"):
        steps = given.astype(np.float32)
    if not np.isfinite(steps).all():
        raise SpecMismatch(
            f"a scale must be finite in float32, but one is {given[~np.isfinite(steps)][0]}"
        )
    limits = np.iinfo(kind)
    for extreme in (zeros.min(), zeros.max()) if zeros.size else ():
        if not limits.min <= extreme <= limits.max:
            raise SpecMismatch(
                f"zero point {extreme} is outside {kind}, which goes from {limits.min} to "
                f"{limits.max}"
            )

    for name, parameter in (("scale", steps), ("zero_point", zeros)):
        if parameter.size == 1 and parameter.ndim <= 1:
            continue
        if parameter.ndim != 1:
            raise SpecMismatch(
                f"{name} must be a number or a vector, but has shape {parameter.shape}"
            )
        if axis is None:
            raise SpecMismatch(
                f"{name} has {parameter.size} values; say which axis of the tensor they belong to"
            )
        if not -source.ndim <= axis < source.ndim:
            raise SpecMismatch(f"axis {axis} does not exist in a tensor of shape {source.shape}")
        if parameter.size != source.shape[axis]:
            raise SpecMismatch(
                f"{name} has {parameter.size} values, but axis {axis} of shape {source.shape} has "
                f"{source.shape[axis]}"
            )

    steps, zeros = steps.reshape(-1, 1), zeros.astype(np.float32).reshape(-1, 1)
    if steps.size == zeros.size == 1:
        return source.reshape(1, source.size, 1), steps, zeros
    assert axis is not None
    axis %= source.ndim
    outer, inner = int(np.prod(source.shape[:axis])), int(np.prod(source.shape[axis + 1 :]))
    return source.reshape(outer, source.shape[axis], inner), steps, zeros


def _iter_pieces(shape: tuple[int, ...]) -> Iterator[_Slices]:
    """Divide (outer, channels, inner) into slices of about ``_PIECE`` elements, along channels
    if outer is 1.
    """
    outer, channels, inner = shape
    whole = slice(None)
    if 0 in shape:
        return
    if outer == 1:
        step = max(1, _PIECE // inner)
        yield from ((whole, slice(start, start + step)) for start in range(0, channels, step))
    else:
        step = max(1, _PIECE // (channels * inner))
        yield from ((slice(start, start + step), whole) for start in range(0, outer, step))


def _slice_parameter(parameter: npt.NDArray[np.float32], piece: _Slices) -> npt.NDArray[np.float32]:
    return parameter if len(parameter) == 1 else parameter[piece[1]]


# Convert a batch from one specification to another: quantisation and element types.
#
# A compiled model often has integer inputs and outputs where its source had real numbers.  The
# conversion uses the scale and zero point of the tensor's specification.  It runs on the host,
# outside the measured time.


def adapt(
    batch: Batch, source: tuple[TensorSpec, ...], target: tuple[TensorSpec, ...]
) -> dict[str, np.ndarray]:
    """Convert arrays from the specifications ``source`` to the specifications ``target``.

    Parameters
    ----------
    batch
        One array for each tensor of ``source``.
    source, target
        Specifications with the same tensor names, in any order.

    Returns
    -------
    dict
        One array for each tensor of ``target``; arrays that need no conversion
        are not copied.

    Raises
    ------
    SpecMismatch
        If the names differ or no conversion is defined.
    """
    known = {spec.name: spec for spec in source}
    if known.keys() != {spec.name for spec in target}:
        raise SpecMismatch(
            f"the model has the tensors {', '.join(known)}; its compiled form has "
            f"{', '.join(t.name for t in target)}"
        )
    return {spec.name: _convert(batch[spec.name], known[spec.name], spec) for spec in target}


def adapt_inputs(batch: Batch, model: IOSpec, compiled: IOSpec) -> dict[str, np.ndarray]:
    """Convert inputs of the model to inputs of its compiled form."""
    return adapt(batch, model.inputs, compiled.inputs)


def adapt_outputs(batch: Batch, model: IOSpec, compiled: IOSpec) -> dict[str, np.ndarray]:
    """Convert outputs of the compiled form to outputs of the model."""
    return adapt(batch, compiled.outputs, model.outputs)


def _convert(array: np.ndarray, source: TensorSpec, target: TensorSpec) -> np.ndarray:
    same_numbers = (source.scale, source.zero_point, source.axis) == (
        target.scale,
        target.zero_point,
        target.axis,
    )
    if source.dtype == target.dtype and same_numbers:
        return array
    if "string" in (source.dtype, target.dtype):
        raise SpecMismatch(f"tensor {source.name!r}: {source.dtype} cannot become {target.dtype}")
    if source.scale is not None and not same_numbers:
        array = dequantize_linear(array, source.scale, source.zero_point, source.axis)
    if target.scale is not None and not same_numbers:
        return quantize_linear(array, target.scale, target.zero_point, target.dtype, target.axis)
    return array.astype(np.dtype(target.dtype), copy=False)
