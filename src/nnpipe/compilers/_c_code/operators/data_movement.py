"""Operators that only move or fill elements: joined, cut, padded, transposed, gathered."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnpipe.compilers._c_code.fixed_point import LIMITS, get_zero_point
from nnpipe.compilers._c_code.step import (
    C_TYPES,
    CKernel,
    CStep,
    OperatorView,
    format_initializer,
    format_struct,
)
from nnpipe.core.errors import CompileError
from nnpipe.formats.tflite_graph import ProgramTensor

_AXES = 6


def build_reshape(op: OperatorView) -> None:
    """Check RESHAPE, SQUEEZE and EXPAND_DIMS, which move nothing."""
    op.expect(op.input(0).count == op.output().count, "it changes the number of elements")
    op.expect(op.input(0).spec.dtype == op.output().spec.dtype, str(op.make_no_kernel_error()))


def build_concatenation(op: OperatorView) -> CStep:
    """Return the step of CONCATENATION."""
    out = op.output()
    axis = op.axis(op.operator.read_option(0, "<i"), len(out.shape))
    op.expect(op.operator.read_option(1, "<b") == 0, "it has a fused activation")
    return _build_concatenation_step(
        op, [t.shape for t in map(op.input, range(len(op.inputs)))], axis
    )


def build_pack(op: OperatorView) -> CStep:
    """Return the step of PACK."""
    out = op.output()
    axis = op.axis(op.operator.read_option(1, "<i"), len(out.shape))
    shapes = [op.input(n).shape for n in range(len(op.inputs))]
    return _build_concatenation_step(
        op, [(*shape[:axis], 1, *shape[axis:]) for shape in shapes], axis
    )


def _build_concatenation_step(op: OperatorView, shapes: list[tuple[int, ...]], axis: int) -> CStep:
    op.expect(bool(shapes), "it has no inputs")
    out = op.output()
    statements, before, start = [], [], 0
    steps = compute_strides(out.shape)
    for number, shape in enumerate(shapes):
        op.expect(len(shape) == len(out.shape), "its inputs have other numbers of axes")
        check_same_quantization(op, op.input(number), out)
        op.expect(
            tuple(shape[:axis]) + tuple(shape[axis + 1 :])
            == out.shape[:axis] + out.shape[axis + 1 :],
            "shapes",
        )
        before.append(
            format_movement(
                f"m{number}", shape, compute_strides(shape), steps, 0, start * steps[axis]
            )
        )
        statements.append(f"nn_move_{{bytes}}({{in{number}}}, {{out0}}, &m{number});")
        start += shape[axis]
    op.expect(start == out.shape[axis], "its inputs do not fill its output")
    return _build_copy_step(op, statements, before)


def build_transpose(op: OperatorView) -> CStep:
    """Return the step of TRANSPOSE."""
    data, order = op.input(0), op.integers(1)
    op.expect(sorted(order) == list(range(len(data.shape))), "its order of axes is none")
    op.expect_shape([data.shape[n] for n in order])
    check_same_quantization(op, data, op.output())
    steps = compute_strides(data.shape)
    movement = format_movement(
        "m", op.output().shape, [steps[n] for n in order], compute_strides(op.output().shape), 0, 0
    )
    return _build_copy_step(op, ["nn_move_{bytes}({in0}, {out0}, &m);"], [movement])


def build_pad(op: OperatorView) -> CStep:
    """Return the step of PAD and PADV2."""
    data, out = op.input(0), op.output()
    widths = op.integers(1)
    op.expect(
        len(widths) == 2 * len(data.shape) and min(widths, default=0) >= 0, "its widths are none"
    )
    first, last = widths[::2], widths[1::2]
    op.expect_shape([a + n + b for a, n, b in zip(first, data.shape, last, strict=True)])
    value = (
        op.constant(2).reshape(-1)[0] if len(op.inputs) > 2 and op.inputs[2] is not None else None
    )
    steps = compute_strides(out.shape)
    start = sum(a * step for a, step in zip(first, steps, strict=True))
    movement = format_movement("m", data.shape, compute_strides(data.shape), steps, 0, start)
    size = np.dtype(data.spec.dtype).itemsize
    return build_fill_step(op, data, [f"nn_move_{size}({{in0}}, {{out0}}, &m);"], [movement], value)


def build_fill_step(
    op: OperatorView,
    data: ProgramTensor,
    statements: Sequence[str],
    before: Sequence[str],
    value: np.generic | None = None,
) -> CStep:
    """Return a step that moves elements into an output filled with a value, by default zero."""
    check_same_quantization(op, data, op.output())
    pattern = np.asarray(_get_zero_point(data) if value is None else value, data.spec.dtype)
    number, size = int(pattern.view(f"uint{8 * pattern.itemsize}")), pattern.itemsize
    op.expect(op.output().count > 0, "its output is empty")
    fill = f"nn_fill_{size}({{out0}}, {op.output().count}, {number}u);"
    return CStep(
        " ".join([fill, *statements]),
        [*move_kernels(size), CKernel("fill.c", _make_kernel_words(size))],
        before=before,
    )


def build_strided_slice(op: OperatorView) -> CStep:
    """Return the step of STRIDED_SLICE; axes may be left out and taken away, but not added."""
    data = op.input(0)
    begin, end, stride = (op.integers(n) for n in (1, 2, 3))
    masks = [op.operator.read_option(n, "<i") for n in range(5)]
    op.expect(masks[2] == masks[3] == 0, "it adds axes or has an ellipsis")
    op.expect(
        len(begin) == len(end) == len(stride) <= len(data.shape),
        "its begin, end and strides are no slice",
    )
    op.expect(0 not in stride, "a stride is 0")
    starts, lengths, moved, kept = [], [], [], []
    for axis, length in enumerate(data.shape):
        if axis >= len(begin):
            piece = range(length)
        elif masks[4] >> axis & 1:
            at = begin[axis] + (length if begin[axis] < 0 else 0)
            op.expect(0 <= at < length, "it begins outside of its input")
            piece = range(at, at + 1)
        else:
            low = None if masks[0] >> axis & 1 else begin[axis]
            high = None if masks[1] >> axis & 1 else end[axis]
            piece = range(length)[slice(low, high, stride[axis])]
        starts.append(piece.start)
        moved.append(piece.step)
        lengths.append(len(piece))
        if axis >= len(begin) or not masks[4] >> axis & 1:
            kept.append(len(piece))
    op.expect_shape(kept)
    return _build_slice_step(op, starts, moved, lengths)


def build_slice(op: OperatorView) -> CStep:
    """Return the step of SLICE."""
    data, begin, size = op.input(0), op.integers(1), op.integers(2)
    op.expect(len(begin) == len(size) == len(data.shape), "its begin and size are no slice")
    lengths = [n - at if s == -1 else s for n, at, s in zip(data.shape, begin, size, strict=True)]
    holds = all(
        at >= 0 and s >= 0 and at + s <= n
        for n, at, s in zip(data.shape, begin, lengths, strict=True)
    )
    op.expect(holds, "it reaches outside of its input")
    op.expect_shape(lengths)
    return _build_slice_step(op, begin, [1] * len(begin), lengths)


def build_reverse(op: OperatorView) -> CStep:
    """Return the step of REVERSE_V2."""
    shape = op.input(0).shape
    axes = {op.axis(n, len(shape)) for n in op.integers(1)}
    op.expect_shape(shape)
    starts = [length - 1 if n in axes else 0 for n, length in enumerate(shape)]
    return _build_slice_step(op, starts, [-1 if n in axes else 1 for n in range(len(shape))], shape)


def _build_slice_step(
    op: OperatorView, starts: Sequence[int], strides: Sequence[int], lengths: Sequence[int]
) -> CStep:
    data = op.input(0)
    check_same_quantization(op, data, op.output())
    steps = compute_strides(data.shape)
    start = sum(at * step for at, step in zip(starts, steps, strict=True))
    inside = [step * stride for step, stride in zip(steps, strides, strict=True)]
    movement = format_movement("m", lengths, inside, compute_strides(lengths), start, 0)
    return _build_copy_step(op, ["nn_move_{bytes}({in0}, {out0}, &m);"], [movement])


def _build_copy_step(op: OperatorView, statements: list[str], before: list[str]) -> CStep:
    size = np.dtype(op.output().spec.dtype).itemsize
    if op.output().count == 0:
        raise CompileError("its output is empty")
    return CStep(
        " ".join(each.replace("{bytes}", str(size)) for each in statements),
        move_kernels(size),
        before=before,
    )


def _make_kernel_words(size: int) -> tuple[tuple[str, str], ...]:
    return (("@", str(size)), ("OUT", f"uint{8 * size}_t"))


def move_kernels(size: int) -> list[CKernel]:
    """Return the kernels that move elements of a size in bytes."""
    return [CKernel("moves.c"), CKernel("move.c", _make_kernel_words(size))]


def check_same_quantization(op: OperatorView, data: ProgramTensor, out: ProgramTensor) -> None:
    """Check that equal numbers mean the same in an input and an output."""
    op.expect(data.spec.dtype == out.spec.dtype, str(op.make_no_kernel_error()))
    same = (data.spec.scale, data.spec.zero_point) == (out.spec.scale, out.spec.zero_point)
    op.expect(
        same or data.spec.dtype not in ("int8", "uint8", "int16"),
        "inputs and outputs have other scales",
    )


def _get_zero_point(data: ProgramTensor) -> int:
    return get_zero_point(data) if data.spec.dtype in LIMITS and data.spec.scale is not None else 0


def compute_strides(shape: Sequence[int]) -> list[int]:
    """Return how far the place of an element moves along each axis."""
    return [math.prod(shape[n + 1 :]) for n in range(len(shape))]


def format_movement(
    name: str,
    lengths: Sequence[int],
    inside: Sequence[int],
    outside: Sequence[int],
    in_start: int,
    out_start: int,
) -> str:
    """Return the definition of a movement: how far the places move along each axis, and where
    they start.
    """
    if len(lengths) > _AXES:
        raise CompileError(f"it has more than {_AXES} axes")
    fill = [0] * (_AXES - len(lengths))
    rows = [[1 for _ in fill] + list(lengths), fill + list(inside), fill + list(outside)]
    return format_struct("nn_moves", name, [*map(format_initializer, rows), in_start, out_start])


def build_split(op: OperatorView) -> CStep:
    """Return the step of SPLIT."""
    data, axes = op.input(1), op.integers(0)
    op.expect(len(axes) == 1, "it has several axes")
    axis, count = op.axis(axes[0], len(data.shape)), len(op.outputs)
    op.expect(count > 0 and data.shape[axis] % count == 0, "its parts have different sizes")
    return _build_split_step(op, 1, axis, [data.shape[axis] // count] * count, True)


def build_split_v(op: OperatorView) -> CStep:
    """Return the step of SPLIT_V; one length may be -1, for what is left."""
    data, lengths, axes = op.input(0), op.integers(1), op.integers(2)
    op.expect(
        len(axes) == 1 and len(lengths) == len(op.outputs),
        "it has another number of outputs than of lengths",
    )
    axis = op.axis(axes[0], len(data.shape))
    op.expect(lengths.count(-1) <= 1, "several lengths are left open")
    lengths = [
        data.shape[axis] - sum(n for n in lengths if n != -1) if n == -1 else n for n in lengths
    ]
    return _build_split_step(op, 0, axis, lengths, True)


def build_unpack(op: OperatorView) -> CStep:
    """Return the step of UNPACK."""
    data = op.input(0)
    axis = op.axis(op.operator.read_option(1, "<i"), len(data.shape))
    return _build_split_step(op, 0, axis, [1] * len(op.outputs), False)


def build_gather(op: OperatorView) -> CStep:
    """Return the step of GATHER, without batches."""
    data, places, out = op.input(0), op.input(1), op.output()
    axis = op.axis(op.operator.read_option(0, "<i"), len(data.shape))
    op.expect(op.operator.read_option(1, "<i") == 0, "it has axes of batches")
    op.expect(axis == 0, "it gathers along another axis than the first")
    op.expect_shape((*places.shape, *data.shape[1:]))
    return _build_gather_step(op, places.count, [data.shape[0]], out.count)


def build_gather_nd(op: OperatorView) -> CStep:
    """Return the step of GATHER_ND."""
    data, places, out = op.input(0), op.input(1), op.output()
    op.expect(len(places.shape) > 0, "its places have no axis")
    axes = places.shape[-1]
    op.expect(0 < axes <= len(data.shape), "its places have another number of axes")
    op.expect_shape((*places.shape[:-1], *data.shape[axes:]))
    return _build_gather_step(op, places.count // axes, data.shape[:axes], out.count)


def _build_gather_step(
    op: OperatorView, count: int, lengths: Sequence[int], elements: int
) -> CStep:
    data, places = op.input(0), op.input(1)
    op.expect(places.spec.dtype in ("int32", "int64"), str(op.make_no_kernel_error()))
    op.expect(min(lengths) > 0 and elements > 0, "a tensor is empty")
    check_same_quantization(op, data, op.output())
    size = np.dtype(data.spec.dtype).itemsize
    suffix = f"{size}_{places.spec.dtype}"
    words = (("@", suffix), ("PLACE", C_TYPES[places.spec.dtype]), ("OUT", f"uint{8 * size}_t"))
    return CStep(
        f"nn_gather_nd_{suffix}({{in0}}, {{in1}}, {{out0}}, {count}, {len(lengths)}, lengths, "
        f"{elements // count});",
        (CKernel("gather_nd.c", words),),
        before=[format_struct("int32_t", f"lengths[{len(lengths)}]", lengths)],
    )


def _build_split_step(
    op: OperatorView, place: int, axis: int, lengths: Sequence[int], keeps: bool
) -> CStep:
    """Return the step that copies parts along an axis; each keeps the axis, or has a length of 1
    there.
    """
    data = op.input(place)
    op.expect(
        len(lengths) > 0 and min(lengths) > 0 and sum(lengths) == data.shape[axis],
        "its parts are none",
    )
    steps = compute_strides(data.shape)
    size = np.dtype(data.spec.dtype).itemsize
    statements, before, start = [], [], 0
    for number, (length, out) in enumerate(zip(lengths, op.outputs, strict=True)):
        shape = (*data.shape[:axis], length, *data.shape[axis + 1 :])
        made = shape if keeps else shape[:axis] + shape[axis + 1 :]
        op.expect(out.shape == made, f"an output is {out.shape} where {made} is computed")
        check_same_quantization(op, data, out)
        before.append(
            format_movement(
                f"m{number}", shape, steps, compute_strides(shape), start * steps[axis], 0
            )
        )
        statements.append(f"nn_move_{size}({{in{place}}}, {{out{number}}}, &m{number});")
        start += length
    op.expect(math.prod(data.shape) > 0, "its input is empty")
    return CStep(" ".join(statements), move_kernels(size), before=before)


_SYMMETRIC = 1


def build_mirror_pad(op: OperatorView) -> CStep:
    """Return the step of MIRROR_PAD."""
    data, widths = op.input(0), op.integers(1)
    op.expect(
        len(data.shape) <= 4 and min(data.shape, default=0) > 0,
        f"its input has the shape {data.shape}",
    )
    op.expect(len(widths) == 2 * len(data.shape), "its widths are none")
    without = int(op.operator.read_option(0, "<b") != _SYMMETRIC)
    for length, first, last in zip(data.shape, widths[::2], widths[1::2], strict=True):
        op.expect(
            min(first, last) >= 0 and max(first, last) <= length - without,
            "it is padded by too much",
        )
    op.expect_shape(
        [a + n + b for a, n, b in zip(widths[::2], data.shape, widths[1::2], strict=True)]
    )
    check_same_quantization(op, data, op.output())
    more = 4 - len(data.shape)
    rows = (
        [1] * more + [*op.output().shape],
        [1] * more + [*data.shape],
        [0] * more + widths[::2],
        [0] * more + compute_strides(data.shape),
    )
    size = np.dtype(data.spec.dtype).itemsize
    kernel = CKernel("mirror_pad.c", (("@", str(size)), ("OUT", f"uint{8 * size}_t")))
    return CStep(
        f"nn_mirror_pad_{size}({{in0}}, {{out0}}, size, {without});",
        (CKernel("axes.c"), CKernel("mirrored.c"), kernel),
        before=[
            f"static const int32_t size[16] = "
            f"{format_initializer([n for row in rows for n in row])};"
        ],
    )


def build_fill(op: OperatorView) -> CStep:
    """Return the step of FILL; the output has the shape that the file states."""
    value, out = op.input(1), op.output()
    op.expect(value.count == 1 and out.count > 0, "it has no value or fills nothing")
    check_same_quantization(op, value, out)
    size = np.dtype(out.spec.dtype).itemsize
    kernel = CKernel("fill_with.c", (("@", str(size)), ("OUT", f"uint{8 * size}_t")))
    return CStep(f"nn_fill_with_{size}({{in1}}, {{out0}}, {out.count});", (kernel,))


def build_zeros_like(op: OperatorView) -> CStep:
    """Return the step of ZEROS_LIKE."""
    data, out = op.input(0), op.output()
    op.expect_shape(data.shape)
    check_same_quantization(op, data, out)
    op.expect(out.count > 0, "its output is empty")
    size = np.dtype(out.spec.dtype).itemsize
    words = (("@", str(size)), ("OUT", f"uint{8 * size}_t"))
    return CStep(f"nn_fill_{size}({{out0}}, {out.count}, 0u);", (CKernel("fill.c", words),))


def build_shape(op: OperatorView) -> CStep:
    """Return the step of SHAPE: the shape that the file states."""
    shape, out = op.input(0).shape, op.output()
    op.expect(out.spec.dtype in ("int32", "int64") and bool(shape), str(op.make_no_kernel_error()))
    op.expect_shape([len(shape)])
    size = np.dtype(out.spec.dtype).itemsize
    calls = [f"nn_fill_{size}({{out0}} + {n}, 1, {length}u);" for n, length in enumerate(shape)]
    words = (("@", str(size)), ("OUT", f"uint{8 * size}_t"))
    return CStep(" ".join(calls), (CKernel("fill.c", words),))
