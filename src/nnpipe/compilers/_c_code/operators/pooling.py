"""Pooling."""

from __future__ import annotations

from nnpipe.compilers._c_code.fixed_point import float_range, quantised_range, zero_of
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
