"""Real factors as whole numbers, as TensorFlow Lite's reference kernels have them."""

from __future__ import annotations

import math

import numpy as np

from nnpipe.core.errors import CompileError
from nnpipe.formats.tflite_program import ProgramTensor

LIMITS = {
    kind: (int(np.iinfo(kind).min), int(np.iinfo(kind).max)) for kind in ("int8", "uint8", "int16", "int32", "int64")
}


def multiplier_of(factor: float) -> tuple[int, int]:
    """Return a multiplier of 31 bits and a shift (to the left if positive) that are close to a factor.

    Raises
    ------
    CompileError
        If the factor is negative, not finite, or too large.
    """
    if not math.isfinite(factor) or factor < 0:
        raise CompileError(f"its scales give the factor {factor}")
    if factor == 0:
        return 0, 0
    fraction, shift = math.frexp(factor)
    # Round half away from zero, as C's round does.
    multiplier = math.floor(fraction * 2.0**31 + 0.5)
    if multiplier == 1 << 31:
        multiplier, shift = multiplier // 2, shift + 1
    if shift > 30:
        raise CompileError(f"its scales give the factor {factor}")
    return (0, 0) if shift < -31 else (multiplier, shift)


def scale_of(tensor: ProgramTensor) -> float:
    """Return the scale of a tensor that is quantised as a whole; a 32-bit float.

    Raises
    ------
    CompileError
        If it is not quantised, per channel, or by a scale or zero point that no kernel takes.
    """
    scale, zero = tensor.spec.scale, tensor.spec.zero_point
    known = tensor.spec.dtype in LIMITS and isinstance(zero, int | np.integer)
    if not isinstance(scale, float) or scale <= 0 or not known:
        raise CompileError(f"a tensor of type {tensor.spec.dtype} has no scale, or several")
    low, high = LIMITS[tensor.spec.dtype]
    if not low <= zero <= high:  # type: ignore[operator]
        raise CompileError(f"a zero point is {zero}")
    return scale


def zero_of(tensor: ProgramTensor) -> int:
    """Return the zero point of a tensor that :func:`scale_of` takes."""
    scale_of(tensor)
    return int(tensor.spec.zero_point or 0)  # type: ignore[arg-type]


def scales_of(tensor: ProgramTensor, channels: int, axis: int) -> list[float]:
    """Return the scale of each channel of weights.

    Raises
    ------
    CompileError
        If they are quantised along another axis, or there are more or fewer scales.
    """
    scale, zero = tensor.spec.scale, tensor.spec.zero_point
    if not isinstance(scale, tuple):
        return [scale_of(tensor)] * channels
    if len(scale) != channels or tensor.spec.axis != axis or min(scale) < 0 or any(zero or ()):  # type: ignore[arg-type]
        raise CompileError("weights are quantised in a way that its kernel does not know")
    return list(scale)


def rounded(x: float) -> int:
    """Return the nearest whole number, halves away from zero."""
    return math.floor(abs(x) + 0.5) * (1 if x >= 0 else -1)


def quantised_range(activation: int, tensor: ProgramTensor) -> tuple[int, int]:
    """Return the least and greatest value of a quantised output with a fused activation."""
    low, high = LIMITS[tensor.spec.dtype]
    least, most = float_range(activation)
    scale, zero = np.float32(scale_of(tensor)), zero_of(tensor)
    with np.errstate(over="ignore"):
        if math.isfinite(least):
            low = max(low, min(high, zero + rounded(float(np.clip(np.float32(least) / scale, -1e9, 1e9)))))
        if math.isfinite(most):
            high = min(high, max(low, zero + rounded(float(np.clip(np.float32(most) / scale, -1e9, 1e9)))))
    return low, high


def float_range(activation: int) -> tuple[float, float]:
    """Return the least and greatest value after a fused activation.

    Raises
    ------
    CompileError
        If it is none of ReLU, ReLU from -1 to 1, and ReLU6.
    """
    found = {0: (-math.inf, math.inf), 1: (0.0, math.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}.get(activation)
    if found is None:
        raise CompileError("it has a fused activation that is neither ReLU nor ReLU6")
    return found
