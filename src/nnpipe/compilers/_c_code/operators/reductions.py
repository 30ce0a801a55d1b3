"""Means along axes."""

from __future__ import annotations

import math

from nnpipe.compilers._c_code.fixed_point import LIMITS, multiplier_of, scale_of, zero_of
from nnpipe.compilers._c_code.operators.common_kernels import CLAMP_Q, RESCALE
from nnpipe.compilers._c_code.step import C_TYPES, SUFFIXES, CKernel, CStep, OperatorView, struct

_REDUCTION = CKernel("reduction.c")
_MOST = 1 << 22  # elements of a mean, so that sums of 8-bit numbers stay below 2^31


def mean(op: OperatorView) -> CStep:
    """Return the step of MEAN."""
    data, out = op.input(0), op.output()
    rank = len(data.shape)
    op.expect(1 <= rank <= 4 and min(data.shape) > 0, f"its input has the shape {data.shape}")
    axes = {axis + rank if axis < 0 else axis for axis in op.integers(1)}
    op.expect(axes <= set(range(rank)), "it has no such axis")
    kept = [n for n in range(rank) if n not in axes]
    op.expect_shape(
        [1 if n in axes else length for n, length in enumerate(data.shape)]
        if op.operator.option(0, "<b")
        else [data.shape[n] for n in kept]
    )
    count = math.prod(data.shape[n] for n in axes)
    op.expect(count <= _MOST, "it is the mean of too many elements")
    place = struct("nn_reduction", "r", [*_axes(data.shape, kept), *_axes(data.shape, sorted(axes))])
    kinds = (data.spec.dtype, out.spec.dtype)
    if kinds == ("float32", "float32"):
        return CStep(
            f"nn_mean_f32({{in0}}, {{out0}}, &r, {count}.0f);", (_REDUCTION, CKernel("mean_f.c")), before=[place]
        )
    if kinds not in (("int8", "int8"), ("uint8", "uint8")):
        raise op.unsupported()
    multiplier, shift = multiplier_of(scale_of(data) / scale_of(out))
    # The division becomes part of the factor.
    by = max(0, min(count.bit_length() - 1, 32, 31 + shift))
    multiplier, shift = (multiplier << by) // count, shift - by
    # A sum has up to 8 bits more than the count.
    op.expect(shift + count.bit_length() + 9 <= 31, "its output has a very small scale")
    low, high = LIMITS[kinds[0]]
    words = (("@", SUFFIXES[kinds[0]]), ("OUT", C_TYPES[kinds[0]]), ("LEAST", str(low)), ("MOST", str(high)))
    values = [zero_of(data) * count, multiplier, shift, zero_of(out)]
    return CStep(
        f"nn_mean_of_{SUFFIXES[kinds[0]]}({{in0}}, {{out0}}, &r, &m);",
        (CLAMP_Q, RESCALE, _REDUCTION, CKernel("mean_q.c", words)),
        before=[place, struct(f"nn_mean_{SUFFIXES[kinds[0]]}", "m", values)],
    )  # fmt: skip


def _axes(shape: tuple[int, ...], axes: list[int]) -> list[str]:
    lengths = [1] * (4 - len(axes)) + [shape[n] for n in axes]
    steps = [0] * (4 - len(axes)) + [math.prod(shape[n + 1 :]) for n in axes]
    return ["{" + ", ".join(map(str, values)) + "}" for values in (lengths, steps)]
