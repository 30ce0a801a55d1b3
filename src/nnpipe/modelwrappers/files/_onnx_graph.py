"""Analysis of an ONNX model: nodes, weights and intermediate values."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType, ModuleType
from typing import Any, Literal

import numpy as np

from nnpipe.core.errors import ArtifactError, MissingDependency, SpecMismatch
from nnpipe.core.graph import Graph, Operation, Selector
from nnpipe.core.log_levels import suppress_log_messages
from nnpipe.core.messages import format_one_line
from nnpipe.core.primitives import (
    AttentionPrimitive,
    Length,
    PlainKind,
    PlainPrimitive,
    PoolingPrimitive,
    Primitive,
    RecurrentPrimitive,
    Shape,
    build_convolution,
    build_einsum,
    build_linear,
    build_matrix_product,
    multiply_lengths,
)
from nnpipe.core.tensors import DTYPES, Batch, IOSpec, TensorSpec, generate_random_batch, show_shape
from nnpipe.formats.onnx import ONNXFile
from nnpipe.frameworks.onnxruntime import open_model
from nnpipe.modelwrappers.frameworks.inspection import check_weights, select_tensors

_PLAIN: Mapping[PlainKind, str] = {
    "elementwise": (
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr "
        "BitwiseXor Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater "
        "GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean "
        "Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin "
        "Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor Dropout "
        "CumSum RotaryEmbedding com.microsoft.QLinearAdd com.microsoft.QLinearMul "
        "com.microsoft.QLinearLeakyRelu com.microsoft.QLinearSigmoid com.microsoft.QuickGelu "
        "com.microsoft.FastGelu com.microsoft.BiasGelu com.microsoft.Gelu ai.onnx.ml.Scaler"
    ),
    "reduction": (
        "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
        "ReduceMin ReduceProd ReduceSum ReduceSumSquare TopK com.microsoft.QLinearReduceMean"
    ),
    "softmax": "Softmax LogSoftmax Hardmax com.microsoft.QLinearSoftmax",
    "quantisation": (
        "QuantizeLinear DequantizeLinear DynamicQuantizeLinear com.microsoft.QuantizeLinear "
        "com.microsoft.DequantizeLinear"
    ),
    "gather": "Gather GatherElements GatherND",
    "movement": (
        "Cast CastLike Compress Concat ConstantOfShape DepthToSpace Expand EyeLike OneHot Pad "
        "Range ReverseSequence ScatterElements ScatterND Scatter Slice SpaceToDepth Split Tile "
        "Transpose Trilu TensorScatter Upsample com.microsoft.QLinearConcat Unique NonZero"
    ),
    "view": "Flatten Identity Reshape Shape Size Squeeze Unsqueeze",
}
_PLAINS: dict[str, PlainKind] = {
    name: kind for kind, names in _PLAIN.items() for name in names.split()
}
_RANDOM = set(
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial".split()
)
_NORMALISATIONS = {
    "BatchNormalization": "batch",
    "InstanceNormalization": "instance",
    "LayerNormalization": "layer",
    "GroupNormalization": "group",
    "RMSNormalization": "rms",
    "LpNormalization": "l2",
    "LRN": "local response",
    "SimplifiedLayerNormalization": "rms",
    "MeanVarianceNormalization": "layer",
    "com.microsoft.SkipLayerNormalization": "layer",
    "com.microsoft.SkipSimplifiedLayerNormalization": "rms",
}
_EPSILON = 1e-5  # of normalisations that do not state another
_WEIGHTS = {
    "Conv": 1,
    "ConvTranspose": 1,
    "ConvInteger": 1,
    "com.microsoft.FusedConv": 1,
    "QLinearConv": 3,
}
_PRODUCTS = {"MatMul": 1, "MatMulInteger": 1, "QLinearMatMul": 3, "com.microsoft.QLinearMatMul": 3}
_GEMMS = {"Gemm": 1, "com.microsoft.QGemm": 3, "com.microsoft.FusedGemm": 1}
_POOLS = {
    "MaxPool": "max",
    "AveragePool": "mean",
    "LpPool": "norm",
    "com.microsoft.QLinearAveragePool": "mean",
}
_WHOLE_POOLS = {
    "GlobalMaxPool": "max",
    "GlobalAveragePool": "mean",
    "GlobalLpPool": "norm",
    "com.microsoft.QLinearGlobalAveragePool": "mean",
}
_CELLS: Mapping[str, Literal["lstm", "gru", "rnn"]] = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn"}


@dataclass(frozen=True)
class _Call:
    """A node: its kind, attributes, and the shapes of its inputs and outputs, ``None`` for those
    that are left out.
    """

    kind: str
    attributes: Mapping[str, Any]
    inputs: Sequence[Shape | None]
    outputs: Sequence[Shape | None]

    def shape(self, place: int) -> Shape:
        found = self.inputs[place] if place < len(self.inputs) else None
        if found is None:
            raise SpecMismatch(f"input {place} of {self.kind} has no known shape")
        return found

    def result(self) -> Shape:
        if not self.outputs or self.outputs[0] is None:
            raise SpecMismatch(f"the result of {self.kind} has no known shape")
        return self.outputs[0]

    def lengths(self, name: str) -> tuple[int, ...]:
        return tuple(int(length) for length in self.attributes.get(name, ()))


def list_primitives(
    kind: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[Shape | None],
    outputs: Sequence[Shape | None],
) -> tuple[Primitive, ...]:
    """Return the primitives of a node; none if its operator is not known here, or its attributes
    contradict its shapes.

    Parameters
    ----------
    kind
        The operator, after its domain and a dot unless it is one of ONNX's own.
    attributes
        Values by name.
    inputs, outputs
        Shapes in the order of the operator's definition; ``None`` for tensors that are left out or
        have no known rank.
    """
    try:
        found = _describe_primitive(_Call(kind, attributes, inputs, outputs))
    except (SpecMismatch, IndexError, TypeError, ValueError):
        return ()
    return () if found is None else (found,)


def _describe_primitive(call: _Call) -> Primitive | None:
    kind = call.kind
    if kind in _PLAINS:
        return PlainPrimitive(_PLAINS[kind], kind.rpartition(".")[2].lower())
    if kind in _RANDOM:
        return PlainPrimitive("elementwise", "random")
    if kind in _NORMALISATIONS:
        epsilon = call.attributes.get("epsilon", _EPSILON)
        return PlainPrimitive("normalisation", _NORMALISATIONS[kind], epsilon=float(epsilon))
    if kind in _POOLS:
        return PoolingPrimitive(
            _POOLS[kind],
            call.lengths("kernel_shape"),
            call.lengths("strides"),
            call.lengths("dilations"),
        )
    if kind in _WHOLE_POOLS:
        return PoolingPrimitive(_WHOLE_POOLS[kind])
    if kind in _WEIGHTS:
        return _describe_convolution(call, call.shape(_WEIGHTS[kind]))
    if kind in _PRODUCTS:
        return build_matrix_product(call.shape(0), call.shape(_PRODUCTS[kind]))
    if kind in _GEMMS:
        flipped = bool(call.attributes.get("transA", 0)), bool(call.attributes.get("transB", 0))
        return build_matrix_product(call.shape(0), call.shape(_GEMMS[kind]), flipped)
    return _OTHERS[kind](call) if kind in _OTHERS else None


def _describe_convolution(call: _Call, weights: Shape) -> Primitive:
    groups, transposed = int(call.attributes.get("group", 1)), call.kind == "ConvTranspose"
    first, second = weights[:2]
    # (out, in / groups, kernel ...), or (in, out / groups, kernel ...) if it is transposed
    channels = (
        (first, multiply_lengths((second, groups)))
        if transposed
        else (multiply_lengths((second, groups)), first)
    )
    return build_convolution(
        call.shape(0),
        weights[2:],
        channels,
        call.result(),
        channel_axis=1,
        groups=groups,
        strides=call.lengths("strides"),
        dilations=call.lengths("dilations"),
        transposed=transposed,
    )


def _describe_recurrent(call: _Call) -> Primitive:
    data, weights, state = call.shape(0), call.shape(1), call.shape(2)
    steps, batch = (data[1], data[0]) if call.attributes.get("layout", 0) else data[:2]
    return RecurrentPrimitive(
        _CELLS[call.kind], batch, steps, weights[2], state[2], int(weights[0] or 1)
    )


def _describe_attention(call: _Call) -> Primitive:
    queries, keys, values = call.shape(0), call.shape(1), call.shape(2)
    heads: Length = call.attributes.get("q_num_heads") if len(queries) == 3 else queries[1]
    its: Length = call.attributes.get("kv_num_heads") if len(keys) == 3 else keys[1]
    depth = queries[-1] if len(queries) == 4 else _compute_share(queries[-1], heads)
    value_depth = values[-1] if len(values) == 4 else _compute_share(values[-1], its)
    past = call.inputs[4][2] if len(call.inputs) > 4 and call.inputs[4] is not None else 0
    length = None if keys[-2] is None or past is None else keys[-2] + past
    return AttentionPrimitive(
        multiply_lengths((queries[0], heads)), queries[-2], length, depth, value_depth
    )


def _compute_share(whole: Length, parts: Length) -> Length:
    return None if whole is None or not parts else whole // parts


def _describe_resize(call: _Call) -> Primitive:
    mode = call.attributes.get("mode", "nearest")
    rank = len(call.shape(0))
    changed = [
        axis
        for axis, pair in enumerate(zip(call.shape(0), call.result(), strict=True))
        if pair[0] != pair[1]
    ]
    return PlainPrimitive("resize", str(mode), tuple(changed[:rank]))


def _describe_quantised_product(call: _Call) -> Primitive:
    """Read MatMulNBits: products with a matrix of ``K`` by ``N`` values of a few bits."""
    return build_linear(call.shape(0), int(call.attributes["N"]), int(call.attributes["K"]))


_OTHERS: Mapping[str, Callable[[_Call], Primitive]] = {
    **dict.fromkeys(_CELLS, _describe_recurrent),
    "Attention": _describe_attention,
    "Einsum": lambda call: build_einsum(
        str(call.attributes["equation"]), [call.shape(place) for place in range(len(call.inputs))]
    ),
    "Resize": _describe_resize,
    "com.microsoft.MatMulNBits": _describe_quantised_product,
}

_NOTHING: Batch = MappingProxyType({})
_SMALL = 1 << 16  # bytes of an external weight that is read with the graph


class ONNXSource:
    """An ONNX model that is read when its content is first needed.

    Attributes
    ----------
    file
        The model file.
    changed
        Whether the model differs from the file: weights have been set, or
        dictionaries of scores have been replaced by tensors.
    """

    def __init__(self, file: ONNXFile) -> None:
        self.file = file
        self.changed = bool(file.zipped)

    @cached_property
    def model(self) -> Any:
        """The ``onnx_ir.Model`` with unique names of nodes and inferred shapes.

        Large external weights stay in their files until weights are asked for.
        """
        ir = _import_module("onnx_ir")
        _import_module("onnx")
        passes = _import_module("onnx_ir.passes.common")
        self.file.check_external()
        try:
            model = (
                _load_without_zipmaps(self.file) if self.file.zipped else ir.load(self.file.path)
            )
            small = [
                value
                for value in _list_external_weights(model)
                if value.const_value.nbytes <= _SMALL
            ]
            _load(small)  # shapes may follow from them
        except Exception as error:  # protobuf, onnx_ir and file errors share no base
            raise ArtifactError(
                f"{self.file.path}: not a usable ONNX model: {format_one_line(error)}"
            ) from None
        # Shapes are optional; without them the model is run to find them.  onnx_ir logs its
        # failures with tracebacks.
        with suppress(Exception), suppress_log_messages("onnx_ir"):
            model = passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(
                model
            ).model
        _make_node_names_unique(model.graph)
        return model

    def _load_weights(self) -> Any:
        """Return the model with all weights in memory."""
        try:
            _load(_list_external_weights(self.model))
        except Exception as error:  # file errors and those of onnx_ir share no base
            raise ArtifactError(
                f"{self.file.path}: not a usable ONNX model: {format_one_line(error)}"
            ) from None
        return self.model

    def serialize(self) -> bytes:
        """Return the content of a file with the model and its present weights."""
        model = self._load_weights()
        try:
            return bytes(_import_module("onnx_ir").to_proto(model).SerializeToString())
        except Exception as error:  # larger than 2 GB, or text that is not valid UTF-8
            raise ArtifactError(
                f"{self.file.path}: cannot be held in one piece: {format_one_line(error)}"
            ) from None

    # -- weights ----------------------------------------------------------------------------------

    def get_weights(self, keys: Iterable[str] | None) -> dict[str, np.ndarray]:
        """Return copies of initialisers by name."""
        own = self._list_weights()
        names = list(own if keys is None else keys)
        check_weights(self.file.path, names, own)
        return {name: np.array(own[name].const_value.numpy()) for name in names}

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Replace initialisers, after a check that all of them fit."""
        own = self._list_weights()
        check_weights(self.file.path, weights, own)
        fresh = {}
        for name, array in weights.items():
            given, present = np.asarray(array), own[name].const_value
            shape, dtype = tuple(present.shape.numpy()), present.numpy().dtype
            if given.shape != shape or (given.dtype != dtype and given.dtype.kind != dtype.kind):
                raise SpecMismatch(
                    f"weight {name!r} is {dtype} {show_shape(shape)}, given: {given.dtype} "
                    f"{show_shape(given.shape)}"
                )
            fresh[name] = np.array(given, dtype)
        ir = _import_module("onnx_ir")
        for name, array in fresh.items():
            own[name].const_value = ir.Tensor(array, dtype=own[name].const_value.dtype, name=name)
        self.changed = self.changed or bool(fresh)

    def _list_weights(self) -> dict[str, Any]:
        found = self._load_weights().graph.initializers
        return {
            name: value for name, value in found.items() if value.const_value.dtype.name != "STRING"
        }

    # -- graph ------------------------------------------------------------------------------------

    def graph(self, io: IOSpec, sized: bool = False) -> Graph:
        """Return the main graph; values other than tensors (sequences, maps) are left out.

        If it is ``sized``, all shapes follow from those of the inputs in ``io``, and none is left
        free.
        """
        graph = (self._with_input_shapes(io) if sized else self.model).graph
        values = {
            value.name: value
            for value in (*graph.inputs, *graph.initializers.values())
            if value.name
        }
        nodes = []
        for node in graph:
            values |= {value.name: value for value in node.outputs if value.name}
            if node.op_type != "Constant":
                nodes.append(node)
        tensors = {
            name: spec for name, value in values.items() if (spec := _read_spec(value)) is not None
        }
        unknown = [
            name for name, value in values.items() if name not in tensors and _may_be_tensor(value)
        ]
        if sized:
            unknown += [name for name, spec in tensors.items() if None in spec.shape]
        if unknown:
            tensors |= self._find_specs_by_run(unknown, io, sized)
        known = {spec.name: spec for spec in (io.inputs if sized else io)}
        tensors |= {name: known[name] for name in tensors if name in known}
        return Graph(
            tuple(_convert_node(node, tensors) for node in nodes),
            tensors,
            tuple(spec.name for spec in io.inputs),
            tuple(spec.name for spec in io.outputs),
            self.model,
        )

    def _with_input_shapes(self, io: IOSpec) -> Any:
        """Return the model with the shapes that follow from the inputs in ``io`` if the file
        leaves some free.
        """
        lengths = {spec.name: spec.shape for spec in io.inputs}
        stated = {value.name: _read_spec(value) for value in self.model.graph.inputs}
        if all(
            spec is not None and spec.shape == lengths[name]
            for name, spec in stated.items()
            if name in lengths
        ):
            return self.model
        ir, passes = _import_module("onnx_ir"), _import_module("onnx_ir.passes.common")
        model = self.model.clone()
        for node in model.graph:
            for value in node.outputs:
                if value.shape is not None and not all(
                    isinstance(length, int) for length in value.shape
                ):
                    value.shape = None
        for value in model.graph.inputs:
            if value.name in lengths:
                value.shape = ir.Shape(lengths[value.name])
        with suppress(Exception):  # what cannot be inferred is found by a run
            return passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(
                model
            ).model
        return model

    def _find_specs_by_run(
        self, names: Sequence[str], io: IOSpec, sized: bool
    ) -> dict[str, TensorSpec]:
        """Return the types and ranks, found by one run, of tensors for which the file does not
        state them.

        If the shapes of the inputs are given (``sized``), those of the tensors are known, too.
        """
        try:
            arrays = self._run_for(names, generate_random_batch(io, 1))
        except (ArtifactError, SpecMismatch):
            return {}
        found = {}
        for name, array in arrays.items():
            dtype = "string" if array.dtype.kind in "OUS" else array.dtype.name
            if dtype in DTYPES:
                found[name] = TensorSpec(
                    name, array.shape if sized else (None,) * array.ndim, dtype
                )
        return found

    # -- running ----------------------------------------------------------------------------------

    def compute_intermediates(
        self, selector: Selector, graph: Graph, batch: Batch, given: Batch
    ) -> dict[str, np.ndarray]:
        """Return the selected values; operations use given values in place of computed ones."""
        return self._run_for(
            select_tensors(self.file.path, selector, graph.operations), batch, given
        )

    def _run_for(
        self, names: Sequence[str], batch: Batch, given: Batch = _NOTHING
    ) -> dict[str, np.ndarray]:
        onnx = _import_module("onnx")
        proto = onnx.load_from_string(self.serialize())
        present = {value.name for value in proto.graph.output}
        proto.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in names if name not in present
        )
        taken = {
            name: _replace_by_input(onnx, proto.graph, name, array) for name, array in given.items()
        }
        native = open_model(self.file, 0, optimisation="none", content=proto.SerializeToString())
        try:
            arrays = native.run(
                list(names), {**batch, **{taken[name]: array for name, array in given.items()}}
            )
        except Exception as error:  # its errors share no base but Exception
            raise ArtifactError(
                f"{self.file.path}: ONNX Runtime cannot run it: {format_one_line(error)}"
            ) from None
        return {
            name: np.array(array)
            for name, array in zip(names, arrays, strict=True)
            if isinstance(array, np.ndarray)
        }


def _replace_by_input(onnx: Any, graph: Any, name: str, array: np.ndarray) -> str:
    """Replace all uses of a tensor by a new input of the model, and return the input's name."""
    fresh = f"{name}:given"
    for node in graph.node:
        for place, taken in enumerate(node.input):
            if taken == name:
                node.input[place] = fresh
    graph.input.append(
        onnx.helper.make_tensor_value_info(
            fresh, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), None
        )
    )
    return fresh


def _load_without_zipmaps(file: ONNXFile) -> Any:
    """Load a model with each ``ZipMap``, whose dictionaries of scores onnx_ir rejects, replaced
    by its tensor.
    """
    ir, onnx = _import_module("onnx_ir"), _import_module("onnx")
    proto = onnx.load(file.path, load_external_data=False)
    for index, output in enumerate(proto.graph.output):
        if output.name in file.zipped:
            scores = file.zipped[output.name]
            proto.graph.output[index].CopyFrom(
                onnx.helper.make_tensor_value_info(scores, onnx.TensorProto.FLOAT, [None, None])
            )
    kept = [node for node in proto.graph.node if not set(node.output) <= file.zipped.keys()]
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    model = ir.from_proto(proto)
    ir.external_data.set_base_dir(model.graph, file.path.parent)
    return model


def _list_external_weights(model: Any) -> list[Any]:
    """Return the weights of a model, and of graphs within its nodes, that are still in files
    beside it.
    """
    ir = _import_module("onnx_ir")
    weights = [value for graph in model.graphs() for value in graph.initializers.values()]
    return [value for value in weights if isinstance(value.const_value, ir.ExternalTensor)]


def _load(weights: Sequence[Any]) -> None:
    """Read weights from their files into memory."""
    ir = _import_module("onnx_ir")
    loaded = ir.external_data.convert_tensors_from_external(
        [value.const_value for value in weights]
    )
    for value, tensor in zip(weights, loaded, strict=True):
        value.const_value = tensor


def _make_node_names_unique(graph: Any) -> None:
    """Make the names of the main graph's nodes unique; names that already are stay."""
    taken = set()
    for number, node in enumerate(graph):
        name = node.name or f"{node.op_type}_{number}"
        while name in taken:
            name = f"{name}_{number}"
        taken.add(name)
        node.name = name


def _convert_node(node: Any, tensors: Mapping[str, TensorSpec]) -> Operation:
    """Return a node with those of its tensors whose types numpy has."""
    kind = _get_kind(node)
    # A tensor that is left out has no name.
    sides = [
        ["" if value is None else str(value.name or "") for value in side]
        for side in (node.inputs, node.outputs)
    ]
    shapes = [[tensors[name].shape if name in tensors else None for name in side] for side in sides]
    attributes = {
        name: attribute.value
        for name, attribute in node.attributes.items()
        if attribute.type.name not in _UNREAD
    }
    return Operation(
        node.name,
        kind,
        tuple(name for name in sides[0] if name in tensors),
        tuple(name for name in sides[1] if name in tensors),
        node.name.strip("/").rpartition("/")[0],
        node,
        list_primitives(kind, attributes, *shapes),
        sum(bool(name) and name not in tensors for side in sides for name in side),
    )


def _get_kind(node: Any) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


_UNREAD = set(
    "TENSOR TENSORS GRAPH GRAPHS SPARSE_TENSOR SPARSE_TENSORS TYPE_PROTO TYPE_PROTOS".split()
)
_DTYPES = {"FLOAT": "float32", "DOUBLE": "float64"}


def _read_spec(value: Any) -> TensorSpec | None:
    """Return the spec of a value, if it is known to be a tensor of a type that numpy has."""
    constant = value.const_value
    dtype = constant.dtype if constant is not None else value.dtype
    shape = constant.shape if constant is not None else value.shape
    if dtype is None or shape is None:
        return None
    name = _DTYPES.get(dtype.name, dtype.name.lower())
    if name not in DTYPES:
        return None
    return TensorSpec(value.name, tuple(n if isinstance(n, int) else None for n in shape), name)


def _may_be_tensor(value: Any) -> bool:
    """Return whether a value may be a tensor: not known as a sequence, a map, or of a type that
    numpy lacks.
    """
    kind = type(value.type).__name__
    return value.type is None or (
        kind == "TensorType" and (value.dtype is None or value.shape is None)
    )


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = "onnx-ir" if name.startswith("onnx_ir") else "onnx"
        raise MissingDependency(
            f"looking into an ONNX model needs {package}, which cannot be imported ({error}): pip "
            f"install {package}"
        ) from None
