"""The graph of a Keras model: the calls of its layers in order, with nested models expanded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.graph import Graph, Operation, Shapes
from nnpipe.core.messages import format_one_line
from nnpipe.core.primitives import (
    AttentionPrimitive,
    MatrixProduct,
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
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.frameworks.keras import (
    get_inner_graph,
    map_layer_paths,
    map_named_weights,
    resolve_keras_io,
)

_PLAIN: Mapping[PlainKind, str] = {
    "elementwise": (
        "Abs Absolute Activation ActivityRegularization Add Average Ceil Clip Cos Cumsum Divide "
        "ELU Elu Equal Erf Exp Expm1 Floor FloorDivide Gelu Greater GreaterEqual HardSigmoid "
        "HardSilu LeakyReLU LeakyRelu Less LessEqual Log Log1p LogSigmoid LogicalAnd LogicalNot "
        "LogicalOr Maximum Minimum Mod Multiply Negative Normalization NotEqual PReLU Power ReLU "
        "Reciprocal Relu Relu6 Rescaling Round Rsqrt Selu Sigmoid Sign Silu Sin Softplus Softsign "
        "Sqrt Square Subtract Tan Tanh TrueDivide Where"
    ),
    "reduction": "All Amax Amin Any Argmax Argmin Logsumexp Max Mean Min Prod Std Sum TopK Var",
    "softmax": "LogSoftmax Softmax",
    "gather": "Embedding Take TakeAlongAxis",
    "movement": (
        "Arange BroadcastTo Cast CategoryEncoding Concatenate Cropping1D Cropping2D Cropping3D "
        "Flip Full FullLike GetItem OneHot Ones OnesLike Pad Permute Repeat RepeatVector Roll "
        "Slice Split Stack Swapaxes Tile Transpose Moveaxis Zeros ZeroPadding1D ZeroPadding2D "
        "ZeroPadding3D ZerosLike"
    ),
    "view": (
        "AlphaDropout Dropout ExpandDims Flatten GaussianDropout GaussianNoise Identity Masking "
        "Ravel Reshape SpatialDropout1D SpatialDropout2D SpatialDropout3D Squeeze StopGradient"
    ),
}
_PLAINS: dict[str, PlainKind] = {
    name: kind for kind, names in _PLAIN.items() for name in names.split()
}
_NORMALISATIONS = {
    "BatchNormalization": "batch",
    "LayerNormalization": "layer",
    "GroupNormalization": "group",
    "UnitNormalization": "l2",
    "RMSNormalization": "rms",
}
_CELLS: Mapping[str, Literal["lstm", "gru", "rnn"]] = {
    "LSTM": "lstm",
    "GRU": "gru",
    "SimpleRNN": "rnn",
}
_POOLS = {
    "MaxPooling": "max",
    "AveragePooling": "mean",
    "GlobalMaxPooling": "max",
    "GlobalAveragePooling": "mean",
}
_RESIZES = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}
_RANKS = {"1D": 1, "2D": 2, "3D": 3}


@dataclass(frozen=True)
class _Call:
    """A call of a layer, and the shapes of its tensors."""

    layer: Any
    inputs: Sequence[Shape]
    outputs: Sequence[Shape]

    @property
    def channel_axis(self) -> int:
        first = getattr(self.layer, "data_format", "channels_last") == "channels_first"
        return 1 if first else -1

    def get_channels(self, shape: Shape) -> int:
        found = shape[self.channel_axis]
        if found is None:
            raise SpecMismatch("the number of channels is not known")
        return found


def list_primitives(
    layer: Any, inputs: Sequence[Shape], outputs: Sequence[Shape]
) -> tuple[Primitive, ...]:
    """Return the primitives of a call of a Keras layer or operation; none if it is not known here.

    Parameters
    ----------
    layer
        The layer, or an operation of ``keras.ops``.
    inputs, outputs
        The shapes of the tensors that it takes and returns, without weights.
    """
    if not type(layer).__module__.startswith("keras."):
        return ()  # a user's class, whatever its name
    try:
        return _list_primitives(_Call(layer, inputs, outputs))
    except (SpecMismatch, IndexError, KeyError, TypeError, AttributeError, ValueError):
        return ()


def _list_primitives(call: _Call) -> tuple[Primitive, ...]:
    name = type(call.layer).__name__
    if name == "Activation":
        return _describe_activation(call.layer) or (PlainPrimitive("view", "linear"),)
    if name in _PLAINS:
        return (PlainPrimitive(_PLAINS[name], name.lower()),)
    if name in _NORMALISATIONS:
        epsilon = getattr(call.layer, "epsilon", None)
        return (PlainPrimitive("normalisation", _NORMALISATIONS[name], epsilon=epsilon),)
    if name[:-2] in _POOLS and name[-2:] in _RANKS:
        kernel = tuple(getattr(call.layer, "pool_size", ()))
        return (
            PoolingPrimitive(_POOLS[name[:-2]], kernel, tuple(getattr(call.layer, "strides", ()))),
        )
    if name.startswith("UpSampling"):
        mode = _RESIZES[getattr(call.layer, "interpolation", "nearest")]
        return (PlainPrimitive("resize", mode, tuple(range(1, len(call.outputs[0]) - 1))),)
    found = _PARTS[name](call) if name in _PARTS else ()
    return (*found, *_describe_activation(call.layer)) if name in _ACTIVATED else found


def _describe_activation(layer: Any) -> tuple[Primitive, ...]:
    name = getattr(getattr(layer, "activation", None), "__name__", "linear")
    if name == "linear":
        return ()
    return (PlainPrimitive("softmax" if "softmax" in name else "elementwise", name),)


def _describe_convolution(call: _Call) -> tuple[Primitive, ...]:
    layer = call.layer
    data, output = call.inputs[0], call.outputs[0]
    channels = call.get_channels(data), call.get_channels(output)
    return (
        build_convolution(
            data,
            tuple(layer.kernel_size),
            channels,
            output,
            channel_axis=call.channel_axis,
            groups=channels[0]
            if "Depthwise" in type(layer).__name__
            else int(getattr(layer, "groups", 1)),
            strides=tuple(layer.strides),
            dilations=tuple(layer.dilation_rate),
            transposed=type(layer).__name__.endswith("Transpose"),
        ),
    )


def _describe_separable(call: _Call) -> tuple[Primitive, ...]:
    layer = call.layer
    data, output = call.inputs[0], call.outputs[0]
    taken, given = call.get_channels(data), call.get_channels(output)
    between = taken * int(layer.depth_multiplier)
    first = build_convolution(
        data,
        tuple(layer.kernel_size),
        (taken, between),
        output,
        channel_axis=call.channel_axis,
        groups=taken,
        strides=tuple(layer.strides),
        dilations=tuple(layer.dilation_rate),
    )
    ones = (1,) * len(layer.kernel_size)
    return first, build_convolution(
        data, ones, (between, given), output, channel_axis=call.channel_axis
    )


def _describe_dense(call: _Call) -> tuple[Primitive, ...]:
    return (build_linear(call.inputs[0], int(call.layer.units), call.inputs[0][-1]),)


def _describe_einsum_dense(call: _Call) -> tuple[Primitive, ...]:
    return (build_einsum(call.layer.equation, [call.inputs[0], tuple(call.layer.kernel.shape)]),)


def _describe_recurrent(
    call: _Call, directions: int = 1, layer: Any = None
) -> tuple[Primitive, ...]:
    layer = call.layer if layer is None else layer
    batch, steps, width = call.inputs[0]
    cell = _CELLS[type(layer).__name__]
    return (RecurrentPrimitive(cell, batch, steps, width, int(layer.units), directions),)


def _describe_bidirectional(call: _Call) -> tuple[Primitive, ...]:
    return _describe_recurrent(call, 2, call.layer.forward_layer)


def _describe_multi_head(call: _Call) -> tuple[Primitive, ...]:
    layer = call.layer
    query, value = call.inputs[0], call.inputs[1]
    key = call.inputs[2] if len(call.inputs) > 2 else value
    heads, depth, width = int(layer.num_heads), int(layer.key_dim), int(layer.value_dim)
    batch, output = multiply_lengths(query[:-2]), call.outputs[0]
    return (
        AttentionPrimitive(multiply_lengths((batch, heads)), query[-2], value[-2], depth, width),
        MatrixProduct(batch, query[-2], query[-1], heads * depth),
        MatrixProduct(batch, key[-2], key[-1], heads * depth),
        MatrixProduct(batch, value[-2], value[-1], heads * width),
        MatrixProduct(batch, query[-2], heads * width, output[-1]),
    )


def _describe_matmul(call: _Call) -> tuple[Primitive, ...]:
    return (build_matrix_product(call.inputs[0], call.inputs[1]),)


def _describe_einsum(call: _Call) -> tuple[Primitive, ...]:
    return (build_einsum(call.layer.subscripts, list(call.inputs)),)


_ACTIVATED = {
    f"{name}{rank}{ending}"
    for rank in _RANKS
    for name, ending in (
        ("Conv", ""),
        ("DepthwiseConv", ""),
        ("SeparableConv", ""),
        ("Conv", "Transpose"),
    )
} | {"Dense", "EinsumDense"}
_PARTS: Mapping[str, Callable[[_Call], tuple[Primitive, ...]]] = {
    **{
        name: _describe_separable if name.startswith("Separable") else _describe_convolution
        for name in _ACTIVATED
        if "Conv" in name
    },
    "Dense": _describe_dense,
    "EinsumDense": _describe_einsum_dense,
    "LSTM": _describe_recurrent,
    "GRU": _describe_recurrent,
    "SimpleRNN": _describe_recurrent,
    "Bidirectional": _describe_bidirectional,
    "MultiHeadAttention": _describe_multi_head,
    "Matmul": _describe_matmul,
    "Einsum": _describe_einsum,
}


@dataclass(frozen=True, eq=False)
class TracedCall:
    """One call of one layer or operation.

    Parameters
    ----------
    operation
        The call in the analysis; ``operation.native`` is the Keras node.
    names
        Names of the call's input tensors, by the ``id`` of the symbolic tensors
        in the node's arguments.
    taken
        Names of the call's input tensors, without weights, in order.
    takes_training
        Whether the layer behaves differently in training.
    training
        The value that the model always passes (``False`` for a frozen part);
        ``None`` if the caller of the model decides.
    """

    operation: Operation
    names: Mapping[int, str]
    taken: tuple[str, ...]
    takes_training: bool
    training: bool | None

    def run(self, values: Mapping[str, Any], training: bool) -> list[Any]:
        """Call the layer on values by tensor name; return its outputs in the order of
        ``operation.outputs``.
        """
        import keras

        node = self.operation.native
        args, kwargs = node.arguments.fill_in(
            {key: values[name] for key, name in self.names.items()}
        )
        if self.takes_training and kwargs.get("training") is None:
            kwargs["training"] = training if self.training is None else self.training
        return list(keras.tree.flatten(node.operation(*args, **kwargs)))

    def infer_outputs(self, values: Mapping[str, Any]) -> Any:
        """Return the symbolic outputs of the layer for symbolic tensors by name."""
        node = self.operation.native
        args, kwargs = node.arguments.fill_in(
            {key: values[name] for key, name in self.names.items()}
        )
        return node.operation.compute_output_spec(*args, **kwargs)


@dataclass(frozen=True, eq=False)
class LayerGraph:
    """All calls of a model in topological order.

    ``output_names`` maps each output of the model to its tensor.
    """

    steps: tuple[TracedCall, ...]
    tensors: Mapping[str, TensorSpec]
    inputs: tuple[str, ...]
    output_names: Mapping[str, str]
    native: Any

    def to_graph(self) -> Graph:
        """Return the graph in the form shared by all frameworks."""
        operations = tuple(_with_primitives(step, self.tensors) for step in self.steps)
        return Graph(
            operations, self.tensors, self.inputs, tuple(self.output_names.values()), self.native
        )

    def to_sized_graph(self, shapes: Shapes) -> Graph:
        """Return the graph for inputs of these shapes, from which Keras computes all lengths, layer
        by layer.

        Raises
        ------
        ConfigError
            If a layer cannot take what it would get; the message names it.
        """
        import keras

        values = {
            name: keras.KerasTensor(shapes.get(name, spec.shape), spec.dtype)
            for name, spec in self.tensors.items()
        }
        for step in self.steps:
            try:
                outputs = keras.tree.flatten(step.infer_outputs(values))
            except ValueError as error:  # such as a pooling of fewer values than its window holds
                cause = format_one_line(error).rstrip(".")
                raise ConfigError(
                    f"layer {step.operation.name!r} cannot take inputs of these shapes: {cause}; "
                    f"say the lengths of "
                    "free axes, which are 1 otherwise (--shape INPUT=N,N,...)"
                ) from None
            values |= dict(zip(step.operation.outputs, outputs, strict=True))
        tensors = {
            name: replace(spec, shape=tuple(values[name].shape))
            for name, spec in self.tensors.items()
        }
        operations = tuple(_with_primitives(step, tensors) for step in self.steps)
        return replace(self.to_graph(), operations=operations, tensors=tensors)

    def run(
        self,
        inputs: Mapping[str, Any],
        training: bool = False,
        call: Callable[[TracedCall, Callable[[], list[Any]]], list[Any]] = lambda step, compute: (
            compute()
        ),
        given: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Compute every tensor of the graph and return them by name.

        ``call`` may wrap the computation of each step.  Values that are ``given`` replace
        computed tensors for the steps that follow.
        """
        values, computed = {**inputs, **given}, dict(inputs)
        for step in self.steps:
            outputs = call(step, lambda step=step: step.run(values, training))  # type: ignore[misc]
            for name, value in zip(step.operation.outputs, outputs, strict=True):
                computed[name], values[name] = value, given.get(name, value)
        return computed


def build_layer_graph(model: Any, io: IOSpec) -> LayerGraph:
    """Return the graph of a functional or sequential model.

    Calls have the name of their layer, the second and later ones with ``#2``,
    ``#3``; a tensor has the name of its call, with ``:0``, ``:1`` if there are
    several; inputs and outputs have the names in ``io``.
    """
    return _LayerGraphBuilder(model, io).graph()


class _LayerGraphBuilder:
    """Collects the steps of a model and of the models nested in it."""

    def __init__(self, model: Any, io: IOSpec) -> None:
        self.model = model
        self.io = io
        self.paths = map_layer_paths(model)
        self.weights = map_named_weights(model)
        self.weight_names = {id(variable): name for name, variable in self.weights.items()}
        self.steps: list[TracedCall] = []
        self.tensors = {
            name: TensorSpec(name, tuple(v.shape), str(v.dtype)) for name, v in self.weights.items()
        }
        self.calls: dict[str, int] = {}
        names = resolve_keras_io(model, io)
        self.outputs = [spec.name for spec in names.outputs]
        self.top = {
            id(tensor): spec.name for tensor, spec in zip(model.inputs, names.inputs, strict=True)
        }
        self.tensors.update({spec.name: spec for spec in io.inputs})

    def graph(self) -> LayerGraph:
        named: dict[int, str] = {}
        for tensor, name in zip(self.model.outputs, self.outputs, strict=True):
            if id(tensor) not in self.top:  # an output may be an input passed on
                named.setdefault(id(tensor), name)
        self.reserved = set(named.values())
        self.walk(get_inner_graph(self.model), self.top, None, named)
        by_output = {
            name: self.top[id(t)] for name, t in zip(self.outputs, self.model.outputs, strict=True)
        }
        return LayerGraph(
            tuple(self.steps),
            self.tensors,
            tuple(spec.name for spec in self.io.inputs),
            {spec.name: by_output[spec.name] for spec in self.io.outputs},
            self.model,
        )

    def walk(
        self, graph: Any, names: dict[int, str], training: bool | None, given: Mapping[int, str]
    ) -> None:
        """Append the steps of one graph; ``names`` holds the names of its symbolic tensors, and
        is extended.
        """
        for depth in sorted(graph._nodes_by_depth, reverse=True):
            for node in graph._nodes_by_depth[depth]:
                if (
                    node.operation is None
                    or node.is_input
                    or any(id(t) not in names for t in node.input_tensors)
                ):
                    continue
                if (inner := _get_nested_graph(node)) is not None:
                    self.add_nested(node, inner, names, training, given)
                else:
                    self.step(node, names, training, given)

    def add_nested(
        self,
        node: Any,
        inner: Any,
        names: dict[int, str],
        training: bool | None,
        given: Mapping[int, str],
    ) -> None:
        inside = {
            id(mine): names[id(its)]
            for mine, its in zip(inner.inputs, node.input_tensors, strict=True)
        }
        asked = node.arguments.kwargs.get("training")
        passed = {
            id(mine): given[id(its)]
            for mine, its in zip(inner.outputs, node.outputs, strict=True)
            if id(its) in given and id(mine) not in inside
        }
        self.walk(inner, inside, training if asked is None else asked, passed)
        names.update(
            {
                id(its): inside[id(mine)]
                for mine, its in zip(inner.outputs, node.outputs, strict=True)
            }
        )

    def step(
        self, node: Any, names: dict[int, str], training: bool | None, given: Mapping[int, str]
    ) -> None:
        operation = node.operation
        layer = self.paths[id(operation)]
        self.calls[layer] = count = self.calls.get(layer, 0) + 1
        name = layer if count == 1 else f"{layer}#{count}"
        outputs = []
        for index, tensor in enumerate(node.outputs):
            own = name if len(node.outputs) == 1 else f"{name}:{index}"
            output = given.get(id(tensor)) or self.find_free_name(own)
            names[id(tensor)] = output
            outputs.append(output)
            self.tensors[output] = TensorSpec(output, tuple(tensor.shape), str(tensor.dtype))
        weights = [self.weight_names[id(v)] for v in getattr(operation, "weights", ())]
        taken = tuple(names[id(tensor)] for tensor in node.input_tensors)
        sides = (
            [tuple(tensor.shape) for tensor in side] for side in (node.input_tensors, node.outputs)
        )
        shown = Operation(
            name,
            type(operation).__name__,
            (*taken, *weights),
            tuple(outputs),
            layer,
            node,
            list_primitives(operation, *sides),
        )
        used = {id(tensor): names[id(tensor)] for tensor in node.input_tensors}
        self.steps.append(
            TracedCall(shown, used, taken, _has_training_argument(operation), training)
        )

    def find_free_name(self, name: str) -> str:
        """Return a name that no input, weight or output has."""
        while name in self.tensors or name in self.reserved:
            name += "'"
        return name


def _with_primitives(step: TracedCall, tensors: Mapping[str, TensorSpec]) -> Operation:
    """Return a call's operation with what it computes on these tensors."""
    taken, given = (
        [tensors[name].shape for name in names] for names in (step.taken, step.operation.outputs)
    )
    return replace(
        step.operation, primitives=list_primitives(step.operation.native.operation, taken, given)
    )


def _get_nested_graph(node: Any) -> Any:
    """Return the graph of the nested model that a node calls, if it only calls its layers;
    otherwise ``None``.
    """
    inner = get_inner_graph(node.operation)
    if inner is None or len(inner.inputs) != len(node.input_tensors):
        return None
    if any(
        value is not None for name, value in node.arguments.kwargs.items() if name != "training"
    ):
        return None
    fits = all(
        len(mine.shape) == len(its.shape) and mine.dtype == its.dtype
        for mine, its in zip(inner.inputs, node.input_tensors, strict=True)
    )
    # Inputs in a dictionary may have another order than the model's.
    same = type(node.arguments.args[0]) is type(inner.input) or len(inner.inputs) == 1
    return inner if fits and same else None


def _has_training_argument(operation: Any) -> bool:
    return "training" in inspect.signature(operation.call).parameters
