"""Means, sums, softmax, and the greatest and least of two tensors and along axes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.fixed_point import (
    LIMITS,
    apply_multiplier,
    compute_exponential,
    divide_by_power_of_two,
    get_scale,
    get_zero_point,
    quantize_multiplier,
)
from nnpipe.compilers._c_code.operators.binary import PAIRS, broadcast, build_pairwise_step
from nnpipe.compilers._c_code.operators.data_movement import check_same_quantization
from nnpipe.compilers._c_code.operators.quantised_layer import CLAMP_Q, RAISED, RESCALE
from nnpipe.compilers._c_code.step import (
    C_TYPES,
    SUFFIXES,
    CKernel,
    CStep,
    OperatorView,
    format_float,
    format_initializer,
    format_struct,
)

_REDUCTION = (CKernel("axes.c"), CKernel("reduction.c"))
_MOST = 1 << 22  # elements of a mean, so that sums of 8-bit numbers stay below 2^31


def build_mean(op: OperatorView) -> CStep:
    """Return the step of MEAN."""
    data, out = op.input(0), op.output()
    place, count = _describe_reduction(op)
    op.expect(count <= _MOST, "it is the mean of too many elements")
    kinds = (data.spec.dtype, out.spec.dtype)
    if kinds == ("float32", "float32"):
        return CStep(
            f"nn_mean_f32({{in0}}, {{out0}}, &r, {count}.0f);",
            (*_REDUCTION, CKernel("mean_f.c")),
            before=[place],
        )
    if kinds not in (("int8", "int8"), ("uint8", "uint8")):
        raise op.make_no_kernel_error()
    multiplier, shift = quantize_multiplier(get_scale(data) / get_scale(out))
    # The division becomes part of the factor.
    by = max(0, min(count.bit_length() - 1, 32, 31 + shift))
    multiplier, shift = (multiplier << by) // count, shift - by
    # A sum has up to 8 bits more than the count.
    op.expect(shift + count.bit_length() + 9 <= 31, "its output has a very small scale")
    low, high = LIMITS[kinds[0]]
    words = (
        ("@", SUFFIXES[kinds[0]]),
        ("OUT", C_TYPES[kinds[0]]),
        ("LEAST", str(low)),
        ("MOST", str(high)),
    )
    values = [get_zero_point(data) * count, multiplier, shift, get_zero_point(out)]
    return CStep(
        f"nn_mean_of_{SUFFIXES[kinds[0]]}({{in0}}, {{out0}}, &r, &m);",
        (CLAMP_Q, RESCALE, *_REDUCTION, CKernel("mean_q.c", words)),
        before=[place, format_struct(f"nn_mean_{SUFFIXES[kinds[0]]}", "m", values)],
    )


def build_sum(op: OperatorView) -> CStep:
    """Return the step of SUM, of real numbers."""
    if op.types() != ("float32", "int32", "float32"):
        raise op.make_no_kernel_error()
    return _build_reduction(op, "sum", "0", "found + x")


def build_reduce_max(op: OperatorView) -> CStep:
    """Return the step of REDUCE_MAX."""
    _check_numeric(op)
    return _build_reduction(op, "max", "from[0]", "x > found ? x : found")


def build_reduce_min(op: OperatorView) -> CStep:
    """Return the step of REDUCE_MIN."""
    _check_numeric(op)
    return _build_reduction(op, "min", "from[0]", "x < found ? x : found")


def build_cumsum(op: OperatorView) -> CStep:
    """Return the step of CUMSUM; whole numbers wrap around."""
    data, axes = op.input(0), op.integers(1)
    op.expect(len(axes) == 1, "it has several axes")
    axis = op.axis(axes[0], len(data.shape))
    op.expect_shape(data.shape)
    kind = data.spec.dtype
    op.expect(
        kind == op.output().spec.dtype and kind in ("float32", "int32", "int64"),
        str(op.make_no_kernel_error()),
    )
    sums = {"float32": "float", "int32": "uint32_t", "int64": "uint64_t"}[kind]
    words = (("@", SUFFIXES[kind]), ("OUT", C_TYPES[kind]), ("SUM", sums))
    outer, inner = math.prod(data.shape[:axis]), math.prod(data.shape[axis + 1 :])
    how = ", ".join(str(int(op.operator.read_option(n, "<b") != 0)) for n in (0, 1))
    return CStep(
        f"nn_running_sum_{SUFFIXES[kind]}({{in0}}, {{out0}}, {outer}, {data.shape[axis]}, {inner}, "
        f"{how});",
        (CKernel("running_sum.c", words),),
    )


def _check_numeric(op: OperatorView) -> None:
    op.expect(op.input(0).spec.dtype in SUFFIXES, str(op.make_no_kernel_error()))


def build_reduce_all(op: OperatorView) -> CStep:
    """Return the step of REDUCE_ALL, of truth values."""
    op.expect(op.input(0).spec.dtype == "bool", str(op.make_no_kernel_error()))
    return _build_reduction(op, "all", "1", "found && x")


def build_reduce_any(op: OperatorView) -> CStep:
    """Return the step of REDUCE_ANY, of truth values."""
    op.expect(op.input(0).spec.dtype == "bool", str(op.make_no_kernel_error()))
    return _build_reduction(op, "any", "0", "found || x")


def _build_reduction(op: OperatorView, name: str, start: str, following: str) -> CStep:
    data, out = op.input(0), op.output()
    place, count = _describe_reduction(op)
    op.expect(count > 0, "its input is empty")
    kind = data.spec.dtype
    op.expect(
        kind == out.spec.dtype and kind in {*SUFFIXES, "bool"}, str(op.make_no_kernel_error())
    )
    same = (data.spec.scale, data.spec.zero_point) == (out.spec.scale, out.spec.zero_point)
    op.expect(same, "input and output have other scales")
    suffix = f"{name}_{SUFFIXES.get(kind, kind)}"
    words = (("@", suffix), ("OUT", C_TYPES[kind]), ("START", start), ("NEXT", following))
    return CStep(
        f"nn_reduce_{suffix}({{in0}}, {{out0}}, &r);",
        (*_REDUCTION, CKernel("reduce.c", words)),
        before=[place],
    )


def _describe_reduction(op: OperatorView) -> tuple[str, int]:
    """Return the definition of a reduction, and of how many elements each result is made."""
    data = op.input(0)
    rank = len(data.shape)
    op.expect(1 <= rank <= 4 and min(data.shape) > 0, f"its input has the shape {data.shape}")
    axes = {op.axis(axis, rank) for axis in op.integers(1)}
    kept = [n for n in range(rank) if n not in axes]
    op.expect_shape(
        [1 if n in axes else length for n, length in enumerate(data.shape)]
        if op.operator.read_option(0, "<b")
        else [data.shape[n] for n in kept]
    )
    place = format_struct(
        "nn_reduction",
        "r",
        [*_format_axes(data.shape, kept), *_format_axes(data.shape, sorted(axes))],
    )
    return place, math.prod(data.shape[n] for n in axes)


def _format_axes(shape: tuple[int, ...], axes: list[int]) -> list[str]:
    lengths = [1] * (4 - len(axes)) + [shape[n] for n in axes]
    steps = [0] * (4 - len(axes)) + [math.prod(shape[n + 1 :]) for n in axes]
    return [format_initializer(lengths), format_initializer(steps)]


_BITS = 5  # before the point of a difference
_LONGEST = 1 << 12  # a sum of so many powers has 12 bits before the point
_KERNELS = (CLAMP_Q, RESCALE, RAISED, CKernel("inverse_of_sum.c"))


def build_softmax(op: OperatorView) -> CStep:
    """Return the step of SOFTMAX."""
    rows, length = _count_rows(op)
    beta = op.operator.read_float_option(0)
    op.expect(math.isfinite(beta) and beta > 0, f"its beta is {beta}")
    kinds = op.types()
    if kinds == ("float32", "float32"):
        return CStep(
            f"nn_softmax_f32({{in0}}, {{out0}}, {rows}, {length}, {format_float(beta)});",
            (CKernel("exp.c"), CKernel("softmax_f.c")),
        )
    op.expect(kinds in (("int8", "int8"), ("uint8", "uint8")), str(op.make_no_kernel_error()))
    low, high = LIMITS[kinds[0]]
    holds = abs(get_scale(op.output()) * 256 - 1) <= 0.001 and get_zero_point(op.output()) == low
    op.expect(holds, "its output has another scale than 1 / 256, or another zero point")
    powers, _, _ = _compute_powers(op, length, beta)
    words = (
        ("@", SUFFIXES[kinds[0]]),
        ("OUT", C_TYPES[kinds[0]]),
        ("LEAST", str(low)),
        ("MOST", str(high)),
    )
    return CStep(
        f"nn_softmax_{SUFFIXES[kinds[0]]}({{in0}}, {{out0}}, {rows}, {length}, {{powers}});",
        (*_KERNELS, CKernel("softmax_q.c", words)),
        {"powers": powers},
    )


def build_log_softmax(op: OperatorView) -> CStep:
    """Return the step of LOG_SOFTMAX."""
    rows, length = _count_rows(op)
    if op.types() == ("float32", "float32"):
        return CStep(
            f"nn_log_softmax_f32({{in0}}, {{out0}}, {rows}, {length});",
            (CKernel("exp.c"), CKernel("log.c"), CKernel("log_softmax_f.c")),
        )
    op.expect(op.types() == ("int8", "int8"), str(op.make_no_kernel_error()))
    holds = get_scale(op.output()) == 16 / 256 and get_zero_point(op.output()) == 127
    op.expect(holds, "its output has another scale than 1 / 16, or another zero point")
    powers, (multiplier, shift), least = _compute_powers(op, length, 1)
    back = quantize_multiplier((1 << 31 - shift) / multiplier)
    op.expect(back[1] <= 0, "its input has a very small scale")
    return CStep(
        f"nn_log_softmax_s8({{in0}}, {{out0}}, {rows}, {length}, {{powers}}, factors, {least});",
        (*_KERNELS, CKernel("log_softmax_q.c")),
        {
            "powers": np.array(
                [divide_by_power_of_two(int(power), 12) for power in powers], np.int32
            )
        },
        [f"static const int32_t factors[4] = {format_initializer([multiplier, shift, *back])};"],
    )


def _count_rows(op: OperatorView) -> tuple[int, int]:
    data = op.input(0)
    op.expect(len(data.shape) > 0 and min(data.shape) > 0, "its input is empty")
    op.expect_shape(data.shape)
    return data.count // data.shape[-1], data.shape[-1]


def _compute_powers(
    op: OperatorView, length: int, beta: float
) -> tuple[npt.NDArray[np.int32], tuple[int, int], int]:
    """Return powers of e for the differences 0 to -255, the factor of a difference, and the
    least one that counts.
    """
    op.expect(length < _LONGEST, "its rows are too long")
    scale = beta * get_scale(op.input(0)) * 2.0 ** (31 - _BITS)
    op.expect(1 < scale < 1 << 30, "its input has a very small or a very large scale")
    multiplier, shift = quantize_multiplier(scale)
    least = -math.floor(((1 << _BITS) - 1) * (1 << 31 - _BITS) / (1 << shift))
    found = [
        compute_exponential(apply_multiplier(-x, multiplier, shift), _BITS) if -x >= least else 0
        for x in range(256)
    ]
    return np.array(found, np.int32), (multiplier, shift), least


def build_arg_max(op: OperatorView) -> CStep:
    """Return the step of ARG_MAX."""
    return _build_arg_extremum(op, "max", ">")


def build_arg_min(op: OperatorView) -> CStep:
    """Return the step of ARG_MIN."""
    return _build_arg_extremum(op, "min", "<")


def build_maximum(op: OperatorView) -> CStep:
    """Return the step of MAXIMUM."""
    return _build_extremum(op, "maximum", ">")


def build_minimum(op: OperatorView) -> CStep:
    """Return the step of MINIMUM."""
    return _build_extremum(op, "minimum", "<")


def build_select(op: OperatorView) -> CStep:
    """Return the step of SELECT_V2, with broadcasting."""
    truth, first, second, out = op.input(0), op.input(1), op.input(2), op.output()
    op.expect(
        truth.spec.dtype == "bool" and first.spec.dtype == second.spec.dtype,
        str(op.make_no_kernel_error()),
    )
    for each in (first, second):
        check_same_quantization(op, each, out)
    lengths, steps = broadcast(op, truth.shape, first.shape, second.shape)
    size = np.dtype(out.spec.dtype).itemsize
    kernel = CKernel("select.c", (("@", str(size)), ("OUT", f"uint{8 * size}_t")))
    pairs = format_struct(
        "nn_pairs",
        "p",
        [format_initializer(lengths), format_initializer(steps[1]), format_initializer(steps[2])],
    )
    return CStep(
        f"nn_select_{size}({{in0}}, {{in1}}, {{in2}}, {{out0}}, &p, steps);",
        (*PAIRS, kernel),
        before=[pairs, f"static const int32_t steps[4] = {format_initializer(steps[0])};"],
    )


def build_select_alike(op: OperatorView) -> CStep:
    """Return the step of SELECT, whose truth values have the shape of its output."""
    op.expect_shape(op.input(0).shape)
    return build_select(op)


def _build_arg_extremum(op: OperatorView, name: str, compare: str) -> CStep:
    data, out = op.input(0), op.output()
    axes = op.integers(1)
    op.expect(len(axes) == 1, "it has several axes")
    axis = op.axis(axes[0], len(data.shape))
    op.expect(min(data.shape) > 0, "its input is empty")
    op.expect_shape(data.shape[:axis] + data.shape[axis + 1 :])
    kinds = (data.spec.dtype, out.spec.dtype)
    if kinds[0] not in SUFFIXES or kinds[1] not in ("int32", "int64"):
        raise op.make_no_kernel_error()
    suffix = f"{name}_{SUFFIXES[kinds[0]]}_{SUFFIXES[kinds[1]]}"
    words = (
        ("@", suffix),
        ("IN", C_TYPES[kinds[0]]),
        ("OUT", C_TYPES[kinds[1]]),
        ("COMPARE", compare),
    )
    outer, inner = math.prod(data.shape[:axis]), math.prod(data.shape[axis + 1 :])
    return CStep(
        f"nn_arg_{suffix}({{in0}}, {{out0}}, {outer}, {data.shape[axis]}, {inner});",
        (CKernel("arg.c", words),),
    )


def _build_extremum(op: OperatorView, name: str, compare: str) -> CStep:
    kinds = set(op.types())
    if len(op.inputs) != 2 or len(kinds) != 1 or not kinds <= set(SUFFIXES):
        raise op.make_no_kernel_error()
    scales = {(t.spec.scale, t.spec.zero_point) for t in (op.input(0), op.input(1), op.output())}
    op.expect(len(scales) == 1, "inputs and output have other scales")
    return build_pairwise_step(op, name, kinds.pop(), f"a {compare} b ? a : b")
