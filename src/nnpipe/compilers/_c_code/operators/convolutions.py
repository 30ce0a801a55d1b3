"""Convolutions, dense layers, pooling, and products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._c_code.fixed_point import (
    LIMITS,
    get_activation_range,
    get_channel_scales,
    get_scale,
    get_zero_point,
    quantize_activation_range,
    quantize_multiplier,
)
from nnpipe.compilers._c_code.operators.data_movement import compute_strides
from nnpipe.compilers._c_code.operators.quantised_layer import (
    CLAMP,
    CLAMP_Q,
    INSIDE,
    RAISED,
    RESCALE,
    RESCALE64,
    RESCALE_ONCE,
    WINDOW,
    ZEROS,
    build_conv_2d_int8,
    build_depthwise_conv_2d_int8,
    build_fully_connected_int8,
    build_quantized_layer,
    get_bias,
)
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


def compute_window(
    op: OperatorView,
    filter_shape: tuple[int, int, int],
    out_channels: int,
    steps: Sequence[int],
    padding: int,
) -> list[int]:
    """Return the numbers of a window over the input, after checking that all of it lies inside of
    input and output.

    Parameters
    ----------
    op
        The operator; its input and output have four axes.
    filter_shape
        Rows, columns and channels of the filter.
    out_channels
        Channels of the output.
    steps
        Strides along rows and columns, and dilations along them.
    padding
        0 for SAME, 1 for VALID.
    """
    shape = op.input(0).shape
    op.expect(len(shape) == 4 and min(shape) > 0, f"its input has the shape {shape}")
    op.expect(
        min(*filter_shape, out_channels, *steps) > 0, "a filter, stride or dilation is not positive"
    )
    op.expect(
        max(*filter_shape, out_channels, *steps) < 1 << 16,
        "a filter, stride or dilation is too large",
    )
    op.expect(padding in (0, 1), "its padding is neither SAME nor VALID")
    lengths, pads = [], []
    for length, size, stride, step in zip(
        shape[1:3], filter_shape[:2], steps[:2], steps[2:], strict=True
    ):
        reach = (size - 1) * step + 1
        made = -(-length // stride) if padding == 0 else (length - reach + stride) // stride
        lengths.append(made)
        pads.append(max(0, (made - 1) * stride + reach - length) // 2 if padding == 0 else 0)
    op.expect(min(lengths) > 0, "its window is larger than its input")
    op.expect_shape((shape[0], *lengths, out_channels))
    return [*shape, *lengths, out_channels, *filter_shape, *steps, *pads]


def build_conv_2d(op: OperatorView) -> CStep:
    """Return the step of CONV_2D, also in groups."""
    weights = op.input(1)
    op.expect(len(weights.shape) == 4, "its filter has not four axes")
    channels, rows, columns, depth = weights.shape
    steps = [op.operator.read_option(n, "<i", 1) for n in (2, 1, 5, 4)]
    numbers = compute_window(
        op, (rows, columns, depth), channels, steps, op.operator.read_option(0, "<b")
    )
    op.expect(
        numbers[3] % depth == 0 and channels % (numbers[3] // depth) == 0,
        "its groups have different sizes",
    )
    return _build_window_step(op, "conv", numbers, channels, 0, op.operator.read_option(3, "<b"))


def build_depthwise_conv_2d(op: OperatorView) -> CStep:
    """Return the step of DEPTHWISE_CONV_2D."""
    weights = op.input(1)
    op.expect(
        len(weights.shape) == 4 and weights.shape[0] == 1,
        "its filter has another shape than (1, h, w, c)",
    )
    _, rows, columns, channels = weights.shape
    steps = [op.operator.read_option(n, "<i", 1) for n in (2, 1, 6, 5)]
    numbers = compute_window(
        op, (rows, columns, 1), channels, steps, op.operator.read_option(0, "<b")
    )
    op.expect(channels % numbers[3] == 0, "its channels are no multiple of the input's")
    return _build_window_step(
        op, "depthwise", numbers, channels, 3, op.operator.read_option(4, "<b")
    )


def _build_window_step(
    op: OperatorView, name: str, numbers: list[int], channels: int, axis: int, activation: int
) -> CStep:
    place = [format_struct("nn_window", "w", numbers)]
    if op.input(0).spec.dtype == "float32":
        low, high = map(format_float, get_activation_range(activation))
        return CStep(
            f"nn_{name}_f32({{in0}}, {{weights}}, {format_bias_argument(op)}, {{out0}}, &w, {low}, "
            f"{high});",
            (CLAMP, WINDOW, INSIDE, CKernel(f"{name}_f.c")),
            get_float_constants(op, channels),
            place,
        )
    layer = build_quantized_layer(op, channels, axis, activation)
    if layer.dtype == "int8" and layer.weight_zero == 0 and name == "depthwise":
        return build_depthwise_conv_2d_int8(layer, place[0], numbers)
    if layer.dtype == "int8" and layer.weight_zero == 0 and numbers[9] == numbers[3]:
        return build_conv_2d_int8(layer, place[0])
    kernel, bias = f"nn_{name}_plain_{SUFFIXES[layer.dtype]}", format_bias_argument(op)
    return CStep(
        f"{kernel}({{in0}}, {{weights}}, {bias}, {{multiplier}}, {{shift}}, {{out0}}, &w, &z);",
        (
            CLAMP_Q,
            RESCALE64 if layer.dtype == "int16" else RESCALE,
            ZEROS,
            WINDOW,
            INSIDE,
            CKernel(f"{name}_q.c", choose_kernel_words(op)),
        ),
        layer.constants(),
        [*place, layer.zeros],
    )


def build_fully_connected(op: OperatorView) -> CStep:
    """Return the step of FULLY_CONNECTED."""
    weights = op.input(1)
    op.expect(len(weights.shape) == 2 and min(weights.shape) > 0, "its weights have not two axes")
    op.expect(op.operator.read_option(1, "<b") == 0, "its weights are shuffled")
    units, depth = weights.shape
    op.expect(op.input(0).count % depth == 0, "its input is no multiple of its weights")
    batches = op.input(0).count // depth
    op.expect(op.output().count == batches * units, "its output has another size than is computed")
    activation = op.operator.read_option(0, "<b")
    if op.input(0).spec.dtype == "float32":
        low, high = map(format_float, get_activation_range(activation))
        return CStep(
            f"nn_dense_f32({{in0}}, {{weights}}, {format_bias_argument(op)}, {{out0}}, {batches}, "
            f"{depth}, {units}, {low}, {high});",
            (CLAMP, CKernel("dense_f.c")),
            get_float_constants(op, units),
        )
    layer = build_quantized_layer(op, units, 0, activation)
    if layer.dtype == "int8" and layer.weight_zero == 0:
        return build_fully_connected_int8(layer, batches)
    suffix = SUFFIXES[layer.dtype]
    return CStep(
        f"nn_dense_plain_{suffix}({{in0}}, {{weights}}, {format_bias_argument(op)}, "
        f"{{multiplier}}, {{shift}}, {{out0}}, {batches}, {depth}, {units}, &z);",
        (
            CLAMP_Q,
            RESCALE64 if layer.dtype == "int16" else RESCALE_ONCE,
            ZEROS,
            CKernel("dense_q.c", choose_kernel_words(op, "nn_rescale_once")),
        ),
        layer.constants(),
        [layer.zeros],
    )


def _has_bias(op: OperatorView) -> bool:
    return len(op.inputs) > 2 and op.inputs[2] is not None


def format_bias_argument(op: OperatorView) -> str:
    """Return what stands for the bias in a statement."""
    return "{bias}" if _has_bias(op) else "0"


def get_float_constants(op: OperatorView, channels: int) -> dict[str, npt.NDArray[np.generic]]:
    """Return weights and bias of a layer that is computed in floats."""
    weights = op.input(1)
    op.expect(
        op.output().spec.dtype == "float32" and weights.spec.dtype in ("float32", "int8"),
        str(op.make_no_kernel_error()),
    )
    content = op.constant(1)
    # LiteRT rounds the input, too; with real numbers the result is closer
    if weights.spec.dtype == "int8":
        axis = weights.spec.axis or 0
        scales = np.asarray(get_channel_scales(weights, weights.shape[axis], axis), np.float32)
        content = (
            content.astype(np.float32)
            - (0 if weights.spec.axis is not None else get_zero_point(weights))
        ) * (scales.reshape([-1 if n == axis else 1 for n in range(content.ndim)]))
    bias = get_bias(op, channels, "float32")
    return {"weights": content} if bias is None else {"weights": content, "bias": bias}


def choose_kernel_words(
    op: OperatorView, rescale: str = "nn_rescale"
) -> tuple[tuple[str, str], ...]:
    """Return the words for types and functions in the kernel of a quantised layer."""
    kind = op.input(0).spec.dtype
    wide = kind == "int16"
    bias = op.input(2).spec.dtype if _has_bias(op) else "int64" if wide else "int32"
    return (
        ("@", SUFFIXES[kind]),
        ("IN", C_TYPES[kind]),
        ("OUT", C_TYPES[kind]),
        ("WEIGHT", C_TYPES[op.input(1).spec.dtype]),
        ("BIAS", C_TYPES[bias]),
        ("SUM", "int64_t" if wide else "int32_t"),
        ("RESCALE", "nn_rescale64" if wide else rescale),
    )


def build_transpose_conv(op: OperatorView) -> CStep:
    """Return the step of TRANSPOSE_CONV; its output has the shape that the file states for it."""
    layer_op = op.select_inputs(2, 1, 3)
    data, weights, out = layer_op.input(0), layer_op.input(1), op.output()
    op.expect(
        len(weights.shape) == len(data.shape) == len(out.shape) == 4, "a tensor has not four axes"
    )
    op.expect(min(*data.shape, *weights.shape, *out.shape) > 0, "a tensor is empty")
    channels, rows, columns, depth = weights.shape
    shape = op.input(0).content
    op.expect(
        shape is None or op.integers(0) == list(out.shape),
        "its output has another shape than it says",
    )
    op.expect(
        (out.shape[0], out.shape[3], depth) == (data.shape[0], channels, data.shape[3]),
        "its shapes differ",
    )
    strides = [op.operator.read_option(n, "<i", 1) for n in (2, 1)]
    op.expect(
        min(strides) > 0 and max(*strides, rows, columns) < 1 << 15,
        "a filter or stride is too large or small",
    )
    padding, activation = op.operator.read_option(0, "<b"), op.operator.read_option(3, "<b")
    op.expect(padding in (0, 1), "its padding is neither SAME nor VALID")
    pads = []
    for length, size, stride in zip(out.shape[1:3], (rows, columns), strides, strict=True):
        reached = -(-length // stride) if padding == 0 else (length + stride - size) // stride
        pads.append(max(0, (reached - 1) * stride + size - length) // 2)
    place = format_struct(
        "nn_window", "w", [*data.shape, *out.shape[1:], rows, columns, depth, *strides, 1, 1, *pads]
    )
    if data.spec.dtype == "float32":
        low, high = map(format_float, get_activation_range(activation))
        return CStep(
            f"nn_transpose_conv_f32({{in2}}, {{weights}}, {format_bias_argument(layer_op)}, "
            f"{{out0}}, &w, {low}, {high});",
            (CLAMP, WINDOW, CKernel("transpose_conv_f.c")),
            get_float_constants(layer_op, channels),
            [place],
        )
    layer = build_quantized_layer(layer_op, channels, 0, activation)
    op.expect(layer.dtype != "uint8" and layer.weight_zero == 0, str(op.make_no_kernel_error()))
    suffix, rescale = SUFFIXES[layer.dtype], RESCALE64 if layer.dtype == "int16" else RESCALE
    return CStep(
        f"nn_transpose_conv_{suffix}({{in2}}, {{weights}}, {format_bias_argument(layer_op)}, "
        f"{{multiplier}}, {{shift}}, "
        "{out0}, &w, &z);",
        (
            CLAMP_Q,
            rescale,
            ZEROS,
            WINDOW,
            CKernel("transpose_conv_q.c", choose_kernel_words(layer_op)),
        ),
        layer.constants(),
        [place, layer.zeros],
    )


_LARGEST_WINDOW = 1 << 15  # elements, so that sums of 16-bit numbers stay below 2^31


def build_average_pool_2d(op: OperatorView) -> CStep:
    """Return the step of AVERAGE_POOL_2D."""
    return _build_pool(op, "average_pool")


def build_max_pool_2d(op: OperatorView) -> CStep:
    """Return the step of MAX_POOL_2D."""
    return _build_pool(op, "max_pool")


def _build_pool(op: OperatorView, name: str) -> CStep:
    strides, sizes = (
        [op.operator.read_option(n, "<i", 0) for n in pair] for pair in ((2, 1), (4, 3))
    )
    data, out = op.input(0), op.output()
    channels = data.shape[-1] if data.shape else 0
    numbers = compute_window(
        op, (sizes[0], sizes[1], 1), channels, [*strides, 1, 1], op.operator.read_option(0, "<b")
    )
    op.expect(sizes[0] * sizes[1] <= _LARGEST_WINDOW, "its window is too large")
    place, activation = [format_struct("nn_window", "w", numbers)], op.operator.read_option(5, "<b")
    kind = data.spec.dtype
    op.expect(kind == out.spec.dtype, str(op.make_no_kernel_error()))
    if kind == "float32":
        low, high = map(format_float, get_activation_range(activation))
        words = (("@", "f32"), ("OUT", "float"), ("NUMBER", "float"), ("CLAMP", "nn_clamp_f32"))
        kernel = (
            CKernel("average_pool_f.c") if name == "average_pool" else CKernel("max_pool.c", words)
        )
        return CStep(
            f"nn_{name}_f32({{in0}}, {{out0}}, &w, {low}, {high});",
            (CLAMP, WINDOW, INSIDE, kernel),
            before=place,
        )
    if kind not in ("int8", "uint8", "int16"):
        raise op.make_no_kernel_error()
    op.expect(
        (data.spec.scale, get_zero_point(data)) == (out.spec.scale, get_zero_point(out)),
        "input and output have other scales",
    )
    least, most = quantize_activation_range(activation, out)
    words = (
        ("@", SUFFIXES[kind]),
        ("OUT", C_TYPES[kind]),
        ("NUMBER", "int32_t"),
        ("CLAMP", "nn_clamp"),
    )
    kernel = CKernel("average_pool_q.c" if name == "average_pool" else "max_pool.c", words)
    return CStep(
        f"nn_{name}_{SUFFIXES[kind]}({{in0}}, {{out0}}, &w, {least}, {most});",
        (CLAMP_Q, WINDOW, INSIDE, kernel),
        before=place,
    )


_MOST = 1 << 15  # numbers in a sum of products of 8-bit numbers


def build_batch_matmul(op: OperatorView) -> CStep:
    """Return the step of BATCH_MATMUL, with broadcasting of up to three axes of matrices."""
    first, second, out = op.input(0), op.input(1), op.output()
    op.expect(
        all(2 <= len(t.shape) <= 5 and min(t.shape) > 0 for t in (first, second)),
        "its inputs are no matrices",
    )
    shapes, steps = [], []
    for tensor, swapped in (
        (first, op.operator.read_option(0, "<b")),
        (second, op.operator.read_option(1, "<b")),
    ):
        more = 5 - len(tensor.shape)
        shape, step = [1] * more + [*tensor.shape], [0] * more + compute_strides(tensor.shape)
        if swapped:
            shape[3:], step[3:] = shape[:2:-1], step[:2:-1]
        shapes.append(shape)
        steps.append(
            [0 if length == 1 else move for length, move in zip(shape[:3], step[:3], strict=True)]
            + step[3:]
        )
    (rows, depth), (also, columns) = shapes[0][3:], shapes[1][3:]
    op.expect(depth == also, f"its inputs have the shapes {first.shape} and {second.shape}")
    fit = all(a == b or 1 in (a, b) for a, b in zip(shapes[0][:3], shapes[1][:3], strict=True))
    op.expect(fit, f"its inputs have the shapes {first.shape} and {second.shape}")
    batches = [max(a, b) for a, b in zip(shapes[0][:3], shapes[1][:3], strict=True)]
    rank = max(len(first.shape), len(second.shape))
    op.expect_shape([*batches, rows, columns][5 - rank :])
    place = format_struct(
        "nn_matmul",
        "m",
        [
            format_initializer([*batches, rows]),
            format_initializer(steps[0][:4]),
            format_initializer([*steps[1][:3], 0]),
            columns,
            depth,
            steps[0][4],
            steps[1][4],
            steps[1][3],
        ],
    )
    shared = (CKernel("axes.c"), CKernel("matmul_shape.c"))
    kinds = op.types()
    if kinds == ("float32",) * 3:
        return CStep(
            "nn_matmul_f32({in0}, {in1}, {out0}, &m);",
            (*shared, CKernel("matmul_f.c")),
            before=[place],
        )
    kind = kinds[0]
    op.expect(kinds == (kind,) * 3 and kind in ("int8", "int16"), str(op.make_no_kernel_error()))
    wide, suffix = kind == "int16", SUFFIXES[kind]
    op.expect(
        not wide or not any(map(get_zero_point, (first, second, out))),
        "a zero point of 16-bit numbers is not 0",
    )
    op.expect(depth <= _MOST, "its sums could overflow")
    # The product of the scales has 32 bits in LiteRT.
    factor = float(np.float32(get_scale(first)) * np.float32(get_scale(second))) / get_scale(out)
    multiplier, shift = quantize_multiplier(factor)
    op.expect(not wide or shift <= 14, "its output has a very small scale")
    low, high = LIMITS[kind]
    words = (
        ("@", suffix),
        ("IN", C_TYPES[kind]),
        ("SUM", "int64_t" if wide else "int32_t"),
        ("LEAST", str(low)),
        ("MOST", str(high)),
        ("RESCALE", "nn_rescale64" if wide else "nn_rescale"),
    )
    numbers = ", ".join(
        map(
            str,
            (get_zero_point(first), get_zero_point(second), multiplier, shift, get_zero_point(out)),
        )
    )
    return CStep(
        f"nn_matmul_{suffix}({{in0}}, {{in1}}, {{out0}}, &m, {numbers});",
        (CLAMP_Q, RESCALE64 if wide else RESCALE, *shared, CKernel("matmul_q.c", words)),
        before=[place],
    )


def build_l2_normalization(op: OperatorView) -> CStep:
    """Return the step of L2_NORMALIZATION along the last axis."""
    data, out = op.input(0), op.output()
    op.expect(len(data.shape) > 0 and min(data.shape) > 0, "its input is empty")
    op.expect_shape(data.shape)
    op.expect(op.operator.read_option(0, "<b") == 0, "it has a fused activation")
    length = data.shape[-1]
    rows = data.count // length
    if op.types() == ("float32", "float32"):
        return CStep(
            f"nn_l2_norm_f32({{in0}}, {{out0}}, {rows}, {length});",
            (CKernel("sqrt.c"), CKernel("l2_norm_f.c")),
        )
    op.expect(op.types() == ("int8", "int8"), str(op.make_no_kernel_error()))
    holds = get_scale(out) == 1 / 128 and get_zero_point(out) == 0
    op.expect(holds, "its output has another scale than 1 / 128, or another zero point")
    op.expect(length <= _MOST, "its sums could overflow")
    return CStep(
        f"nn_l2_norm_s8({{in0}}, {{out0}}, {rows}, {length}, {get_zero_point(data)});",
        (CLAMP_Q, RESCALE, RAISED, CKernel("inverse_root.c"), CKernel("l2_norm_q.c")),
    )
