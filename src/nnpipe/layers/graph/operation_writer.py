"""Collecting the operations of a network of layers: its calls in order, the names of its values, and common steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnpipe.core.graph import Operation
from nnpipe.core.primitive_shapes import linear
from nnpipe.core.primitives import PlainKind, PlainPrimitive, Primitive
from nnpipe.core.tensors import TensorSpec
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.references import Ref, Use
from nnpipe.layers.vocabulary.activations import ActivationFunction
from nnpipe.layers.vocabulary.input import Input
from nnpipe.layers.vocabulary.layer import Layer, Shape

_WORDS = {
    "relu6": "clip", "hard_tanh": "clip", "leaky_relu": "leakyrelu", "hard_silu": "hardswish",
    "hard_sigmoid": "hardsigmoid",
}  # fmt: skip


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
        write = self.write  # once: each look-up makes a function, see functools.singledispatchmethod
        for entry, number in network.steps():
            self._call(entry.layer, entry.uses[number], number, write)

    def _call(self, layer: Layer, use: Use, number: int, write: Callable[[Layer, list[str], Shape], str]) -> None:
        self._layer = f"{layer.name}@{number}" if number else layer.name
        self._weights = layer.name
        out = self._shapes[Ref(layer.name, number)]
        if isinstance(layer, Input):
            self.names[Ref(layer.name)] = self._tensor(layer.name, out, layer.dtype)
            return
        given = [self.names[ref] for ref in use.inputs]
        last = write(layer, given, out)
        place = 0
        while (ref := Ref(layer.name, number, place)) in self._shapes:  # states of recurrent layers come for free
            self.names[ref] = last if place == 0 else self._tensor(f"{self._layer}[{place}]", self._shapes[ref])
            place += 1

    def add(
        self, word: str, reads: Sequence[str], shape: Shape, primitive: Primitive | None, *weights: Sequence[int]
    ) -> str:
        """Add an operation with weights of these shapes, and return its result."""
        name = f"{self._layer}/{word}"
        while name in self.tensors:
            name += "'"
        held = [self._tensor(f"{self._weights}/{word}/{place}", tuple(each)) for place, each in enumerate(weights)]
        result = self._tensor(name, shape)
        primitives = () if primitive is None else (primitive,)
        self.operations.append(
            Operation(name, word, (*reads, *held), (result,), layer=self._layer, primitives=primitives)
        )
        return result

    def plain(self, kind: PlainKind, word: str, reads: Sequence[str], shape: Shape, *weights: Sequence[int]) -> str:
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
            return self.plain("softmax", name.replace("_", ""), [x], shape)
        if name == "silu":
            return self.plain("elementwise", "mul", [x, self.plain("elementwise", "sigmoid", [x], shape)], shape)
        return self.plain("elementwise", _WORDS.get(name, name), [x], shape)

    def _tensor(self, name: str, shape: Shape, dtype: str = "float32") -> str:
        self.tensors[name] = TensorSpec(name, shape, dtype if dtype.startswith(("float", "int", "uint")) else "float32")
        return name

    def dense(self, x: str, units: int, bias: bool) -> str:
        """Add the product with a matrix along the last axis; over several axes, the bias is added by itself."""
        shape = self.shape(x)
        depth, out = shape[-1], (*shape[:-1], units)
        weights = (int(depth or 0), units)
        flat = len(shape) == 2
        y = self.add("product", [x], out, linear(shape, units, depth), weights, *([(units,)] if bias and flat else []))
        return self.plain("elementwise", "add", [y], out, (units,)) if bias and not flat else y
