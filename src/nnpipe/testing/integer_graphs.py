"""Random TensorFlow Lite graphs in 8-bit numbers, for tests that compare two ways to compute
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnpipe.testing.model_files import _pack_model


class IntegerGraph:
    """A graph that grows operator by operator; requires ``ai_edge_litert``.

    Parameters
    ----------
    random
        Where choices come from.
    dtype
        ``"int8"`` or ``"uint8"``.
    """

    def __init__(self, random: np.random.Generator, dtype: str) -> None:
        from ai_edge_litert import schema_py_generated as schema

        self._schema, self._random, self._dtype = schema, random, dtype
        self._tensors: list[Any] = []
        self._operators: list[Any] = []
        self._codes: list[Any] = []
        self._buffers = [schema.BufferT()]
        shape = [
            int(random.choice([1, 1, 2])),
            *(int(n) for n in random.integers(1, 9, 2)),
            int(random.integers(1, 7)),
        ]
        self._values = [self._add_value(shape)]

    def _tensor(
        self, shape: Sequence[int], kind: str, scale: Any = None, zero: Any = None, axis: int = 0
    ) -> int:
        made = self._schema.TensorT()
        made.name, made.shape = f"t{len(self._tensors)}", list(map(int, shape))
        made.type = getattr(self._schema.TensorType, kind.upper())
        if scale is not None:
            made.quantization = self._schema.QuantizationParametersT()
            made.quantization.scale = np.atleast_1d(np.asarray(scale, np.float32))
            made.quantization.zeroPoint = np.atleast_1d(np.asarray(zero, np.int64))
            made.quantization.quantizedDimension = axis
        self._tensors.append(made)
        return len(self._tensors) - 1

    def _constant(self, array: np.ndarray, *quantisation: Any) -> int:
        buffer = self._schema.BufferT()
        buffer.data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        self._buffers.append(buffer)
        number = self._tensor(array.shape, str(array.dtype), *quantisation)
        self._tensors[number].buffer = len(self._buffers) - 1
        return number

    def _add_value(self, shape: Sequence[int], like: int | None = None) -> int:
        """Return a tensor with a scale and zero point of its own, or with those of another."""
        if like is not None:
            held = self._tensors[like].quantization
            return self._tensor(shape, self._dtype, held.scale, held.zeroPoint)
        low, high = (-128, 127) if self._dtype == "int8" else (0, 255)
        return self._tensor(
            shape,
            self._dtype,
            2 ** self._random.uniform(-8, -2),
            self._random.integers(low, high + 1),
        )

    def _add_operator(
        self, name: str, inputs: Sequence[int], output: int, options: str = "", **fields: Any
    ) -> None:
        code = getattr(self._schema.BuiltinOperator, name)
        entry = self._schema.OperatorCodeT()
        entry.builtinCode, entry.deprecatedBuiltinCode, entry.version = (
            code,
            min(code, 127),
            _VERSIONS.get(name, 2),
        )
        self._codes.append(entry)
        made = self._schema.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = len(self._codes) - 1, list(inputs), [output]
        if options:
            made.builtinOptionsType = getattr(self._schema.BuiltinOptions, options)
            made.builtinOptions = getattr(self._schema, f"{options}T")()
            for field, value in fields.items():
                setattr(made.builtinOptions, field, value)
        self._operators.append(made)
        self._values.append(output)

    def _get_shape(self, number: int) -> list[int]:
        return list(self._tensors[number].shape)

    def _choose_activation(self) -> int:
        return int(self._random.choice([0, 1, 3]))

    def _add_weights(
        self, shape: Sequence[int], channels: int, axis: int, source: int
    ) -> list[int]:
        """Return weights and a bias; int8 weights of convolutions have a scale for each channel."""
        count = channels if self._dtype == "int8" and axis >= 0 else 1
        low, high, zero = (
            (-127, 128, 0)
            if self._dtype == "int8"
            else (0, 256, int(self._random.integers(1, 255)))
        )
        scales = np.float32(2.0 ** self._random.uniform(-9, -4, count))
        content = self._random.integers(low, high, shape).astype(self._dtype)
        weights = self._constant(content, scales, np.full(count, zero), max(axis, 0))
        bias = self._random.integers(-2000, 2000, channels).astype(np.int32)
        held = float(np.asarray(self._tensors[source].quantization.scale)[0])
        return [weights, self._constant(bias, scales * np.float32(held), np.zeros(count, np.int64))]

    def _add_window(self, name: str, source: int) -> None:
        batch, height, width, depth = self._get_shape(source)
        stride_h, stride_w = (int(n) for n in self._random.integers(1, 3, 2))
        step_h, step_w = (
            (int(n) for n in self._random.integers(1, 3, 2)) if "POOL" not in name else (1, 1)
        )
        same = bool(self._random.integers(2))
        rows, columns = (
            int(self._random.integers(1, min(4, 4 if same else (length - 1) // step + 1) + 1))
            for length, step in ((height, step_h), (width, step_w))
        )
        made = [
            -(-length // stride) if same else (length - (size - 1) * step - 1) // stride + 1
            for length, size, stride, step in (
                (height, rows, stride_h, step_h),
                (width, columns, stride_w, step_w),
            )
        ]
        fields = {"padding": int(not same), "strideH": stride_h, "strideW": stride_w}
        fields["fusedActivationFunction"] = self._choose_activation()
        if "POOL" in name:
            output = self._add_value([batch, *made, depth], like=source)
            self._add_operator(
                name,
                [source],
                output,
                "Pool2DOptions",
                filterHeight=rows,
                filterWidth=columns,
                **fields,
            )
            return
        fields |= {"dilationHFactor": step_h, "dilationWFactor": step_w}
        if name == "CONV_2D":
            channels = int(self._random.integers(1, 9))
            extra = self._add_weights([channels, rows, columns, depth], channels, 0, source)
            options = "Conv2DOptions"
        else:
            times = int(self._random.integers(1, 3))
            channels, fields["depthMultiplier"] = depth * times, times
            extra = self._add_weights([1, rows, columns, channels], channels, 3, source)
            options = "DepthwiseConv2DOptions"
        self._add_operator(
            name, [source, *extra], self._add_value([batch, *made, channels]), options, **fields
        )

    def _add_dense(self, source: int) -> None:
        units, depth = int(self._random.integers(1, 9)), math.prod(self._get_shape(source)[1:])
        extra = self._add_weights([units, depth], units, -1, source)
        fields = {"fusedActivationFunction": self._choose_activation()}
        self._add_operator(
            "FULLY_CONNECTED",
            [source, *extra],
            self._add_value([self._get_shape(source)[0], units]),
            "FullyConnectedOptions",
            **fields,
        )

    def _add_binary(self, name: str, source: int) -> None:
        shape = self._get_shape(source)
        alike = [n for n in self._values if self._get_shape(n) == shape]
        other, output = int(self._random.choice(alike)), self._add_value(shape)
        largest = max(
            float(np.asarray(self._tensors[n].quantization.scale)[0]) for n in (source, other)
        )
        self._tensors[output].quantization.scale = np.array(
            [largest * self._random.uniform(0.5, 2)], np.float32
        )
        options = f"{name.capitalize()}Options"
        self._add_operator(
            name,
            [source, other],
            output,
            options,
            fusedActivationFunction=self._choose_activation(),
        )

    def _add_pad(self, source: int) -> None:
        shape = self._get_shape(source)
        widths = np.zeros((len(shape), 2), np.int32)
        widths[1:] = self._random.integers(0, 3, (len(shape) - 1, 2))
        made = [n + int(w.sum()) for n, w in zip(shape, widths, strict=True)]
        self._add_operator(
            "PAD",
            [source, self._constant(widths)],
            self._add_value(made, like=source),
            "PadOptions",
        )

    def _add_mean(self, source: int) -> None:
        shape = self._get_shape(source)
        axes = self._constant(np.array([1, 2], np.int32)[: max(1, len(shape) - 2)])
        made = [
            1 if place in (1, 2)[: max(1, len(shape) - 2)] else n for place, n in enumerate(shape)
        ]
        self._add_operator(
            "MEAN", [source, axes], self._add_value(made), "ReducerOptions", keepDims=True
        )

    def _add_softmax(self, source: int) -> None:
        output = self._add_value(self._get_shape(source))
        held = self._tensors[output].quantization
        held.scale, held.zeroPoint = (
            np.array([1 / 256], np.float32),
            np.array([-128 if self._dtype == "int8" else 0]),
        )
        self._add_operator("SOFTMAX", [source], output, "SoftmaxOptions", beta=1.0)

    def _add_concatenation(self, source: int) -> None:
        shape = self._get_shape(source)
        axis = int(self._random.integers(1, len(shape)))
        made = [n * (2 if place == axis else 1) for place, n in enumerate(shape)]
        output = self._add_value(made, like=source)
        self._add_operator(
            "CONCATENATION", [source, source], output, "ConcatenationOptions", axis=axis
        )

    def _add_quantize(self, source: int) -> None:
        self._add_operator(
            "QUANTIZE", [source], self._add_value(self._get_shape(source)), "QuantizeOptions"
        )

    def _add_function(self, name: str, source: int) -> None:
        output = self._add_value(self._get_shape(source))
        held = self._tensors[output].quantization
        steps, lowest = (256, 0) if name == "LOGISTIC" else (128, 128)
        held.scale, held.zeroPoint = (
            np.array([1 / steps], np.float32),
            np.array([lowest - 128 * (self._dtype == "int8")]),
        )
        self._add_operator(name, [source], output)

    def _add_resize(self, source: int) -> None:
        batch, height, width, depth = self._get_shape(source)
        made = [int(self._random.integers(1, 2 * n + 1)) for n in (height, width)]
        kinds = ["NearestNeighbor", "Bilinear"] if self._dtype == "int8" else ["NearestNeighbor"]
        kind, size = str(self._random.choice(kinds)), self._constant(np.array(made, np.int32))
        corners = bool(self._random.integers(2))
        fields = {
            "alignCorners": corners,
            "halfPixelCenters": not corners and bool(self._random.integers(2)),
        }
        output = self._add_value([batch, *made, depth], like=source)
        name = {"NearestNeighbor": "RESIZE_NEAREST_NEIGHBOR", "Bilinear": "RESIZE_BILINEAR"}[kind]
        self._add_operator(name, [source, size], output, f"Resize{kind}Options", **fields)

    def _add_transpose_conv(self, source: int) -> None:
        batch, height, width, depth = self._get_shape(source)
        rows, columns, channels = (int(n) for n in self._random.integers(1, 4, 3))
        strides, same = (
            [int(n) for n in self._random.integers(1, 3, 2)],
            bool(self._random.integers(2)),
        )
        made = [
            length * stride + (0 if same else max(size - stride, 0))
            for length, stride, size in zip((height, width), strides, (rows, columns), strict=True)
        ]
        kernel, bias = self._add_weights([channels, rows, columns, depth], channels, 0, source)
        shape = self._constant(np.array([batch, *made, channels], np.int32))
        self._add_operator(
            "TRANSPOSE_CONV",
            [shape, kernel, source, bias],
            self._add_value([batch, *made, channels]),
            "TransposeConvOptions",
            padding=int(not same),
            strideH=strides[0],
            strideW=strides[1],
        )

    def grow(self) -> None:
        """Add an operator that fits one of the last values."""
        source = self._values[-1]
        makers: list[Callable[[int], None]] = [
            lambda s: self._add_binary("ADD", s),
            lambda s: self._add_binary("SUB", s),
            lambda s: self._add_binary("MUL", s),
            self._add_dense,
            self._add_softmax,
            self._add_concatenation,
            self._add_pad,
            self._add_quantize,
            self._add_mean,
            lambda s: self._add_function("LOGISTIC", s),
            lambda s: self._add_function("TANH", s),
        ]
        if len(self._get_shape(source)) == 4:
            makers += [self._add_resize] + [self._add_transpose_conv] * (self._dtype == "int8")
            for name in ("CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D"):
                makers += [lambda s, name=name: self._add_window(name, s)] * 2  # type: ignore[misc]
        makers[int(self._random.integers(len(makers)))](source)

    def content(self) -> bytes:
        """Return the graph as a file; the last value is its output."""
        graph, model = self._schema.SubGraphT(), self._schema.ModelT()
        graph.tensors, graph.operators = self._tensors, self._operators
        graph.inputs, graph.outputs = [self._values[0]], [self._values[-1]]
        model.version, model.operatorCodes, model.subgraphs, model.buffers = (
            3,
            self._codes,
            [graph],
            self._buffers,
        )
        return _pack_model(model)


# Where it is not 2.
_VERSIONS = {
    "CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "TRANSPOSE_CONV": 3, "RESIZE_BILINEAR": 3, "SVDF": 3,
    "BATCH_MATMUL": 3, "UNIDIRECTIONAL_SEQUENCE_LSTM": 3,
    **dict.fromkeys((
        "ADD_N", "CEIL", "COS", "CUMSUM", "DEPTH_TO_SPACE", "ELU", "FILL", "FLOOR", "HARD_SWISH", "LOGICAL_AND",
        "LOGICAL_NOT", "LOGICAL_OR", "NEG", "PRELU", "REDUCE_ALL", "REDUCE_ANY", "ROUND", "SHAPE", "SIN", "SQUARE",
        "ZEROS_LIKE",
    ), 1),
}  # fmt: skip


def generate_integer_graph(
    seed: int, operators: int = 4, kind: type[IntegerGraph] = IntegerGraph
) -> bytes:
    """Return a TensorFlow Lite file in 8-bit numbers; equal seeds give equal files.

    Parameters
    ----------
    seed
        Where choices come from.
    operators
        The number of operators.
    kind
        What chooses the operators.
    """
    random = np.random.default_rng(seed)
    graph = kind(random, str(random.choice(["int8", "int8", "uint8"])))
    for _ in range(operators):
        graph.grow()
    return graph.content()
