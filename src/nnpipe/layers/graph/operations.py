"""What a network of layers computes, as operations in the words of all frameworks: for a network
that is not built yet.

A layer is written as exporters write it: an activation is an operation of its own, batch
normalisation too, and a dense layer over several axes adds its bias by itself.  So costs and times
follow as from a file of the network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import singledispatchmethod
from typing import Any, Literal

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.graph import Graph, Operation, Shapes
from nnpipe.core.primitives import (
    PlainKind,
    PlainPrimitive,
    PoolingPrimitive,
    Primitive,
    RecurrentPrimitive,
    build_convolution,
    build_linear,
    build_matrix_product,
    multiply_lengths,
)
from nnpipe.core.tensors import TensorSpec
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.loss_outputs import to_inference
from nnpipe.layers.graph.shape_inference import Ref, Use, infer
from nnpipe.layers.problems import raise_if
from nnpipe.layers.vocabulary import convolutions, normalisation, pooling, reshaping, resizing
from nnpipe.layers.vocabulary.activation_layers import (
    ELU,
    Activation,
    LeakyReLU,
    PReLU,
    ReLU,
    Softmax,
)
from nnpipe.layers.vocabulary.activations import ActivationFunction
from nnpipe.layers.vocabulary.attention import MultiHeadAttention
from nnpipe.layers.vocabulary.dense import Dense, Embedding
from nnpipe.layers.vocabulary.dropout import (
    AlphaDropout,
    Dropout,
    GaussianDropout,
    GaussianNoise,
    SpatialDropout1d,
)
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.layer import Layer, Shape
from nnpipe.layers.vocabulary.recurrent import GRU, LSTM, Recurrent
from nnpipe.layers.vocabulary.reshaping import (
    ActivityRegularization,
    Flatten,
    Identity,
    Permute,
    RepeatVector,
    Rescaling,
    Reshape,
)
from nnpipe.layers.vocabulary.windows import get_channels
from nnpipe.layers.vocabulary.wrappers import Bidirectional

_WORDS = {
    "relu6": "clip",
    "hard_tanh": "clip",
    "leaky_relu": "leakyrelu",
    "hard_silu": "hardswish",
    "hard_sigmoid": "hardsigmoid",
}


class OperationWriter(ABC):
    """Collects the operations of a network; a value is the name of its tensor."""

    def __init__(self, shapes: Mapping[Ref, Shape]) -> None:
        self._shapes = shapes
        self.operations: list[Operation] = []
        self.tensors: dict[str, TensorSpec] = {}
        self.names: dict[Ref, str] = {}
        self._layer = ""
        self._weights = ""

    @abstractmethod
    def write(self, layer: Layer, given: list[str], out: Shape) -> str:
        """Add the operations of a layer, and return its first result."""

    def network(self, network: NetworkGraph) -> None:
        """Add the operations of all calls of a network."""
        # once: each look-up makes a function, see functools.singledispatchmethod
        write = self.write
        for entry, number in network.steps():
            self._call(entry.layer, entry.uses[number], number, write)

    def _call(
        self, layer: Layer, use: Use, number: int, write: Callable[[Layer, list[str], Shape], str]
    ) -> None:
        self._layer = f"{layer.name}@{number}" if number else layer.name
        self._weights = layer.name
        out = self._shapes[Ref(layer.name, number)]
        if isinstance(layer, Input):
            self.names[Ref(layer.name)] = self._tensor(layer.name, out, layer.dtype)
            return
        given = [self.names[ref] for ref in use.inputs]
        last = write(layer, given, out)
        place = 0
        # states of recurrent layers come for free
        while (ref := Ref(layer.name, number, place)) in self._shapes:
            self.names[ref] = (
                last if place == 0 else self._tensor(f"{self._layer}[{place}]", self._shapes[ref])
            )
            place += 1

    def add(
        self,
        word: str,
        reads: Sequence[str],
        shape: Shape,
        primitive: Primitive | None,
        *weights: Sequence[int],
    ) -> str:
        """Add an operation with weights of these shapes, and return its result."""
        name = f"{self._layer}/{word}"
        while name in self.tensors:
            name += "'"
        held = [
            self._tensor(f"{self._weights}/{word}/{place}", tuple(each))
            for place, each in enumerate(weights)
        ]
        result = self._tensor(name, shape)
        primitives = () if primitive is None else (primitive,)
        self.operations.append(
            Operation(
                name, word, (*reads, *held), (result,), layer=self._layer, primitives=primitives
            )
        )
        return result

    def add_plain(
        self,
        kind: PlainKind,
        word: str,
        reads: Sequence[str],
        shape: Shape,
        *weights: Sequence[int],
    ) -> str:
        """Add an operation that a function and sizes describe."""
        return self.add(word, reads, shape, PlainPrimitive(kind, word), *weights)

    def shape(self, name: str) -> Shape:
        """Return the shape of a value."""
        return self.tensors[name].shape

    def activation(self, function: Any, x: str) -> str:
        """Add an activation function."""
        name = function.name if isinstance(function, ActivationFunction) else str(function)
        shape = self.shape(x)
        if name == "linear":
            return x
        if name in ("softmax", "log_softmax"):
            return self.add_plain("softmax", name.replace("_", ""), [x], shape)
        if name == "silu":
            return self.add_plain(
                "elementwise",
                "mul",
                [x, self.add_plain("elementwise", "sigmoid", [x], shape)],
                shape,
            )
        return self.add_plain("elementwise", _WORDS.get(name, name), [x], shape)

    def _tensor(self, name: str, shape: Shape, dtype: str = "float32") -> str:
        self.tensors[name] = TensorSpec(
            name, shape, dtype if dtype.startswith(("float", "int", "uint")) else "float32"
        )
        return name

    def dense(self, x: str, units: int, bias: bool) -> str:
        """Add the product with a matrix along the last axis; over several axes, the bias is
        added by itself.
        """
        shape = self.shape(x)
        depth, out = shape[-1], (*shape[:-1], units)
        weights = (int(depth or 0), units)
        flat = len(shape) == 2
        y = self.add(
            "product",
            [x],
            out,
            build_linear(shape, units, depth),
            weights,
            *([(units,)] if bias and flat else []),
        )
        return self.add_plain("elementwise", "add", [y], out, (units,)) if bias and not flat else y


_SPATIAL_DROPOUT = SpatialDropout1d.__mro__[1]  # the base of all of them


def build_operation_graph(network: NetworkGraph, shapes: Shapes | None = None) -> Graph:
    """Return the operations of a network in inference, with the length of every axis known.

    A layer that is not known here is an operation without primitives.

    Parameters
    ----------
    network
        The network.
    shapes
        The shape of inputs by name, samples first; free axes of the others get the length 1.

    Raises
    ------
    ConfigError
        If the network cannot be built, an input does not exist, or a length remains free.
    """
    check_call(build_operation_graph, locals())
    sized = _set_input_shapes(to_inference(network), shapes or {})
    found = infer(sized)
    raise_if(found.problems, network.name)
    writer = _LayerWriter(found.shapes)
    writer.network(sized)
    inputs, outputs = (
        tuple(writer.names[ref] for ref in refs) for refs in (sized.inputs, sized.outputs)
    )
    return Graph(tuple(writer.operations), writer.tensors, inputs, outputs)


def _set_input_shapes(network: NetworkGraph, shapes: Shapes) -> NetworkGraph:
    inputs = {ref.layer: network.layers[ref.layer] for ref in network.inputs}
    for name in shapes:
        if name not in inputs:
            raise ConfigError(f"the network has no input {name!r}; it has {', '.join(inputs)}")
    changed: dict[str, Layer] = {}
    for name, layer in inputs.items():
        assert isinstance(layer, Input)
        given = shapes.get(name) or tuple(n or 1 for n in (layer.batch, *layer.shape))
        if len(given) != 1 + len(layer.shape):
            raise ConfigError(
                f"the input {name!r} has {1 + len(layer.shape)} axes, samples first, not "
                f"{len(given)}"
            )
        changed[name] = layer.alone(batch=given[0], shape=tuple(given[1:]))
    entries = [
        replace(each, layer=changed[each.layer.name]) if each.layer.name in changed else each
        for each in network.entries
    ]
    return replace(network, entries=tuple(entries))


class _LayerWriter(OperationWriter):
    """Writes each kind of layer."""

    @singledispatchmethod
    def write(self, layer: Layer, given: list[str], out: Shape) -> str:
        """Add the operations of a layer, and return its first result."""
        return self.add(type(layer).__name__, given, out, None)

    @write.register(Dropout)
    @write.register(AlphaDropout)
    @write.register(GaussianDropout)
    @write.register(GaussianNoise)
    @write.register(_SPATIAL_DROPOUT)
    @write.register(ActivityRegularization)
    @write.register(Identity)
    def _(self, layer: Layer, given: list[str], out: Shape) -> str:
        return given[0]

    @write.register(convolutions._Conv)
    @write.register(convolutions._ConvTranspose)
    def _(self, layer: Any, given: list[str], out: Shape) -> str:
        transposed = isinstance(layer, convolutions._ConvTranspose)
        shape, groups = self.shape(given[0]), 1 if transposed else layer.groups
        into = get_channels(shape, layer.data_format) or 0
        primitive = build_convolution(
            shape,
            layer.kernel_size,
            (into, layer.filters),
            out,
            channel_axis=len(shape) - 1 if layer.data_format == "channels_last" else 1,
            groups=groups,
            strides=layer.strides,
            dilations=layer.dilation_rate,
            transposed=transposed,
        )
        kernel = (*layer.kernel_size, into // groups, layer.filters)
        bias = [(layer.filters,)] if layer.use_bias else []
        return self.activation(
            layer.activation, self.add("convolution", given, out, primitive, kernel, *bias)
        )

    @write.register(convolutions._DepthwiseConv)
    @write.register(convolutions._SeparableConv)
    def _(self, layer: Any, given: list[str], out: Shape) -> str:
        shape, last = self.shape(given[0]), layer.data_format == "channels_last"
        into = get_channels(shape, layer.data_format) or 0
        many, axis = into * layer.depth_multiplier, len(shape) - 1 if last else 1
        middle = (*out[:-1], many) if last else (out[0], many, *out[2:])
        separable = isinstance(layer, convolutions._SeparableConv)
        bias = [(get_channels(out, layer.data_format) or 0,)] if layer.use_bias else []
        first = build_convolution(
            shape,
            layer.kernel_size,
            (into, many),
            middle,
            channel_axis=axis,
            groups=into,
            strides=layer.strides,
            dilations=layer.dilation_rate,
        )
        own = [] if separable else bias
        x = self.add(
            "depthwise",
            given,
            middle,
            first,
            (*layer.kernel_size, into, layer.depth_multiplier),
            *own,
        )
        if separable:
            one = (1,) * layer.rank
            second = build_convolution(middle, one, (many, layer.filters), out, channel_axis=axis)
            x = self.add("pointwise", [x], out, second, (*one, many, layer.filters), *bias)
        return self.activation(layer.activation, x)

    @write.register
    def _(self, layer: Dense, given: list[str], out: Shape) -> str:
        return self.activation(layer.activation, self.dense(given[0], layer.units, layer.use_bias))

    @write.register
    def _(self, layer: Embedding, given: list[str], out: Shape) -> str:
        return self.add_plain("gather", "gather", given, out, (layer.input_dim, layer.output_dim))

    @write.register(pooling._Pool)
    def _(self, layer: Any, given: list[str], out: Shape) -> str:
        word = "max" if isinstance(layer, pooling._MaxPool) else "mean"
        return self.add(
            "pooling",
            given,
            out,
            PoolingPrimitive(word, tuple(layer.pool_size), tuple(layer.strides)),
        )

    @write.register(pooling._GlobalPool)
    def _(self, layer: Any, given: list[str], out: Shape) -> str:
        shape = self.shape(given[0])
        word = "max" if "Max" in type(layer).__name__ else "mean"
        full = tuple(
            n if n in (shape[0], get_channels(shape, layer.data_format)) else 1 for n in shape
        )
        x = self.add("pooling", given, full, PoolingPrimitive(word))
        return x if layer.keepdims else self.add_plain("view", "reshape", [x], out)

    @write.register
    def _(self, layer: normalisation.BatchNorm, given: list[str], out: Shape) -> str:
        count = int(out[layer.axis] or 0)
        return self.add_plain("normalisation", "batch", given, out, *[(count,)] * 4)

    @write.register(normalisation.LayerNorm)
    @write.register(normalisation.GroupNorm)
    @write.register(normalisation.RMSNorm)
    @write.register(normalisation.UnitNorm)
    def _(self, layer: Any, given: list[str], out: Shape) -> str:
        words = {"LayerNorm": "layer", "GroupNorm": "group", "RMSNorm": "rms", "UnitNorm": "l2"}
        count = int(out[-1] or 0)
        return self.add_plain(
            "normalisation", words[type(layer).__name__], given, out, (count,), (count,)
        )

    @write.register(reshaping._Elementwise)
    def _(self, layer: Any, given: list[str], out: Shape) -> str:
        words = {
            "Add": "add",
            "Subtract": "sub",
            "Multiply": "mul",
            "Average": "mean",
            "Maximum": "max",
        }
        return self.add_plain("elementwise", words.get(type(layer).__name__, "min"), given, out)

    @write.register
    def _(self, layer: reshaping.Concatenate, given: list[str], out: Shape) -> str:
        return self.add_plain("movement", "concat", given, out)

    @write.register(Flatten)
    @write.register(Reshape)
    def _(self, layer: Layer, given: list[str], out: Shape) -> str:
        return self.add_plain("view", "reshape", given, out)

    @write.register(Permute)
    @write.register(RepeatVector)
    @write.register(resizing._Edged)
    def _(self, layer: Layer, given: list[str], out: Shape) -> str:
        words = {"Permute": "transpose", "RepeatVector": "expand"}
        edge = "pad" if isinstance(layer, resizing._ZeroPad) else "slice"
        return self.add_plain("movement", words.get(type(layer).__name__, edge), given, out)

    @write.register(resizing._UpSample)
    def _(self, layer: Any, given: list[str], out: Shape) -> str:
        mode = {"bilinear": "linear", "bicubic": "cubic"}.get(
            getattr(layer, "interpolation", ""), "nearest"
        )
        return self.add(
            "resize", given, out, PlainPrimitive("resize", mode, tuple(range(layer.rank)))
        )

    @write.register
    def _(self, layer: Rescaling, given: list[str], out: Shape) -> str:
        x = self.add_plain("elementwise", "mul", given, out, (1,))
        return self.add_plain("elementwise", "add", [x], out, (1,))

    @write.register
    def _(self, layer: Activation, given: list[str], out: Shape) -> str:
        return self.activation(layer.activation, given[0])

    @write.register
    def _(self, layer: ReLU, given: list[str], out: Shape) -> str:
        leaky = "leakyrelu" if layer.negative_slope else "relu"
        return self.add_plain(
            "elementwise", leaky if layer.max_value is None else "clip", given, out
        )

    @write.register(LeakyReLU)
    @write.register(PReLU)
    @write.register(ELU)
    def _(self, layer: Layer, given: list[str], out: Shape) -> str:
        return self.add_plain("elementwise", type(layer).__name__.lower(), given, out)

    @write.register
    def _(self, layer: Softmax, given: list[str], out: Shape) -> str:
        return self.add_plain("softmax", "softmax", given, out)

    @write.register
    def _(self, layer: Recurrent, given: list[str], out: Shape) -> str:
        return self._add_recurrent(layer, given[0], 1, out, not layer.return_sequences)

    @write.register
    def _(self, layer: Bidirectional, given: list[str], out: Shape) -> str:
        inner: Any = layer.layer
        x = self._add_recurrent(inner, given[0], 2, out, not inner.return_sequences)
        return (
            x
            if layer.merge_mode in ("concat", None)
            else self.add_plain("elementwise", "add", [x, x], out)
        )

    def _add_recurrent(self, layer: Any, x: str, directions: int, out: Shape, last: bool) -> str:
        batch, steps, into = self.shape(x)
        cell: Literal["lstm", "gru", "rnn"] = (
            "lstm" if isinstance(layer, LSTM) else "gru" if isinstance(layer, GRU) else "rnn"
        )
        units, gates = layer.units, layer.gates * layer.units
        primitive = RecurrentPrimitive(cell, batch, steps, into, units, directions)
        y = self.add_plain("movement", "transpose", [x], (steps, batch, into))
        weights = (
            (directions, gates, int(into or 0)),
            (directions, gates, units),
            (directions, 2 * gates),
        )
        y = self.add(cell, [y], (steps, directions, batch, units), primitive, *weights)
        if last:
            y = self.add_plain("gather", "gather", [y], (directions, batch, units))
        return (
            self.add_plain("view", "reshape", [y], out)
            if last
            else self.add_plain("movement", "transpose", [y], out)
        )

    @write.register
    def _(self, layer: MultiHeadAttention, given: list[str], out: Shape) -> str:
        heads, inner, value = layer.num_heads, layer.key_dim, layer.value_dim or layer.key_dim
        query, source, key = (*given, given[1])[:3]
        parts = []
        for x, width, flipped in (
            (query, inner, False),
            (key, inner, True),
            (source, value, False),
        ):
            batch, steps, _ = self.shape(x)
            y = self.add_plain(
                "view",
                "reshape",
                [self.dense(x, heads * width, layer.use_bias)],
                (batch, steps, heads, width),
            )
            turned = (batch, heads, width, steps) if flipped else (batch, heads, steps, width)
            parts.append(self.add_plain("movement", "transpose", [y], turned))
        q, k, v = parts
        scores = (*self.shape(q)[:3], self.shape(k)[3])
        y = self.add("product", [q, k], scores, build_matrix_product(self.shape(q), self.shape(k)))
        y = self.add_plain(
            "softmax", "softmax", [self.add_plain("elementwise", "div", [y], scores, (1,))], scores
        )
        mixed = (*scores[:3], value)
        y = self.add("product", [y, v], mixed, build_matrix_product(scores, self.shape(v)))
        batch, _, steps, _ = mixed
        y = self.add_plain("movement", "transpose", [y], (batch, steps, heads, value))
        joined = (batch, steps, multiply_lengths((heads, value)))
        return self.dense(
            self.add_plain("view", "reshape", [y], joined), int(out[-1] or 0), layer.use_bias
        )
