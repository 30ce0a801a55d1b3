"""Softmax and its logarithm, along the last axis: of 8-bit numbers in fixed point."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.fixed_point import LIMITS, multiplier_of, scale_of, zero_of
from nnpipe.compilers._c_code.operators.common_kernels import CLAMP_Q, RAISED, RESCALE
from nnpipe.compilers._c_code.rescaling import divided, power_of_e, rescaled
from nnpipe.compilers._c_code.step import C_TYPES, SUFFIXES, CKernel, CStep, OperatorView, braced, text_of

_BITS = 5  # before the point of a difference
_LONGEST = 1 << 12  # a sum of so many powers has 12 bits before the point
_KERNELS = (CLAMP_Q, RESCALE, RAISED, CKernel("inverse_of_sum.c"))


def softmax(op: OperatorView) -> CStep:
    """Return the step of SOFTMAX."""
    rows, length = _rows(op)
    beta = op.operator.real_option(0)
    op.expect(math.isfinite(beta) and beta > 0, f"its beta is {beta}")
    kinds = op.types()
    if kinds == ("float32", "float32"):
        return CStep(
            f"nn_softmax_f32({{in0}}, {{out0}}, {rows}, {length}, {text_of(beta)});",
            (CKernel("exp.c"), CKernel("softmax_f.c")),
        )
    op.expect(kinds in (("int8", "int8"), ("uint8", "uint8")), str(op.unsupported()))
    low, high = LIMITS[kinds[0]]
    holds = abs(scale_of(op.output()) * 256 - 1) <= 0.001 and zero_of(op.output()) == low
    op.expect(holds, "its output has another scale than 1 / 256, or another zero point")
    powers, _, _ = _powers(op, length, beta)
    words = (("@", SUFFIXES[kinds[0]]), ("OUT", C_TYPES[kinds[0]]), ("LEAST", str(low)), ("MOST", str(high)))
    return CStep(
        f"nn_softmax_{SUFFIXES[kinds[0]]}({{in0}}, {{out0}}, {rows}, {length}, {{powers}});",
        (*_KERNELS, CKernel("softmax_q.c", words)), {"powers": powers},
    )  # fmt: skip


def log_softmax(op: OperatorView) -> CStep:
    """Return the step of LOG_SOFTMAX."""
    rows, length = _rows(op)
    if op.types() == ("float32", "float32"):
        return CStep(
            f"nn_log_softmax_f32({{in0}}, {{out0}}, {rows}, {length});",
            (CKernel("exp.c"), CKernel("log.c"), CKernel("log_softmax_f.c")),
        )
    op.expect(op.types() == ("int8", "int8"), str(op.unsupported()))
    holds = scale_of(op.output()) == 16 / 256 and zero_of(op.output()) == 127
    op.expect(holds, "its output has another scale than 1 / 16, or another zero point")
    powers, (multiplier, shift), least = _powers(op, length, 1)
    back = multiplier_of((1 << 31 - shift) / multiplier)
    op.expect(back[1] <= 0, "its input has a very small scale")
    return CStep(
        f"nn_log_softmax_s8({{in0}}, {{out0}}, {rows}, {length}, {{powers}}, factors, {least});",
        (*_KERNELS, CKernel("log_softmax_q.c")),
        {"powers": np.array([divided(int(power), 12) for power in powers], np.int32)},
        [f"static const int32_t factors[4] = {braced([multiplier, shift, *back])};"],
    )  # fmt: skip


def _rows(op: OperatorView) -> tuple[int, int]:
    data = op.input(0)
    op.expect(len(data.shape) > 0 and min(data.shape) > 0, "its input is empty")
    op.expect_shape(data.shape)
    return data.count // data.shape[-1], data.shape[-1]


def _powers(op: OperatorView, length: int, beta: float) -> tuple[npt.NDArray[np.int32], tuple[int, int], int]:
    """Return powers of e for the differences 0 to -255, the factor of a difference, and the least one that counts."""
    op.expect(length < _LONGEST, "its rows are too long")
    scale = beta * scale_of(op.input(0)) * 2.0 ** (31 - _BITS)
    op.expect(1 < scale < 1 << 30, "its input has a very small or a very large scale")
    multiplier, shift = multiplier_of(scale)
    least = -math.floor(((1 << _BITS) - 1) * (1 << 31 - _BITS) / (1 << shift))
    found = [power_of_e(rescaled(-x, multiplier, shift), _BITS) if -x >= least else 0 for x in range(256)]
    return np.array(found, np.int32), (multiplier, shift), least
