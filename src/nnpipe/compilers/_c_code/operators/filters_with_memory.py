"""SVDF: dense layers whose results of several runs are weighted by how long ago they were.

Nakkiran, Alvarez, Prabhavalkar, Parada, "Compressing Deep Neural Networks using a Rank-Constrained Topology",
Interspeech 2015.
"""

from __future__ import annotations

from nnpipe.compilers._c_code.fixed_point import float_range, multiplier_of, scale_of, zero_of
from nnpipe.compilers._c_code.operators.common_kernels import CLAMP, CLAMP_Q, RESCALE
from nnpipe.compilers._c_code.operators.convolutions import bias_place
from nnpipe.compilers._c_code.operators.quantised_layer import bias_of
from nnpipe.compilers._c_code.step import CKernel, CStep, OperatorView, braced, struct, text_of

_MOST = 1 << 15  # numbers in a sum of products of 8-bit numbers
_RELU = 1
_SHAPE = CKernel("svdf_shape.c")


def svdf(op: OperatorView) -> CStep:
    """Return the step of SVDF."""
    op.expect(len(op.inputs) == 5, "it has another number of inputs")
    data, features, times, state = op.input(0), op.input(1), op.input(2), op.state(4)
    rank = op.operator.option(0, "<i")
    matrices = all(len(t.shape) == 2 and min(t.shape) > 0 for t in (data, features, times))
    op.expect(matrices, "its input and weights have not two axes")
    (batches, depth), (filters, width), (rows, memory) = data.shape, features.shape, times.shape
    op.expect(rank > 0 and filters % rank == 0, f"its rank is {rank}")
    op.expect(depth == width and filters == rows, "its weights have other shapes")
    op.expect(state.shape == (batches, memory * filters), "its state has another shape")
    units = filters // rank
    op.expect_shape([batches, units])
    place = struct("nn_svdf", "s", [batches, depth, units, rank, memory])
    weights = {"features": op.constant(1), "times": op.constant(2)}
    view = op.reordered(0, 1, 3)  # the bias where layers have it
    bias = bias_of(view, units, "float32" if data.spec.dtype == "float32" else "int32")
    constants = weights if bias is None else {**weights, "bias": bias}
    kinds = (data.spec.dtype, features.spec.dtype, times.spec.dtype, state.spec.dtype, op.output().spec.dtype)
    if kinds == ("float32",) * 5:
        low, high = map(text_of, float_range(op.operator.option(1, "<b")))
        return CStep(
            f"nn_svdf_f32({{in0}}, {{features}}, {{times}}, {bias_place(view)}, (float *){{in4}}, {{out0}}, &s, "
            f"{low}, {high});",
            (CLAMP, _SHAPE, CKernel("svdf_f.c")), constants, [place],
        )  # fmt: skip
    op.expect(kinds == ("int8", "int8", "int16", "int16", "int8"), str(op.unsupported()))
    op.expect(op.operator.option(1, "<b") == _RELU, "its activation is not ReLU, which LiteRT demands")
    op.expect(depth <= _MOST, "its sums could overflow")
    factors = [
        multiplier_of(scale_of(first) * scale_of(second) / scale_of(result))
        for first, second, result in ((data, features, state), (state, times, op.output()))
    ]
    op.expect(factors[1][1] <= 0, "its output has a very small scale")
    numbers = [zero_of(data), *factors[0], *factors[1], zero_of(op.output())]
    return CStep(
        f"nn_svdf_s8({{in0}}, {{features}}, {{times}}, {bias_place(view)}, (int16_t *){{in4}}, {{out0}}, &s, factors);",
        (CLAMP_Q, RESCALE, _SHAPE, CKernel("svdf_q.c")), constants,
        [place, f"static const int32_t factors[6] = {braced(numbers)};"],
    )  # fmt: skip
