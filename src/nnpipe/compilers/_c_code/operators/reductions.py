"""Means, sums, and the greatest and least along axes."""

from __future__ import annotations

import math

from nnpipe.compilers._c_code.fixed_point import LIMITS, multiplier_of, scale_of, zero_of
from nnpipe.compilers._c_code.operators.common_kernels import CLAMP_Q, RESCALE
from nnpipe.compilers._c_code.step import C_TYPES, SUFFIXES, CKernel, CStep, OperatorView, braced, struct

_REDUCTION = (CKernel("axes.c"), CKernel("reduction.c"))
_MOST = 1 << 22  # elements of a mean, so that sums of 8-bit numbers stay below 2^31


def mean(op: OperatorView) -> CStep:
    """Return the step of MEAN."""
    data, out = op.input(0), op.output()
    place, count = _reduced(op)
    op.expect(count <= _MOST, "it is the mean of too many elements")
    kinds = (data.spec.dtype, out.spec.dtype)
    if kinds == ("float32", "float32"):
        return CStep(
            f"nn_mean_f32({{in0}}, {{out0}}, &r, {count}.0f);", (*_REDUCTION, CKernel("mean_f.c")), before=[place]
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
        (CLAMP_Q, RESCALE, *_REDUCTION, CKernel("mean_q.c", words)),
        before=[place, struct(f"nn_mean_{SUFFIXES[kinds[0]]}", "m", values)],
    )  # fmt: skip


def total(op: OperatorView) -> CStep:
    """Return the step of SUM, of real numbers."""
    if op.types() != ("float32", "int32", "float32"):
        raise op.unsupported()
    return _folded(op, "sum", "0", "found + x")


def reduce_max(op: OperatorView) -> CStep:
    """Return the step of REDUCE_MAX."""
    _expect_numbers(op)
    return _folded(op, "max", "from[0]", "x > found ? x : found")


def reduce_min(op: OperatorView) -> CStep:
    """Return the step of REDUCE_MIN."""
    _expect_numbers(op)
    return _folded(op, "min", "from[0]", "x < found ? x : found")


def cumsum(op: OperatorView) -> CStep:
    """Return the step of CUMSUM; whole numbers wrap around."""
    data, axes = op.input(0), op.integers(1)
    op.expect(len(axes) == 1, "it has several axes")
    axis = op.axis(axes[0], len(data.shape))
    op.expect_shape(data.shape)
    kind = data.spec.dtype
    op.expect(kind == op.output().spec.dtype and kind in ("float32", "int32", "int64"), str(op.unsupported()))
    sums = {"float32": "float", "int32": "uint32_t", "int64": "uint64_t"}[kind]
    words = (("@", SUFFIXES[kind]), ("OUT", C_TYPES[kind]), ("SUM", sums))
    outer, inner = math.prod(data.shape[:axis]), math.prod(data.shape[axis + 1 :])
    how = ", ".join(str(int(op.operator.option(n, "<b") != 0)) for n in (0, 1))
    return CStep(
        f"nn_running_sum_{SUFFIXES[kind]}({{in0}}, {{out0}}, {outer}, {data.shape[axis]}, {inner}, {how});",
        (CKernel("running_sum.c", words),),
    )


def _expect_numbers(op: OperatorView) -> None:
    op.expect(op.input(0).spec.dtype in SUFFIXES, str(op.unsupported()))


def reduce_all(op: OperatorView) -> CStep:
    """Return the step of REDUCE_ALL, of truth values."""
    op.expect(op.input(0).spec.dtype == "bool", str(op.unsupported()))
    return _folded(op, "all", "1", "found && x")


def reduce_any(op: OperatorView) -> CStep:
    """Return the step of REDUCE_ANY, of truth values."""
    op.expect(op.input(0).spec.dtype == "bool", str(op.unsupported()))
    return _folded(op, "any", "0", "found || x")


def _folded(op: OperatorView, name: str, start: str, following: str) -> CStep:
    data, out = op.input(0), op.output()
    place, count = _reduced(op)
    op.expect(count > 0, "its input is empty")
    kind = data.spec.dtype
    op.expect(kind == out.spec.dtype and kind in {*SUFFIXES, "bool"}, str(op.unsupported()))
    same = (data.spec.scale, data.spec.zero_point) == (out.spec.scale, out.spec.zero_point)
    op.expect(same, "input and output have other scales")
    suffix = f"{name}_{SUFFIXES.get(kind, kind)}"
    words = (("@", suffix), ("OUT", C_TYPES[kind]), ("START", start), ("NEXT", following))
    return CStep(
        f"nn_reduce_{suffix}({{in0}}, {{out0}}, &r);", (*_REDUCTION, CKernel("reduce.c", words)), before=[place]
    )


def _reduced(op: OperatorView) -> tuple[str, int]:
    """Return the definition of a reduction, and of how many elements each result is made."""
    data = op.input(0)
    rank = len(data.shape)
    op.expect(1 <= rank <= 4 and min(data.shape) > 0, f"its input has the shape {data.shape}")
    axes = {op.axis(axis, rank) for axis in op.integers(1)}
    kept = [n for n in range(rank) if n not in axes]
    op.expect_shape(
        [1 if n in axes else length for n, length in enumerate(data.shape)]
        if op.operator.option(0, "<b")
        else [data.shape[n] for n in kept]
    )
    place = struct("nn_reduction", "r", [*_axes(data.shape, kept), *_axes(data.shape, sorted(axes))])
    return place, math.prod(data.shape[n] for n in axes)


def _axes(shape: tuple[int, ...], axes: list[int]) -> list[str]:
    lengths = [1] * (4 - len(axes)) + [shape[n] for n in axes]
    steps = [0] * (4 - len(axes)) + [math.prod(shape[n + 1 :]) for n in axes]
    return [braced(lengths), braced(steps)]
