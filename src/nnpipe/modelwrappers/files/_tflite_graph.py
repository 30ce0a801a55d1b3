"""Analysis of a TensorFlow Lite model: operators, constants and intermediate values."""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError, MissingDependency, SpecMismatch
from nnpipe.core.graph import Graph, Operation, Selector
from nnpipe.core.primitives import (
    Length,
    PlainKind,
    PlainPrimitive,
    PoolingPrimitive,
    Primitive,
    RecurrentPrimitive,
    Shape,
    build_convolution,
    build_linear,
    build_matrix_product,
)
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, generate_random_batch, show_shape
from nnpipe.formats.tflite import read_tflite
from nnpipe.formats.tflite_graph import TFLiteGraph, TFLiteNode, read_graph
from nnpipe.frameworks.litert import LiteRTSession, open_interpreter
from nnpipe.modelwrappers.frameworks.inspection import check_weights, select_tensors

_SCHEMAS = ("ai_edge_litert.schema_py_generated", "tensorflow.lite.python.schema_py_generated")
_IDENTIFIER = b"TFL3"


def replace_by_inputs(content: bytes, numbers: Iterable[int]) -> tuple[bytes, dict[int, int]]:
    """Return the model with an input in place of each chosen tensor that operators take, and the
    inputs' numbers.

    The tensors are still computed, and all others keep their numbers.

    Parameters
    ----------
    content
        Content of a file that has been checked.
    numbers
        Numbers of tensors in the first graph.
    """
    schema, flatbuffers = _import_schema()
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = model.subgraphs[0]
    fresh: dict[int, int] = {}
    for number in numbers:
        fresh[number] = len(graph.tensors)
        tensor = copy.copy(graph.tensors[number])
        tensor.name, tensor.buffer = (tensor.name or b"") + b":given", 0
        graph.tensors.append(tensor)
    for operator in graph.operators:
        operator.inputs = [fresh.get(int(n), int(n)) for n in operator.inputs]
    graph.inputs = [*map(int, graph.inputs), *fresh.values()]
    model.signatureDefs = []  # they would not name the new inputs
    builder = flatbuffers.Builder(len(content) + (1 << 16))
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    return bytes(builder.Output()), fresh


def _import_schema() -> tuple[Any, Any]:
    for name in _SCHEMAS:
        try:
            return importlib.import_module(name), importlib.import_module("flatbuffers")
        except ImportError:
            continue
    raise MissingDependency(
        "giving values to the operators of a TensorFlow Lite model needs ai-edge-litert or "
        "tensorflow with flatbuffers: pip install 'nnpipe[litert]'"
    )


_PLAIN: Mapping[PlainKind, str] = {
    "elementwise": (
        "ADD SUB MUL DIV MAXIMUM MINIMUM RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 LEAKY_RELU ELU "
        "LOGISTIC TANH HARD_SWISH GELU PRELU EXP LOG SQRT RSQRT SQUARE SQUARED_DIFFERENCE ABS NEG "
        "SIN COS FLOOR CEIL ROUND POW FLOOR_DIV FLOOR_MOD EQUAL NOT_EQUAL GREATER GREATER_EQUAL "
        "LESS LESS_EQUAL LOGICAL_AND LOGICAL_OR LOGICAL_NOT SELECT SELECT_V2 ADD_N CUMSUM SIGN "
        "ATAN2 BITWISE_XOR RIGHT_SHIFT"
    ),
    "reduction": "MEAN SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_ANY REDUCE_ALL ARG_MAX ARG_MIN TOPK_V2",
    "softmax": "SOFTMAX LOG_SOFTMAX",
    "quantisation": "QUANTIZE DEQUANTIZE FAKE_QUANT",
    "gather": "GATHER GATHER_ND EMBEDDING_LOOKUP",
    "movement": (
        "CONCATENATION PACK UNPACK SPLIT SPLIT_V SLICE STRIDED_SLICE PAD PADV2 MIRROR_PAD TILE "
        "TRANSPOSE CAST FILL RANGE ONE_HOT SPACE_TO_DEPTH DEPTH_TO_SPACE SPACE_TO_BATCH_ND "
        "BATCH_TO_SPACE_ND REVERSE_V2 REVERSE_SEQUENCE SCATTER_ND BROADCAST_TO BROADCAST_ARGS "
        "DYNAMIC_UPDATE_SLICE ZEROS_LIKE MATRIX_DIAG MATRIX_SET_DIAG WHERE SPARSE_TO_DENSE UNIQUE"
    ),
    "view": "RESHAPE SQUEEZE EXPAND_DIMS SHAPE RANK BITCAST",
}
_PLAINS: dict[str, PlainKind] = {
    name: kind for kind, names in _PLAIN.items() for name in names.split()
}
_RANDOM = {"RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"}
_NORMALISATIONS = {"L2_NORMALIZATION": "l2", "LOCAL_RESPONSE_NORMALIZATION": "local response"}
_RESIZES = {"RESIZE_BILINEAR": "linear", "RESIZE_NEAREST_NEIGHBOR": "nearest"}
_POOLS = {"MAX_POOL_2D": "max", "AVERAGE_POOL_2D": "mean", "L2_POOL_2D": "norm"}
_ACTIVATIONS = {1: "relu", 2: "relu_n1_to_1", 3: "relu6", 4: "tanh", 5: "sign_bit"}
_Shapes = Sequence[Shape | None]


def list_primitives(
    kind: str, options: Mapping[str, int], inputs: _Shapes, outputs: _Shapes
) -> tuple[Primitive, ...]:
    """Return the primitives of an operator: its own and a fused activation; none if it is not known
    here.

    Parameters
    ----------
    kind
        The operator's name in the schema.
    options
        What :func:`~nnpipe.formats.tflite_graph.read_options` returns.
    inputs, outputs
        Shapes in the order of the operator's tensors, ``None`` for tensors that are not known.
    """
    try:
        found = _describe_primitive(kind, options, inputs, outputs)
    except (SpecMismatch, IndexError, TypeError):
        return ()
    if found is None:
        return ()
    activation = _ACTIVATIONS.get(options.get("activation", 0))
    return (found,) if activation is None else (found, PlainPrimitive("elementwise", activation))


def _describe_primitive(
    kind: str, options: Mapping[str, int], inputs: _Shapes, outputs: _Shapes
) -> Primitive | None:
    if kind in _PLAINS:
        return PlainPrimitive(_PLAINS[kind], kind.lower())
    if kind in _RANDOM:
        return PlainPrimitive("elementwise", "random")
    if kind in _NORMALISATIONS:
        return PlainPrimitive("normalisation", _NORMALISATIONS[kind])
    if kind in _RESIZES:
        return PlainPrimitive("resize", _RESIZES[kind], (1, 2))
    if kind in _POOLS:
        return PoolingPrimitive(
            _POOLS[kind],
            _read_option_per_axis("filter", options),
            _read_option_per_axis("stride", options),
        )
    if kind == "FULLY_CONNECTED":
        units, depth = _get_shape(inputs, 1)
        return build_linear(_get_shape(inputs, 0), units, depth)
    if kind == "BATCH_MATMUL":
        flipped = bool(options.get("adjoint_first")), bool(options.get("adjoint_second"))
        return build_matrix_product(_get_shape(inputs, 0), _get_shape(inputs, 1), flipped)
    if kind == "UNIDIRECTIONAL_SEQUENCE_LSTM":
        return _describe_lstm(inputs, outputs)
    return _describe_convolution(kind, options, inputs, outputs)


def _describe_convolution(
    kind: str, options: Mapping[str, int], inputs: _Shapes, outputs: _Shapes
) -> Primitive | None:
    transposed = kind in ("TRANSPOSE_CONV", "CONV_3D_TRANSPOSE")
    if not transposed and kind not in ("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_3D"):
        return None
    # The first input of a transposed convolution is the shape of its output.
    data, weights, output = (
        _get_shape(inputs, 2 if transposed else 0),
        _get_shape(inputs, 1),
        _get_shape(outputs, 0),
    )
    taken, given = data[-1], output[-1]
    groups: Length = 1
    # (depth, height, width, in, out), or (.., out, in) if it is transposed
    if kind.startswith("CONV_3D"):
        kernel = weights[:3]
    else:  # (out, height, width, in); depthwise (1, height, width, out)
        kernel = weights[1:3]
        if kind == "DEPTHWISE_CONV_2D":
            groups = taken
        elif taken and weights[3]:
            groups = taken // weights[3]
    return build_convolution(
        data,
        kernel,
        (taken, given),
        output,
        channel_axis=-1,
        groups=groups or 0,
        strides=_read_option_per_axis("stride", options),
        dilations=_read_option_per_axis("dilation", options),
        transposed=transposed,
    )


def _describe_lstm(inputs: _Shapes, outputs: _Shapes) -> Primitive | None:
    data, weights, output = _get_shape(inputs, 0), _get_shape(inputs, 1), _get_shape(outputs, 0)
    units = weights[0]
    # The state is projected to fewer numbers, for which there is no rule; or steps come first,
    # which changes nothing.
    return (
        RecurrentPrimitive("lstm", data[0], data[1], data[2], units)
        if output[-1] == units
        else None
    )


def _read_option_per_axis(name: str, options: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(options[f"{name}_{axis}"] for axis in "dhw" if f"{name}_{axis}" in options)


def _get_shape(shapes: _Shapes, place: int) -> Shape:
    found = shapes[place]
    if found is None:
        raise SpecMismatch("a tensor has no known shape")
    return found


# Modules with the names of operators; tflite_runtime has none.


class TFLiteSource:
    """A TensorFlow Lite model.

    Attributes
    ----------
    path
        The model file.
    content
        The content of the file with replaced weights; ``None`` while it is unchanged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: bytearray | None = None

    @cached_property
    def file_graph(self) -> TFLiteGraph:
        """The first graph of the file; replacing weights does not change it."""
        return read_graph(self.path)

    # -- weights ----------------------------------------------------------------------------------

    def get_weights(self, keys: Iterable[str] | None) -> dict[str, np.ndarray]:
        """Return copies of constant tensors by name."""
        own = self._list_weights()
        names = list(own if keys is None else keys)
        check_weights(self.path, names, own)
        data = self.path.read_bytes() if self.content is None else bytes(self.content)
        return {name: self._read_weight(data, own[name]).copy() for name in names}

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Replace constant tensors, after a check that all of them fit."""
        own = self._list_weights()
        check_weights(self.path, weights, own)
        fresh = {}
        for name, array in weights.items():
            spec, given = self.file_graph.tensors[own[name]], np.asarray(array)
            dtype = np.dtype(spec.dtype)
            if given.shape != spec.shape or given.dtype.kind != dtype.kind:
                raise SpecMismatch(
                    f"weight {name!r} is {spec.dtype} {show_shape(spec.shape)}, "
                    f"given: {given.dtype} {show_shape(given.shape)}"
                )
            fresh[own[name]] = np.ascontiguousarray(given, dtype.newbyteorder("<")).tobytes()
        if fresh and self.content is None:
            self.content = bytearray(self.path.read_bytes())
        for number, data in fresh.items():
            start = self.file_graph.constants[number]
            assert self.content is not None
            self.content[start : start + len(data)] = data

    def _list_weights(self) -> dict[str, int]:
        return {self.file_graph.names[number]: number for number in self.file_graph.constants}

    def _read_weight(self, data: bytes, number: int) -> np.ndarray:
        spec = self.file_graph.tensors[number]
        shape = tuple(int(n or 0) for n in spec.shape)
        dtype = np.dtype(spec.dtype)
        array = np.frombuffer(
            data, dtype.newbyteorder("<"), math.prod(shape), self.file_graph.constants[number]
        )
        return array.reshape(shape).astype(dtype)

    # -- graph ------------------------------------------------------------------------------------

    def graph(self, io: IOSpec, sized: bool = False) -> Graph:
        """Return the operators; tensors of types that numpy lacks are left out.

        If it is ``sized``, all shapes follow from those of the inputs in ``io``, and none is left
        free.
        """
        file = self.file_graph
        kinds = _list_kinds()
        computed = {number for node in file.nodes for number in node.outputs}
        free = any(None in spec.shape for spec in io.inputs)
        tensors = {
            number: _make_batch_axis_free(spec)
            if free and number in computed & file.fixed
            else spec
            for number, spec in file.tensors.items()
        }
        if sized and any(None in spec.shape for spec in tensors.values()):
            lengths = self._measure_shapes(io)
            tensors = {
                n: replace(spec, shape=lengths.get(n, spec.shape)) for n, spec in tensors.items()
            }

        def list_names(numbers: Iterable[int]) -> tuple[str, ...]:
            return tuple(file.names[number] for number in numbers if number in tensors)

        def list_shapes(numbers: Iterable[int]) -> list[tuple[int | None, ...] | None]:
            return [tensors[number].shape if number in tensors else None for number in numbers]

        operations = tuple(
            Operation(
                f"{_get_kind(node, kinds)}_{number}",
                _get_kind(node, kinds),
                list_names(node.inputs),
                list_names(node.outputs),
                file.names[node.outputs[0]].rpartition("/")[0] if node.outputs else "",
                number,
                list_primitives(
                    _get_kind(node, kinds),
                    node.options,
                    list_shapes(node.inputs),
                    list_shapes(node.outputs),
                ),
                sum(used not in tensors for used in (*node.inputs, *node.outputs)),
            )
            for number, node in enumerate(file.nodes)
        )
        return Graph(
            operations,
            {spec.name: spec for spec in tensors.values()},
            list_names(file.inputs[spec.name] for spec in io.inputs),
            list_names(file.outputs[spec.name] for spec in io.outputs),
            file,
        )

    def _measure_shapes(self, io: IOSpec) -> dict[int, tuple[int, ...]]:
        """Return the shape of each tensor after a run on random inputs with the shapes in
        ``io``.
        """
        content = None if self.content is None else bytes(self.content)
        interpreter = open_interpreter(
            self.path,
            0,
            resolver="BUILTIN_WITHOUT_DEFAULT_DELEGATES",
            content=content,
            keep_all=True,
        )
        with LiteRTSession(interpreter, io, read_tflite(self.path), self.path) as session:
            session.put(generate_random_batch(io, 1))
            session.run()
            found = interpreter.get_tensor_details()
        return {
            int(each["index"]): tuple(int(length) for length in each["shape"]) for each in found
        }

    def compute_intermediates(
        self, selector: Selector, io: IOSpec, batch: Batch, given: Batch
    ) -> dict[str, np.ndarray]:
        """Return the selected values; operators use given values in place of computed ones."""
        wanted = select_tensors(self.path, selector, self.graph(io).operations)
        numbers = {name: number for number, name in enumerate(self.file_graph.names)}
        content = None if self.content is None else bytes(self.content)
        inputs: dict[int, int] = {}
        if given:
            content, inputs = replace_by_inputs(
                content or self.path.read_bytes(), [numbers[name] for name in given]
            )
        # XNNPACK fuses operators, and does not expose the values between them.
        interpreter = open_interpreter(
            self.path,
            0,
            resolver="BUILTIN_WITHOUT_DEFAULT_DELEGATES",
            content=content,
            keep_all=True,
        )
        with LiteRTSession(interpreter, io, read_tflite(self.path), self.path) as session:
            for name, array in given.items():
                interpreter.resize_tensor_input(inputs[numbers[name]], array.shape)
            session.put(batch)
            for name, array in given.items():
                interpreter.set_tensor(inputs[numbers[name]], np.ascontiguousarray(array))
            session.run()
            try:
                return {name: np.array(interpreter.get_tensor(numbers[name])) for name in wanted}
            except ValueError as error:
                text = " ".join(str(error).split())
                raise ArtifactError(
                    f"{self.path}: LiteRT shows no value of a chosen tensor: {text}"
                ) from None


def _make_batch_axis_free(spec: TensorSpec) -> TensorSpec:
    """Return the spec with a first axis of length 1 as a free batch axis, for files that do not
    state it.
    """
    return replace(spec, shape=tuple(None if length == 1 else length for length in spec.shape))


def _list_kinds() -> dict[int, str]:
    """Return the names of operators by number, from the first installed package that has them."""
    for name in _SCHEMAS:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return {
            number: kind
            for kind, number in vars(module.BuiltinOperator).items()
            if isinstance(number, int)
        }
    return {}


def _get_kind(node: TFLiteNode, kinds: Mapping[int, str]) -> str:
    return node.custom or kinds.get(node.code, f"OPERATOR_{node.code}")
