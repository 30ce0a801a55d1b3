"""Functions of single elements; those of 8-bit numbers are tables."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.fixed_point import LIMITS, multiplier_of, quantised_range, scale_of, zero_of
from nnpipe.compilers._c_code.operators.common_kernels import CLAMP, CLAMP_Q
from nnpipe.compilers._c_code.rescaling import rescaled
from nnpipe.compilers._c_code.step import C_TYPES, SUFFIXES, CKernel, CStep, OperatorView, text_of

_BYTES = ("int8", "uint8")


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
    _expect_bytes(op)
    factor = multiplier_of(scale_of(op.input(0)) / scale_of(op.output()))
    low, high = quantised_range(activation, op.output())
    zero, out_zero = zero_of(op.input(0)), zero_of(op.output())
    return _table(op, lambda x: min(high, max(low, out_zero + rescaled(x - zero, *factor))))


def quantize(op: OperatorView) -> CStep:
    """Return the step of QUANTIZE: of real numbers, or from one scale to another."""
    op.expect_shape(op.input(0).shape)
    kinds = op.types()
    if kinds[0] == "float32" and kinds[1] in _BYTES:
        low, high = LIMITS[kinds[1]]
        words = (("@", SUFFIXES[kinds[1]]), ("OUT", C_TYPES[kinds[1]]), ("LEAST", str(low)), ("MOST", str(high)))
        return CStep(
            f"nn_quantise_{SUFFIXES[kinds[1]]}({{in0}}, {{out0}}, {op.output().count}, "
            f"{text_of(scale_of(op.output()))}, {zero_of(op.output())});",
            (CLAMP_Q, CKernel("quantise.c", words)),
        )  # fmt: skip
    _expect_bytes(op)
    low, high = LIMITS[kinds[1]]
    factor = multiplier_of(scale_of(op.input(0)) / scale_of(op.output()))
    zero, out_zero = zero_of(op.input(0)), zero_of(op.output())
    return _table(op, lambda x: min(high, max(low, out_zero + rescaled(x - zero, *factor))))


def dequantize(op: OperatorView) -> CStep:
    """Return the step of DEQUANTIZE."""
    op.expect_shape(op.input(0).shape)
    kinds = op.types()
    if kinds[0] not in (*_BYTES, "int16") or kinds[1] != "float32":
        raise op.unsupported()
    words = (("@", SUFFIXES[kinds[0]]), ("IN", C_TYPES[kinds[0]]))
    return CStep(
        f"nn_dequantise_{SUFFIXES[kinds[0]]}({{in0}}, {{out0}}, {op.output().count}, "
        f"{float(scale_of(op.input(0))).hex()}, {zero_of(op.input(0))});",
        (CKernel("dequantise.c", words),),
    )  # fmt: skip


def logistic(op: OperatorView) -> CStep:
    """Return the step of LOGISTIC, of real numbers."""
    return _real(op, "logistic")


def tanh(op: OperatorView) -> CStep:
    """Return the step of TANH, of real numbers."""
    return _real(op, "tanh")


def leaky_relu(op: OperatorView) -> CStep:
    """Return the step of LEAKY_RELU, of 8-bit numbers."""
    op.expect_shape(op.input(0).shape)
    _expect_bytes(op)
    data, out = op.input(0), op.output()
    alpha = op.operator.real_option(0)
    plain = multiplier_of(scale_of(data) / scale_of(out))
    # The preparation multiplies in 32 bits.
    steep = np.float32(scale_of(data)) * np.float32(alpha)
    sloped = multiplier_of(float(steep) / scale_of(out))
    low, high = LIMITS[out.spec.dtype]

    def value(x: int) -> int:
        x -= zero_of(data)
        return min(high, max(low, zero_of(out) + rescaled(x, *(plain if x >= 0 else sloped))))

    return _table(op, value)


def _real(op: OperatorView, name: str) -> CStep:
    op.expect_shape(op.input(0).shape)
    if op.types() != ("float32", "float32"):
        raise op.unsupported()
    return CStep(f"nn_{name}_f32({{in0}}, {{out0}}, {op.output().count});", (CKernel("exp.c"), CKernel(f"{name}_f.c")))


def _expect_bytes(op: OperatorView) -> None:
    kinds = op.types()
    if len(kinds) != 2 or not set(kinds) <= set(_BYTES):
        raise op.unsupported()


def _table(op: OperatorView, value: Callable[[int], int]) -> CStep:
    """Return a step that looks each element up; the table is ordered by the element's bits."""
    kinds = op.types()
    inputs = np.arange(256, dtype=np.uint8).view(kinds[0])
    found: npt.NDArray[np.generic] = np.array([value(int(x)) for x in inputs], kinds[1])
    return CStep(
        f"nn_table({{in0}}, {{out0}}, {op.output().count}, {{table}});",
        (CKernel("table.c"),), {"table": found.view(np.uint8)},
    )  # fmt: skip
