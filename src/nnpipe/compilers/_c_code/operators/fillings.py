"""Outputs that are filled: with mirrored borders, with a value, with a shape."""

from __future__ import annotations

import numpy as np

from nnpipe.compilers._c_code.operators.moves import contiguous, expect_same_values
from nnpipe.compilers._c_code.step import CKernel, CStep, OperatorView, braced

_SYMMETRIC = 1


def mirror_pad(op: OperatorView) -> CStep:
    """Return the step of MIRROR_PAD."""
    data, widths = op.input(0), op.integers(1)
    op.expect(len(data.shape) <= 4 and min(data.shape, default=0) > 0, f"its input has the shape {data.shape}")
    op.expect(len(widths) == 2 * len(data.shape), "its widths are none")
    without = int(op.operator.option(0, "<b") != _SYMMETRIC)
    for length, first, last in zip(data.shape, widths[::2], widths[1::2], strict=True):
        op.expect(min(first, last) >= 0 and max(first, last) <= length - without, "it is padded by too much")
    op.expect_shape([a + n + b for a, n, b in zip(widths[::2], data.shape, widths[1::2], strict=True)])
    expect_same_values(op, data, op.output())
    more = 4 - len(data.shape)
    rows = ([1] * more + [*op.output().shape], [1] * more + [*data.shape], [0] * more + widths[::2],
            [0] * more + contiguous(data.shape))  # fmt: skip
    size = np.dtype(data.spec.dtype).itemsize
    kernel = CKernel("mirror_pad.c", (("@", str(size)), ("OUT", f"uint{8 * size}_t")))
    return CStep(
        f"nn_mirror_pad_{size}({{in0}}, {{out0}}, size, {without});",
        (CKernel("axes.c"), CKernel("mirrored.c"), kernel),
        before=[f"static const int32_t size[16] = {braced([n for row in rows for n in row])};"],
    )  # fmt: skip


def fill(op: OperatorView) -> CStep:
    """Return the step of FILL; the output has the shape that the file states."""
    value, out = op.input(1), op.output()
    op.expect(value.count == 1 and out.count > 0, "it has no value or fills nothing")
    expect_same_values(op, value, out)
    size = np.dtype(out.spec.dtype).itemsize
    kernel = CKernel("fill_with.c", (("@", str(size)), ("OUT", f"uint{8 * size}_t")))
    return CStep(f"nn_fill_with_{size}({{in1}}, {{out0}}, {out.count});", (kernel,))


def zeros_like(op: OperatorView) -> CStep:
    """Return the step of ZEROS_LIKE."""
    data, out = op.input(0), op.output()
    op.expect_shape(data.shape)
    expect_same_values(op, data, out)
    op.expect(out.count > 0, "its output is empty")
    size = np.dtype(out.spec.dtype).itemsize
    words = (("@", str(size)), ("OUT", f"uint{8 * size}_t"))
    return CStep(f"nn_fill_{size}({{out0}}, {out.count}, 0u);", (CKernel("fill.c", words),))


def shape_of(op: OperatorView) -> CStep:
    """Return the step of SHAPE: the shape that the file states."""
    shape, out = op.input(0).shape, op.output()
    op.expect(out.spec.dtype in ("int32", "int64") and bool(shape), str(op.unsupported()))
    op.expect_shape([len(shape)])
    size = np.dtype(out.spec.dtype).itemsize
    calls = [f"nn_fill_{size}({{out0}} + {n}, 1, {length}u);" for n, length in enumerate(shape)]
    words = (("@", str(size)), ("OUT", f"uint{8 * size}_t"))
    return CStep(" ".join(calls), (CKernel("fill.c", words),))
