"""Real factors as whole numbers, as TensorFlow Lite's reference kernels have them."""

from __future__ import annotations

import math

import numpy as np

from nnpipe.core.errors import CompileError
from nnpipe.formats.tflite_graph import ProgramTensor

LIMITS = {
    kind: (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    for kind in ("int8", "uint8", "int16", "int32", "int64")
}


def quantize_multiplier(factor: float) -> tuple[int, int]:
    """Return a multiplier of 31 bits and a shift (to the left if positive) that are close to a
    factor.

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


def get_scale(tensor: ProgramTensor) -> float:
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


def get_zero_point(tensor: ProgramTensor) -> int:
    """Return the zero point of a tensor that :func:`get_scale` takes."""
    get_scale(tensor)
    return int(tensor.spec.zero_point or 0)  # type: ignore[arg-type]


def get_channel_scales(tensor: ProgramTensor, channels: int, axis: int) -> list[float]:
    """Return the scale of each channel of weights.

    Raises
    ------
    CompileError
        If they are quantised along another axis, or there are more or fewer scales.
    """
    scale, zero = tensor.spec.scale, tensor.spec.zero_point
    if not isinstance(scale, tuple):
        return [get_scale(tensor)] * channels
    if len(scale) != channels or tensor.spec.axis != axis or min(scale) < 0 or any(zero or ()):  # type: ignore[arg-type]
        raise CompileError("weights are quantised in a way that its kernel does not know")
    return list(scale)


def round_half_away(x: float) -> int:
    """Return the nearest whole number, halves away from zero."""
    return math.floor(abs(x) + 0.5) * (1 if x >= 0 else -1)


def quantize_activation_range(activation: int, tensor: ProgramTensor) -> tuple[int, int]:
    """Return the least and greatest value of a quantised output with a fused activation."""
    low, high = LIMITS[tensor.spec.dtype]
    least, most = get_activation_range(activation)
    scale, zero = np.float32(get_scale(tensor)), get_zero_point(tensor)
    with np.errstate(over="ignore"):
        if math.isfinite(least):
            low = max(
                low,
                min(
                    high,
                    zero + round_half_away(float(np.clip(np.float32(least) / scale, -1e9, 1e9))),
                ),
            )
        if math.isfinite(most):
            high = min(
                high,
                max(
                    low, zero + round_half_away(float(np.clip(np.float32(most) / scale, -1e9, 1e9)))
                ),
            )
    return low, high


def get_activation_range(activation: int) -> tuple[float, float]:
    """Return the least and greatest value after a fused activation.

    Raises
    ------
    CompileError
        If it is none of ReLU, ReLU from -1 to 1, and ReLU6.
    """
    found = {0: (-math.inf, math.inf), 1: (0.0, math.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}.get(
        activation
    )
    if found is None:
        raise CompileError("it has a fused activation that is neither ReLU nor ReLU6")
    return found


_MOST = (1 << 31) - 1


def apply_multiplier(x: int, multiplier: int, shift: int) -> int:
    """Return a 32-bit number times a factor, rounded twice as TensorFlow Lite's reference
    kernels do.
    """
    return divide_by_power_of_two(
        compute_high_product(x << max(shift, 0), multiplier), max(-shift, 0)
    )


def compute_high_product(a: int, b: int) -> int:
    """Return twice the upper half of a product of two 32-bit numbers, rounded."""
    nudged = a * b + ((1 << 30) if a * b >= 0 else 1 - (1 << 30))
    return min(_MOST, abs(nudged) >> 31 if nudged >= 0 else -(abs(nudged) >> 31))


def compute_inverse_root(x: int) -> tuple[int, int]:
    """Return the multiplier and the shift of one divided by the square root of a whole number.

    Newton's method with 32-bit numbers of three bits before the point, as TensorFlow Lite has it.
    """
    if x <= 1:
        return _MOST, 0
    shift = 11
    while x >= 1 << 29:
        x, shift = x // 4, shift + 1
    pairs = (32 - x.bit_length() - 1) // 2 - 1
    x, shift = x << 2 * pairs, shift - pairs
    half = divide_by_power_of_two(x >> 1, 1)
    root = 1 << 28
    for _ in range(5):
        cube = _shift_left_saturating(
            compute_high_product(compute_high_product(root, root), root), 6
        )
        root = _shift_left_saturating(
            compute_high_product((1 << 28) + (1 << 27), root) - compute_high_product(half, cube), 3
        )
    root = compute_high_product(root, 1518500250)
    return (root << -shift, 0) if shift < 0 else (root, -shift)


def _shift_left_saturating(x: int, by: int) -> int:
    return max(-_MOST - 1, min(_MOST, x << by))


def compute_exponential(x: int, bits: int) -> int:
    """Return e to the power of a 32-bit number that is not above zero and has some bits before the
    point.

    A polynomial between -1/4 and 0, times powers, as in gemmlowp; the result has no bit before the
    point.
    """
    if x == 0:
        return _MOST
    quarter = 1 << 29 - bits
    rest = (x & quarter - 1) - quarter
    y = (rest << bits) + (1 << 28)
    square = compute_high_product(y, y)
    total = divide_by_power_of_two(compute_high_product(square, square), 2) + compute_high_product(
        square, y
    )
    total = y + divide_by_power_of_two(compute_high_product(total, 715827883) + square, 1)
    found = 1895147668 + compute_high_product(1895147668, total)
    for n, power in enumerate(
        (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)[: bits + 2]
    ):
        if (rest - x) & quarter << n:
            found = compute_high_product(found, power)
    return found


def divide_by_power_of_two(x: int, by: int) -> int:
    """Return a number divided by a power of two, halves rounded away from zero."""
    mask = (1 << by) - 1
    return (x >> by) + ((x & mask) > (mask >> 1) + (x < 0))
