"""Products of matrices, and vectors of length one."""

from __future__ import annotations

import numpy as np

from nnpipe.compilers._c_code.fixed_point import LIMITS, multiplier_of, scale_of, zero_of
from nnpipe.compilers._c_code.operators.common_kernels import CLAMP_Q, RAISED, RESCALE, RESCALE64
from nnpipe.compilers._c_code.operators.moves import contiguous
from nnpipe.compilers._c_code.step import C_TYPES, SUFFIXES, CKernel, CStep, OperatorView, braced, struct

_MOST = 1 << 15  # numbers in a sum of products of 8-bit numbers


def batch_matmul(op: OperatorView) -> CStep:
    """Return the step of BATCH_MATMUL, with broadcasting of up to three axes of matrices."""
    first, second, out = op.input(0), op.input(1), op.output()
    op.expect(all(2 <= len(t.shape) <= 5 and min(t.shape) > 0 for t in (first, second)), "its inputs are no matrices")
    shapes, steps = [], []
    for tensor, swapped in ((first, op.operator.option(0, "<b")), (second, op.operator.option(1, "<b"))):
        more = 5 - len(tensor.shape)
        shape, step = [1] * more + [*tensor.shape], [0] * more + contiguous(tensor.shape)
        if swapped:
            shape[3:], step[3:] = shape[:2:-1], step[:2:-1]
        shapes.append(shape)
        steps.append([0 if length == 1 else move for length, move in zip(shape[:3], step[:3], strict=True)] + step[3:])
    (rows, depth), (also, columns) = shapes[0][3:], shapes[1][3:]
    op.expect(depth == also, f"its inputs have the shapes {first.shape} and {second.shape}")
    fit = all(a == b or 1 in (a, b) for a, b in zip(shapes[0][:3], shapes[1][:3], strict=True))
    op.expect(fit, f"its inputs have the shapes {first.shape} and {second.shape}")
    batches = [max(a, b) for a, b in zip(shapes[0][:3], shapes[1][:3], strict=True)]
    rank = max(len(first.shape), len(second.shape))
    op.expect_shape([*batches, rows, columns][5 - rank :])
    place = struct("nn_matmul", "m", [
        braced([*batches, rows]), braced(steps[0][:4]), braced([*steps[1][:3], 0]), columns, depth, steps[0][4],
        steps[1][4], steps[1][3],
    ])  # fmt: skip
    shared = (CKernel("axes.c"), CKernel("matmul_shape.c"))
    kinds = op.types()
    if kinds == ("float32",) * 3:
        return CStep(
            "nn_matmul_f32({in0}, {in1}, {out0}, &m);", (*shared, CKernel("matmul_f.c")), before=[place]
        )  # fmt: skip
    kind = kinds[0]
    op.expect(kinds == (kind,) * 3 and kind in ("int8", "int16"), str(op.unsupported()))
    wide, suffix = kind == "int16", SUFFIXES[kind]
    op.expect(not wide or not any(map(zero_of, (first, second, out))), "a zero point of 16-bit numbers is not 0")
    op.expect(depth <= _MOST, "its sums could overflow")
    # The product of the scales has 32 bits in LiteRT.
    factor = float(np.float32(scale_of(first)) * np.float32(scale_of(second))) / scale_of(out)
    multiplier, shift = multiplier_of(factor)
    op.expect(not wide or shift <= 14, "its output has a very small scale")
    low, high = LIMITS[kind]
    words = (
        ("@", suffix), ("IN", C_TYPES[kind]), ("SUM", "int64_t" if wide else "int32_t"), ("LEAST", str(low)),
        ("MOST", str(high)), ("RESCALE", "nn_rescale64" if wide else "nn_rescale"),
    )  # fmt: skip
    numbers = ", ".join(map(str, (zero_of(first), zero_of(second), multiplier, shift, zero_of(out))))
    return CStep(
        f"nn_matmul_{suffix}({{in0}}, {{in1}}, {{out0}}, &m, {numbers});",
        (CLAMP_Q, RESCALE64 if wide else RESCALE, *shared, CKernel("matmul_q.c", words)), before=[place],
    )  # fmt: skip


def l2_normalization(op: OperatorView) -> CStep:
    """Return the step of L2_NORMALIZATION along the last axis."""
    data, out = op.input(0), op.output()
    op.expect(len(data.shape) > 0 and min(data.shape) > 0, "its input is empty")
    op.expect_shape(data.shape)
    op.expect(op.operator.option(0, "<b") == 0, "it has a fused activation")
    length = data.shape[-1]
    rows = data.count // length
    if op.types() == ("float32", "float32"):
        return CStep(
            f"nn_l2_norm_f32({{in0}}, {{out0}}, {rows}, {length});", (CKernel("sqrt.c"), CKernel("l2_norm_f.c"))
        )
    op.expect(op.types() == ("int8", "int8"), str(op.unsupported()))
    holds = scale_of(out) == 1 / 128 and zero_of(out) == 0
    op.expect(holds, "its output has another scale than 1 / 128, or another zero point")
    op.expect(length <= _MOST, "its sums could overflow")
    return CStep(
        f"nn_l2_norm_s8({{in0}}, {{out0}}, {rows}, {length}, {zero_of(data)});",
        (CLAMP_Q, RESCALE, RAISED, CKernel("inverse_root.c"), CKernel("l2_norm_q.c")),
    )
