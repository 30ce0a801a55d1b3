"""Other scales and types of single elements, and where they are cut off."""

from __future__ import annotations

import math

import numpy as np

from nnpipe.compilers._c_code.fixed_point import LIMITS, multiplier_of, quantised_range, scale_of, zero_of
from nnpipe.compilers._c_code.operators.common_kernels import CLAMP, CLAMP_Q, RESCALE
from nnpipe.compilers._c_code.operators.tables import BYTES, expect_bytes, table
from nnpipe.compilers._c_code.rescaling import rescaled
from nnpipe.compilers._c_code.step import C_TYPES, SUFFIXES, CKernel, CStep, OperatorView, text_of


def relu(op: OperatorView) -> CStep:
    """Return the step of RELU."""
    return _clamped(op, 1)


def relu_n1_to_1(op: OperatorView) -> CStep:
    """Return the step of RELU_N1_TO_1."""
    return _clamped(op, 2)


def relu6(op: OperatorView) -> CStep:
    """Return the step of RELU6."""
    return _clamped(op, 3)


def _clamped(op: OperatorView, activation: int) -> CStep:
    op.expect_shape(op.input(0).shape)
    if op.types() == ("float32", "float32"):
        low, high = ((0.0, math.inf), (-1.0, 1.0), (0.0, 6.0))[activation - 1]
        return CStep(
            f"nn_clamp_all_f32({{in0}}, {{out0}}, {op.output().count}, {text_of(low)}, {text_of(high)});",
            (CLAMP, CKernel("clamp_all_f.c")),
        )
    expect_bytes(op)
    factor = multiplier_of(scale_of(op.input(0)) / scale_of(op.output()))
    low, high = quantised_range(activation, op.output())
    zero, out_zero = zero_of(op.input(0)), zero_of(op.output())
    return table(op, lambda x: min(high, max(low, out_zero + rescaled(x - zero, *factor))))


def quantize(op: OperatorView) -> CStep:
    """Return the step of QUANTIZE: of real numbers, or from one scale to another."""
    op.expect_shape(op.input(0).shape)
    kinds = op.types()
    if kinds[0] == "float32" and kinds[1] in BYTES:
        low, high = LIMITS[kinds[1]]
        words = (("@", SUFFIXES[kinds[1]]), ("OUT", C_TYPES[kinds[1]]), ("LEAST", str(low)), ("MOST", str(high)))
        return CStep(
            f"nn_quantise_{SUFFIXES[kinds[1]]}({{in0}}, {{out0}}, {op.output().count}, "
            f"{text_of(scale_of(op.output()))}, {zero_of(op.output())});",
            (CLAMP_Q, CKernel("quantise.c", words)),
        )  # fmt: skip
    if "int16" in kinds or kinds[1] == "int32":
        return _rescaled(op)
    expect_bytes(op)
    low, high = LIMITS[kinds[1]]
    factor = multiplier_of(scale_of(op.input(0)) / scale_of(op.output()))
    zero, out_zero = zero_of(op.input(0)), zero_of(op.output())
    return table(op, lambda x: min(high, max(low, out_zero + rescaled(x - zero, *factor))))


def _rescaled(op: OperatorView) -> CStep:
    """Return a step that computes each number in another scale; there are too many for a table."""
    kinds = op.types()
    if kinds[0] not in ("int8", "int16") or kinds[1] not in ("int8", "int16", "int32"):
        raise op.unsupported()
    multiplier, shift = multiplier_of(scale_of(op.input(0)) / scale_of(op.output()))
    zero, out_zero = zero_of(op.input(0)), zero_of(op.output())
    op.expect(shift <= 14, "its output has a very small scale")  # a number has up to 17 bits
    op.expect(kinds[1] != "int32" or out_zero == 0, "its output of 32 bits has a zero point")
    low, high = LIMITS[kinds[1]]
    suffix = f"{SUFFIXES[kinds[0]]}_{SUFFIXES[kinds[1]]}"
    words = (
        ("@", suffix), ("IN", C_TYPES[kinds[0]]), ("OUT", C_TYPES[kinds[1]]),
        ("LEAST", str(low) if kinds[1] != "int32" else "INT32_MIN"), ("MOST", str(high)),
    )  # fmt: skip
    return CStep(
        f"nn_rescale_all_{suffix}({{in0}}, {{out0}}, {op.output().count}, {zero}, {multiplier}, {shift}, {out_zero});",
        (CLAMP_Q, RESCALE, CKernel("rescale_all.c", words)),
    )


def dequantize(op: OperatorView) -> CStep:
    """Return the step of DEQUANTIZE."""
    op.expect_shape(op.input(0).shape)
    kinds = op.types()
    if kinds[0] not in (*BYTES, "int16") or kinds[1] != "float32":
        raise op.unsupported()
    words = (("@", SUFFIXES[kinds[0]]), ("IN", C_TYPES[kinds[0]]))
    return CStep(
        f"nn_dequantise_{SUFFIXES[kinds[0]]}({{in0}}, {{out0}}, {op.output().count}, "
        f"{float(scale_of(op.input(0))).hex()}, {zero_of(op.input(0))});",
        (CKernel("dequantise.c", words),),
    )  # fmt: skip


def cast(op: OperatorView) -> CStep:
    """Return the step of CAST; real numbers that are too large for integers become the greatest one."""
    op.expect_shape(op.input(0).shape)
    kinds = op.types()
    if len(kinds) != 2 or not set(kinds) <= {*SUFFIXES, "bool"}:
        raise op.unsupported()
    low, high = LIMITS.get(kinds[1], (0, 0))
    # The greatest real number that is not too large: that of 32 bits lies below the integer.
    most = float(np.nextafter(np.float32(high), np.float32(0))) if high > 1 << 24 else float(high)
    how = ""
    if kinds[1] == "bool":
        how = "0 != "
    elif kinds[0] == "float32" and kinds[1] != "float32":
        how = f"nn_clamp_to_{kinds[1]}"
    names = [{**SUFFIXES, "bool": "bool"}[kind] for kind in kinds]
    words = (("@", "_".join(names)), ("IN", C_TYPES[kinds[0]]), ("OUT", C_TYPES[kinds[1]]), ("CAST", how))
    kernels: list[CKernel] = []
    if how.startswith("nn_clamp"):
        kernels.append(CKernel("clamp_to.c", (("@", kinds[1]), ("LEAST", f"{float(low)}f"), ("MOST", f"{most}f"))))
    return CStep(
        f"nn_cast_{'_'.join(names)}({{in0}}, {{out0}}, {op.output().count});", (*kernels, CKernel("cast.c", words))
    )


def leaky_relu(op: OperatorView) -> CStep:
    """Return the step of LEAKY_RELU, of 8-bit and 16-bit numbers."""
    op.expect_shape(op.input(0).shape)
    data, out = op.input(0), op.output()
    alpha = op.operator.real_option(0)
    # LiteRT computes these factors in 32 bits.
    scale, out_scale = np.float32(scale_of(data)), np.float32(scale_of(out))
    plain = multiplier_of(float(scale / out_scale))
    sloped = multiplier_of(float(scale * np.float32(alpha) / out_scale))
    if op.types() == ("int16", "int16"):
        op.expect(not (zero_of(data) or zero_of(out)), "a zero point of 16-bit numbers is not 0")
        op.expect(max(plain[1], sloped[1]) <= 15, "its output has a very small scale")
        return CStep(
            f"nn_leaky_relu_s16({{in0}}, {{out0}}, {out.count}, {plain[0]}, {plain[1]}, {sloped[0]}, {sloped[1]});",
            (CLAMP_Q, RESCALE, CKernel("leaky_relu.c")),
        )
    expect_bytes(op)
    low, high = LIMITS[out.spec.dtype]

    def value(x: int) -> int:
        x -= zero_of(data)
        return min(high, max(low, zero_of(out) + rescaled(x, *(plain if x >= 0 else sloped))))

    return table(op, value)
