"""Convolutions in the other direction."""

from __future__ import annotations

from nnpipe.compilers._c_code.fixed_point import float_range
from nnpipe.compilers._c_code.operators.common_kernels import CLAMP, CLAMP_Q, RESCALE, RESCALE64, WINDOW, ZEROS
from nnpipe.compilers._c_code.operators.convolutions import bias_place, float_constants, layer_words
from nnpipe.compilers._c_code.operators.quantised_layer import quantised_layer
from nnpipe.compilers._c_code.step import SUFFIXES, CKernel, CStep, OperatorView, struct, text_of


def transpose_conv(op: OperatorView) -> CStep:
    """Return the step of TRANSPOSE_CONV; its output has the shape that the file states for it."""
    layer_op = op.reordered(2, 1, 3)
    data, weights, out = layer_op.input(0), layer_op.input(1), op.output()
    op.expect(len(weights.shape) == len(data.shape) == len(out.shape) == 4, "a tensor has not four axes")
    op.expect(min(*data.shape, *weights.shape, *out.shape) > 0, "a tensor is empty")
    channels, rows, columns, depth = weights.shape
    shape = op.input(0).content
    op.expect(shape is None or op.integers(0) == list(out.shape), "its output has another shape than it says")
    op.expect((out.shape[0], out.shape[3], depth) == (data.shape[0], channels, data.shape[3]), "its shapes differ")
    strides = [op.operator.option(n, "<i", 1) for n in (2, 1)]
    op.expect(min(strides) > 0 and max(*strides, rows, columns) < 1 << 15, "a filter or stride is too large or small")
    padding, activation = op.operator.option(0, "<b"), op.operator.option(3, "<b")
    op.expect(padding in (0, 1), "its padding is neither SAME nor VALID")
    pads = []
    for length, size, stride in zip(out.shape[1:3], (rows, columns), strides, strict=True):
        reached = -(-length // stride) if padding == 0 else (length + stride - size) // stride
        pads.append(max(0, (reached - 1) * stride + size - length) // 2)
    place = struct("nn_window", "w", [*data.shape, *out.shape[1:], rows, columns, depth, *strides, 1, 1, *pads])
    if data.spec.dtype == "float32":
        low, high = map(text_of, float_range(activation))
        return CStep(
            f"nn_transpose_conv_f32({{in2}}, {{weights}}, {bias_place(layer_op)}, {{out0}}, &w, {low}, {high});",
            (CLAMP, WINDOW, CKernel("transpose_conv_f.c")), float_constants(layer_op, channels), [place],
        )  # fmt: skip
    layer = quantised_layer(layer_op, channels, 0, activation)
    op.expect(layer.dtype != "uint8" and layer.weight_zero == 0, str(op.unsupported()))
    suffix, rescale = SUFFIXES[layer.dtype], RESCALE64 if layer.dtype == "int16" else RESCALE
    return CStep(
        f"nn_transpose_conv_{suffix}({{in2}}, {{weights}}, {bias_place(layer_op)}, {{multiplier}}, {{shift}}, "
        "{out0}, &w, &z);",
        (CLAMP_Q, rescale, ZEROS, WINDOW, CKernel("transpose_conv_q.c", layer_words(layer_op))),
        layer.constants(), [place, layer.zeros],
    )  # fmt: skip
