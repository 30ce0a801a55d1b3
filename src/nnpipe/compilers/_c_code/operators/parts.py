"""Parts of a tensor: cut along an axis into several outputs, or gathered from places that another tensor names."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnpipe.compilers._c_code.operators.moves import contiguous, expect_same_values, move_kernels, moves
from nnpipe.compilers._c_code.step import C_TYPES, CKernel, CStep, OperatorView, struct


def split(op: OperatorView) -> CStep:
    """Return the step of SPLIT."""
    data, axes = op.input(1), op.integers(0)
    op.expect(len(axes) == 1, "it has several axes")
    axis, count = op.axis(axes[0], len(data.shape)), len(op.outputs)
    op.expect(count > 0 and data.shape[axis] % count == 0, "its parts have different sizes")
    return _cut(op, 1, axis, [data.shape[axis] // count] * count, True)


def split_v(op: OperatorView) -> CStep:
    """Return the step of SPLIT_V; one length may be -1, for what is left."""
    data, lengths, axes = op.input(0), op.integers(1), op.integers(2)
    op.expect(len(axes) == 1 and len(lengths) == len(op.outputs), "it has another number of outputs than of lengths")
    axis = op.axis(axes[0], len(data.shape))
    op.expect(lengths.count(-1) <= 1, "several lengths are left open")
    lengths = [data.shape[axis] - sum(n for n in lengths if n != -1) if n == -1 else n for n in lengths]
    return _cut(op, 0, axis, lengths, True)


def unpack(op: OperatorView) -> CStep:
    """Return the step of UNPACK."""
    data = op.input(0)
    axis = op.axis(op.operator.option(1, "<i"), len(data.shape))
    return _cut(op, 0, axis, [1] * len(op.outputs), False)


def gather(op: OperatorView) -> CStep:
    """Return the step of GATHER, without batches."""
    data, places, out = op.input(0), op.input(1), op.output()
    axis = op.axis(op.operator.option(0, "<i"), len(data.shape))
    op.expect(op.operator.option(1, "<i") == 0, "it has axes of batches")
    op.expect(axis == 0, "it gathers along another axis than the first")
    op.expect_shape((*places.shape, *data.shape[1:]))
    return _gathered(op, places.count, [data.shape[0]], out.count)


def gather_nd(op: OperatorView) -> CStep:
    """Return the step of GATHER_ND."""
    data, places, out = op.input(0), op.input(1), op.output()
    op.expect(len(places.shape) > 0, "its places have no axis")
    axes = places.shape[-1]
    op.expect(0 < axes <= len(data.shape), "its places have another number of axes")
    op.expect_shape((*places.shape[:-1], *data.shape[axes:]))
    return _gathered(op, places.count // axes, data.shape[:axes], out.count)


def _gathered(op: OperatorView, count: int, lengths: Sequence[int], elements: int) -> CStep:
    data, places = op.input(0), op.input(1)
    op.expect(places.spec.dtype in ("int32", "int64"), str(op.unsupported()))
    op.expect(min(lengths) > 0 and elements > 0, "a tensor is empty")
    expect_same_values(op, data, op.output())
    size = np.dtype(data.spec.dtype).itemsize
    suffix = f"{size}_{places.spec.dtype}"
    words = (("@", suffix), ("PLACE", C_TYPES[places.spec.dtype]), ("OUT", f"uint{8 * size}_t"))
    return CStep(
        f"nn_gather_nd_{suffix}({{in0}}, {{in1}}, {{out0}}, {count}, {len(lengths)}, lengths, {elements // count});",
        (CKernel("gather_nd.c", words),), before=[struct("int32_t", f"lengths[{len(lengths)}]", lengths)],
    )  # fmt: skip


def _cut(op: OperatorView, place: int, axis: int, lengths: Sequence[int], keeps: bool) -> CStep:
    """Return the step that copies parts along an axis; each keeps the axis, or has a length of 1 there."""
    data = op.input(place)
    op.expect(len(lengths) > 0 and min(lengths) > 0 and sum(lengths) == data.shape[axis], "its parts are none")
    steps = contiguous(data.shape)
    size = np.dtype(data.spec.dtype).itemsize
    statements, before, start = [], [], 0
    for number, (length, out) in enumerate(zip(lengths, op.outputs, strict=True)):
        shape = (*data.shape[:axis], length, *data.shape[axis + 1 :])
        made = shape if keeps else shape[:axis] + shape[axis + 1 :]
        op.expect(out.shape == made, f"an output is {out.shape} where {made} is computed")
        expect_same_values(op, data, out)
        before.append(moves(f"m{number}", shape, steps, contiguous(shape), start * steps[axis], 0))
        statements.append(f"nn_move_{size}({{in{place}}}, {{out{number}}}, &m{number});")
        start += length
    op.expect(math.prod(data.shape) > 0, "its input is empty")
    return CStep(" ".join(statements), move_kernels(size), before=before)
