"""Functions of single elements: of 8-bit numbers, tables that are computed ahead of time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.fixed_point import LIMITS, multiplier_of, rounded, scale_of, zero_of
from nnpipe.compilers._c_code.operators import functions
from nnpipe.compilers._c_code.operators.hard_swish import hard_swish_of
from nnpipe.compilers._c_code.rescaling import inverse_root, rescaled
from nnpipe.compilers._c_code.step import CKernel, CStep, OperatorView

BYTES = ("int8", "uint8")


def absolute(op: OperatorView) -> CStep:
    """Return the step of ABS."""
    if _is_real(op):
        return functions.absolute(op)
    _expect_int8(op)
    data, out = op.input(0), op.output()
    zero, out_zero, same = zero_of(data), zero_of(out), scale_of(data) == scale_of(out)
    # LiteRT computes this factor in 32 bits.
    factor = multiplier_of(float(np.float32(scale_of(data)) / np.float32(scale_of(out))))
    return table(op, lambda x: out_zero + (abs(x - zero) if same else rescaled(abs(x - zero), *factor)))


def elu(op: OperatorView) -> CStep:
    """Return the step of ELU."""
    if _is_real(op):
        return functions.elu(op)
    _expect_int8(op)
    return looked_up(op, lambda x: float(np.float32(math.exp(x)) - np.float32(1)) if x < 0 else x)


def hard_swish(op: OperatorView) -> CStep:
    """Return the step of HARD_SWISH."""
    if _is_real(op):
        return functions.hard_swish(op)
    op.expect_shape(op.input(0).shape)
    if op.types() not in (("int8",) * 2, ("uint8",) * 2):
        raise op.unsupported()
    return table(op, hard_swish_of(op.input(0), op.output()))


def inverse_square_root(op: OperatorView) -> CStep:
    """Return the step of RSQRT; what is not above zero becomes the greatest number."""
    if _is_real(op):
        return functions.inverse_root(op)
    _expect_int8(op)
    data, out = op.input(0), op.output()
    root = float(np.sqrt(np.float32(scale_of(data))))
    multiplier, shift = multiplier_of(float(1 / (np.float32(root) * np.float32(scale_of(out)))))
    op.expect(shift <= 20, "its output has a very small scale")
    zero, out_zero = zero_of(data), zero_of(out)

    def value(x: int) -> int:
        if x <= zero:
            return 127
        inverse, by = inverse_root(x - zero)
        return out_zero + rescaled(rescaled(1, inverse, by + 20), multiplier, shift - 20)

    return table(op, value)


def logarithm(op: OperatorView) -> CStep:
    """Return the step of LOG; of numbers that have none, it is the least one of the output."""
    if _is_real(op):
        return functions.logarithm(op)
    _expect_int8(op)
    out = op.output()
    least = float(np.float32(-128 - zero_of(out)) * np.float32(scale_of(out)))
    return looked_up(op, lambda x: math.log(x) if x > 0 else least)


def logistic(op: OperatorView) -> CStep:
    """Return the step of LOGISTIC."""
    if _is_real(op):
        return functions.logistic(op)
    _expect_scale(op, 256, {"int8": -128, "uint8": 0})
    one = np.float32(1)
    with np.errstate(over="ignore"):  # each step rounded to 32 bits, as in LiteRT
        return looked_up(op, lambda x: float(one / (one + np.float32(math.exp(-max(x, -700.0))))))


def tanh(op: OperatorView) -> CStep:
    """Return the step of TANH."""
    if _is_real(op):
        return functions.tanh(op)
    _expect_scale(op, 128, {"int8": 0, "uint8": 128})
    return looked_up(op, math.tanh)


def _is_real(op: OperatorView) -> bool:
    return op.input(0).spec.dtype == "float32"


def _expect_int8(op: OperatorView) -> None:
    if op.types() != ("int8", "int8"):
        raise op.unsupported()
    op.expect_shape(op.input(0).shape)


def _expect_scale(op: OperatorView, steps: int, zeros: Mapping[str, int]) -> None:
    """Check that a result has the scale 1 / steps, as LiteRT demands it."""
    expect_bytes(op)
    op.expect_shape(op.input(0).shape)
    data, out = op.input(0), op.output()
    op.expect(data.spec.dtype == out.spec.dtype, str(op.unsupported()))
    holds = scale_of(out) == 1 / steps and zero_of(out) == zeros[out.spec.dtype]
    op.expect(holds, f"its output has another scale than 1 / {steps}, or another zero point")


def looked_up(op: OperatorView, function: Callable[[float], float]) -> CStep:
    """Return a step that looks up a function of real numbers, with all of its numbers in 32 bits as LiteRT has them."""
    data, out = op.input(0), op.output()
    scale, zero, out_zero = np.float32(scale_of(data)), zero_of(data), zero_of(out)
    with np.errstate(over="ignore"):
        steps = np.float32(1) / np.float32(scale_of(out))
        op.expect(bool(np.isfinite(scale * np.float32(256)) and np.isfinite(steps)), "its scales are no use")

    def value(x: int) -> int:
        found = np.float32(function(float(scale * np.float32(x - zero))))
        return rounded(float(np.clip(found * steps, -1e9, 1e9))) + out_zero

    return table(op, value)


def expect_bytes(op: OperatorView) -> None:
    """Check that the input and the output are 8-bit numbers."""
    kinds = op.types()
    if len(kinds) != 2 or not set(kinds) <= set(BYTES):
        raise op.unsupported()


def table(op: OperatorView, value: Callable[[int], int]) -> CStep:
    """Return a step that looks each element up; the table is ordered by the element's bits."""
    kinds = op.types()
    low, high = LIMITS[kinds[1]]
    inputs = np.arange(256, dtype=np.uint8).view(kinds[0])
    found: npt.NDArray[np.generic] = np.array([min(high, max(low, value(int(x)))) for x in inputs], kinds[1])
    return CStep(
        f"nn_table({{in0}}, {{out0}}, {op.output().count}, {{table}});",
        (CKernel("table.c"),), {"table": found.view(np.uint8)},
    )  # fmt: skip
