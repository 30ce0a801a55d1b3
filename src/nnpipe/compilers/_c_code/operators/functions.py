"""Functions of single elements that are computed one by one, and such with a slope for negative numbers."""

from __future__ import annotations

import numpy as np

from nnpipe.compilers._c_code.fixed_point import LIMITS, multiplier_of, scale_of, zero_of
from nnpipe.compilers._c_code.operators.common_kernels import CLAMP, CLAMP_Q, RESCALE
from nnpipe.compilers._c_code.operators.hard_swish import hard_swish_of
from nnpipe.compilers._c_code.operators.pairs import PAIRS, positions
from nnpipe.compilers._c_code.operators.unary import table
from nnpipe.compilers._c_code.step import C_TYPES, SUFFIXES, Builder, CKernel, CStep, OperatorView, struct


def real_function(name: str, value: str, *kernels: str) -> Builder:
    """Return the builder of a function of real numbers; ``value`` computes it in C from ``x``."""

    def build(op: OperatorView) -> CStep:
        op.expect_shape(op.input(0).shape)
        if op.types() != ("float32", "float32"):
            raise op.unsupported()
        words = (("@", name), ("VALUE", value))
        return CStep(
            f"nn_{name}_f32({{in0}}, {{out0}}, {op.output().count});",
            (*map(CKernel, kernels), CKernel("function_f.c", words)),
        )

    return build


absolute = real_function("abs", "x < 0 ? -x : x")
exponential = real_function("exp_of", "nn_exp(x)", "exp.c")
negative = real_function("neg", "-x")
square = real_function("square", "x * x")
_real_hard_swish = real_function("hard_swish", "x * nn_clamp_f32(x + 3, 0, 6) / 6", CLAMP.file)


def hard_swish(op: OperatorView) -> CStep:
    """Return the step of HARD_SWISH."""
    if op.input(0).spec.dtype == "float32":
        return _real_hard_swish(op)  # type: ignore[return-value]  # such a function moves its elements
    op.expect_shape(op.input(0).shape)
    if op.types() not in (("int8",) * 2, ("uint8",) * 2):
        raise op.unsupported()
    return table(op, hard_swish_of(op.input(0), op.output()))


def prelu(op: OperatorView) -> CStep:
    """Return the step of PRELU."""
    kinds = op.types()
    if kinds == ("float32",) * 3:
        return CStep("nn_prelu_f32({in0}, {in1}, {out0}, &p);", (PAIRS, CKernel("prelu_f.c")), before=[positions(op)])
    if kinds not in (("int8",) * 3, ("uint8",) * 3):
        raise op.unsupported()
    data, slope, out = op.input(0), op.input(1), op.output()
    # LiteRT computes these factors in 32 bits.
    scale, slope_scale, out_scale = (np.float32(scale_of(each)) for each in (data, slope, out))
    plain = multiplier_of(float(scale / out_scale))
    sloped = multiplier_of(float(scale * slope_scale / out_scale))
    op.expect(plain[1] <= 22 and sloped[1] <= 14, "its output has a very small scale")
    low, high = LIMITS[kinds[0]]
    suffix = SUFFIXES[kinds[0]]
    words = (("@", suffix), ("OUT", C_TYPES[kinds[0]]), ("LEAST", str(low)), ("MOST", str(high)))
    values = [zero_of(data), zero_of(slope), zero_of(out), *plain, *sloped]
    return CStep(
        f"nn_prelu_{suffix}({{in0}}, {{in1}}, {{out0}}, &p, &s);",
        (CLAMP_Q, RESCALE, PAIRS, CKernel("prelu_q.c", words)),
        before=[positions(op), struct(f"nn_slope_{suffix}", "s", values)],
    )  # fmt: skip
