"""Hard swish of 8-bit numbers as LiteRT's reference kernel computes it, in 16 bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnpipe.compilers._c_code.fixed_point import LIMITS, multiplier_of, scale_of, zero_of
from nnpipe.core.errors import CompileError
from nnpipe.formats.tflite_program import ProgramTensor

_LEAST, _MOST = -(1 << 15), (1 << 15) - 1


def hard_swish_of(data: ProgramTensor, out: ProgramTensor) -> Callable[[int], int]:
    """Return the function from an input to an output.

    Raises
    ------
    CompileError
        If the output's scale is too small.
    """
    fine = np.float32(1 / 128) * np.float32(scale_of(data))
    multiplier, exponent = _short(multiplier_of(float(fine / np.float32(scale_of(out)))))
    relu_multiplier, relu_exponent = _short(multiplier_of(float(fine / np.float32(3 / 32768))))
    if exponent > 0:
        raise CompileError("its output has a very small scale")
    zero, out_zero = zero_of(data), zero_of(out)
    low, high = LIMITS[out.spec.dtype]

    def value(x: int) -> int:
        shifted = (x - zero) * 128
        scaled = _high_product(shifted, multiplier)
        relu = shifted
        if relu_exponent > 0:
            relu = _clamped(relu << relu_exponent - 1)
        relu = _high_product(relu, relu_multiplier)
        if relu_exponent > 0:
            relu = _clamped(relu << 1)
        elif relu_exponent < 0:
            relu = _divided(relu, -relu_exponent)
        relu = (relu + (1 << 15)) >> 1
        found = _divided((relu * scaled) >> 15 if relu * scaled >= 0 else -(-relu * scaled >> 15), -exponent)
        return min(high, max(low, found + out_zero))

    return value


def _short(factor: tuple[int, int]) -> tuple[int, int]:
    """Return a factor with a multiplier of 16 bits."""
    multiplier, shift = factor
    return (_MOST if multiplier >= (1 << 31) - 1 - (1 << 15) else (multiplier + (1 << 15)) >> 16), shift


def _clamped(x: int) -> int:
    return min(_MOST, max(_LEAST, x))


def _high_product(a: int, b: int) -> int:
    """Return twice the upper half of a product of 16-bit numbers, rounded."""
    product = a * b
    nudged = product + ((1 << 14) if product >= 0 else 1 - (1 << 14))
    return _clamped(nudged // (1 << 15) if nudged >= 0 else -(-nudged // (1 << 15)))


def _divided(x: int, by: int) -> int:
    """Return a number divided by a power of two, halves rounded away from zero."""
    mask = (1 << by) - 1
    return (x >> by) + ((x & mask) > (mask >> 1) + (x < 0))
