"""The logarithm of softmax."""

from __future__ import annotations

import math

import numpy as np

from nnpipe.compilers._c_code.fixed_point import multiplier_of, scale_of, zero_of
from nnpipe.compilers._c_code.operators.common_kernels import CLAMP_Q, RAISED, RESCALE
from nnpipe.compilers._c_code.rescaling import divided, power_of_e, rescaled
from nnpipe.compilers._c_code.step import CKernel, CStep, OperatorView, braced

_BITS = 5  # before the point of a difference
_LONGEST = 1 << 12  # a sum of so many powers has 12 bits before the point


def log_softmax(op: OperatorView) -> CStep:
    """Return the step of LOG_SOFTMAX along the last axis."""
    data, out = op.input(0), op.output()
    op.expect(len(data.shape) > 0 and min(data.shape) > 0, "its input is empty")
    op.expect_shape(data.shape)
    length = data.shape[-1]
    rows = data.count // length
    if op.types() == ("float32", "float32"):
        return CStep(
            f"nn_log_softmax_f32({{in0}}, {{out0}}, {rows}, {length});",
            (CKernel("exp.c"), CKernel("log.c"), CKernel("log_softmax_f.c")),
        )
    op.expect(op.types() == ("int8", "int8"), str(op.unsupported()))
    holds = scale_of(out) == 16 / 256 and zero_of(out) == 127
    op.expect(holds, "its output has another scale than 1 / 16, or another zero point")
    op.expect(length < _LONGEST, "its rows are too long")
    scale = scale_of(data) * 2.0 ** (31 - _BITS)
    op.expect(1 < scale < 1 << 30, "its input has a very small or a very large scale")
    multiplier, shift = multiplier_of(scale)
    back = multiplier_of((1 << 31 - shift) / multiplier)
    op.expect(back[1] <= 0, "its input has a very small scale")
    least = -math.floor(((1 << _BITS) - 1) * (1 << 31 - _BITS) / (1 << shift))
    powers = [divided(power_of_e(rescaled(-x, multiplier, shift), _BITS), 12) if -x >= least else 0 for x in range(256)]
    return CStep(
        f"nn_log_softmax_s8({{in0}}, {{out0}}, {rows}, {length}, {{powers}}, factors, {least});",
        (CLAMP_Q, RESCALE, RAISED, CKernel("log_softmax_q.c")), {"powers": np.array(powers, np.int32)},
        [f"static const int32_t factors[4] = {braced([multiplier, shift, *back])};"],
    )  # fmt: skip
