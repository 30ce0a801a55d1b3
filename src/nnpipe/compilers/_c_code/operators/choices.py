"""The greatest and the least: of two tensors, and where along an axis."""

from __future__ import annotations

import math

import numpy as np

from nnpipe.compilers._c_code.operators.moves import expect_same_values
from nnpipe.compilers._c_code.operators.pairs import PAIRS, broadcast, pairwise
from nnpipe.compilers._c_code.step import C_TYPES, SUFFIXES, CKernel, CStep, OperatorView, braced, struct


def arg_max(op: OperatorView) -> CStep:
    """Return the step of ARG_MAX."""
    return _place(op, "max", ">")


def arg_min(op: OperatorView) -> CStep:
    """Return the step of ARG_MIN."""
    return _place(op, "min", "<")


def maximum(op: OperatorView) -> CStep:
    """Return the step of MAXIMUM."""
    return _chosen(op, "maximum", ">")


def minimum(op: OperatorView) -> CStep:
    """Return the step of MINIMUM."""
    return _chosen(op, "minimum", "<")


def select(op: OperatorView) -> CStep:
    """Return the step of SELECT_V2, with broadcasting."""
    truth, first, second, out = op.input(0), op.input(1), op.input(2), op.output()
    op.expect(truth.spec.dtype == "bool" and first.spec.dtype == second.spec.dtype, str(op.unsupported()))
    for each in (first, second):
        expect_same_values(op, each, out)
    lengths, steps = broadcast(op, truth.shape, first.shape, second.shape)
    size = np.dtype(out.spec.dtype).itemsize
    kernel = CKernel("select.c", (("@", str(size)), ("OUT", f"uint{8 * size}_t")))
    pairs = struct("nn_pairs", "p", [braced(lengths), braced(steps[1]), braced(steps[2])])
    return CStep(
        f"nn_select_{size}({{in0}}, {{in1}}, {{in2}}, {{out0}}, &p, steps);", (*PAIRS, kernel),
        before=[pairs, f"static const int32_t steps[4] = {braced(steps[0])};"],
    )  # fmt: skip


def select_alike(op: OperatorView) -> CStep:
    """Return the step of SELECT, whose truth values have the shape of its output."""
    op.expect_shape(op.input(0).shape)
    return select(op)


def _place(op: OperatorView, name: str, compare: str) -> CStep:
    data, out = op.input(0), op.output()
    axes = op.integers(1)
    op.expect(len(axes) == 1, "it has several axes")
    axis = op.axis(axes[0], len(data.shape))
    op.expect(min(data.shape) > 0, "its input is empty")
    op.expect_shape(data.shape[:axis] + data.shape[axis + 1 :])
    kinds = (data.spec.dtype, out.spec.dtype)
    if kinds[0] not in SUFFIXES or kinds[1] not in ("int32", "int64"):
        raise op.unsupported()
    suffix = f"{name}_{SUFFIXES[kinds[0]]}_{SUFFIXES[kinds[1]]}"
    words = (("@", suffix), ("IN", C_TYPES[kinds[0]]), ("OUT", C_TYPES[kinds[1]]), ("COMPARE", compare))
    outer, inner = math.prod(data.shape[:axis]), math.prod(data.shape[axis + 1 :])
    return CStep(
        f"nn_arg_{suffix}({{in0}}, {{out0}}, {outer}, {data.shape[axis]}, {inner});", (CKernel("arg.c", words),)
    )


def _chosen(op: OperatorView, name: str, compare: str) -> CStep:
    kinds = set(op.types())
    if len(op.inputs) != 2 or len(kinds) != 1 or not kinds <= set(SUFFIXES):
        raise op.unsupported()
    scales = {(t.spec.scale, t.spec.zero_point) for t in (op.input(0), op.input(1), op.output())}
    op.expect(len(scales) == 1, "inputs and output have other scales")
    return pairwise(op, name, kinds.pop(), f"a {compare} b ? a : b")
