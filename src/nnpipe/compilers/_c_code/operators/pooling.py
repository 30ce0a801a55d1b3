"""Pooling and softmax."""

from __future__ import annotations

import math

import numpy as np

from nnpipe.compilers._c_code.fixed_point import LIMITS, float_range, quantised_range, scale_of, zero_of
from nnpipe.compilers._c_code.operators.common_kernels import CLAMP, CLAMP_Q, INSIDE, WINDOW
from nnpipe.compilers._c_code.operators.convolutions import window
from nnpipe.compilers._c_code.step import C_TYPES, SUFFIXES, CKernel, CStep, OperatorView, struct, text_of

_LARGEST_WINDOW = 1 << 15  # elements, so that sums of 16-bit numbers stay below 2^31


def average_pool_2d(op: OperatorView) -> CStep:
    """Return the step of AVERAGE_POOL_2D."""
    return _pool(op, "average_pool")


def max_pool_2d(op: OperatorView) -> CStep:
    """Return the step of MAX_POOL_2D."""
    return _pool(op, "max_pool")


def _pool(op: OperatorView, name: str) -> CStep:
    strides, sizes = ([op.operator.option(n, "<i", 0) for n in pair] for pair in ((2, 1), (4, 3)))
    data, out = op.input(0), op.output()
    channels = data.shape[-1] if data.shape else 0
    numbers = window(op, (sizes[0], sizes[1], 1), channels, [*strides, 1, 1], op.operator.option(0, "<b"))
    op.expect(sizes[0] * sizes[1] <= _LARGEST_WINDOW, "its window is too large")
    place, activation = [struct("nn_window", "w", numbers)], op.operator.option(5, "<b")
    kind = data.spec.dtype
    op.expect(kind == out.spec.dtype, str(op.unsupported()))
    if kind == "float32":
        low, high = map(text_of, float_range(activation))
        words = (("@", "f32"), ("OUT", "float"), ("NUMBER", "float"), ("CLAMP", "nn_clamp_f32"))
        kernel = CKernel("average_pool_f.c") if name == "average_pool" else CKernel("max_pool.c", words)
        return CStep(
            f"nn_{name}_f32({{in0}}, {{out0}}, &w, {low}, {high});", (CLAMP, WINDOW, INSIDE, kernel), before=place
        )
    if kind not in ("int8", "uint8", "int16"):
        raise op.unsupported()
    op.expect((data.spec.scale, zero_of(data)) == (out.spec.scale, zero_of(out)), "input and output have other scales")
    least, most = quantised_range(activation, out)
    words = (("@", SUFFIXES[kind]), ("OUT", C_TYPES[kind]), ("NUMBER", "int32_t"), ("CLAMP", "nn_clamp"))
    kernel = CKernel("average_pool_q.c" if name == "average_pool" else "max_pool.c", words)
    return CStep(
        f"nn_{name}_{SUFFIXES[kind]}({{in0}}, {{out0}}, &w, {least}, {most});",
        (CLAMP_Q, WINDOW, INSIDE, kernel),
        before=place,
    )


def softmax(op: OperatorView) -> CStep:
    """Return the step of SOFTMAX along the last axis."""
    data, out = op.input(0), op.output()
    op.expect(len(data.shape) > 0 and min(data.shape) > 0, "its input is empty")
    op.expect_shape(data.shape)
    length = data.shape[-1]
    rows = data.count // length
    beta = op.operator.real_option(0)
    op.expect(math.isfinite(beta) and beta > 0, f"its beta is {beta}")
    kinds = op.types()
    if kinds == ("float32", "float32"):
        return CStep(
            f"nn_softmax_f32({{in0}}, {{out0}}, {rows}, {length}, {text_of(beta)});",
            (CKernel("exp.c"), CKernel("softmax_f.c")),
        )
    if kinds not in (("int8", "int8"), ("uint8", "uint8")):
        raise op.unsupported()
    low, high = LIMITS[kinds[0]]
    factor = np.float32(-np.float32(scale_of(data)) * np.float32(beta))
    # In double, then rounded: as near to the truth as C's expf.
    powers = np.exp(np.float32(factor * np.arange(256, dtype=np.float32)).astype(np.float64)).astype(np.float32)
    table = np.ascontiguousarray(powers[::-1])
    op.expect(scale_of(out) >= 1 / 65536, "its output has a very small scale")
    words = (("@", SUFFIXES[kinds[0]]), ("OUT", C_TYPES[kinds[0]]), ("LEAST", str(low)), ("MOST", str(high)))
    return CStep(
        f"nn_softmax_{SUFFIXES[kinds[0]]}({{in0}}, {{out0}}, {rows}, {length}, {{table}}, "
        f"{text_of(scale_of(out))}, {zero_of(out)});",
        (CLAMP_Q, CKernel("softmax_q.c", words)), {"table": table},
    )  # fmt: skip
