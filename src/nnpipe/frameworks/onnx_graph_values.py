"""The values of a graph of any framework in an ONNX graph: names, shapes, the order of axes, and
stored numbers.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnpipe.core.errors import ConversionError, NotSupported
from nnpipe.core.graph import Graph, Operation
from nnpipe.core.primitives import ConvolutionPrimitive

_OPSET, _IR_VERSION = 20, 9


class ONNXBuilder:
    """Collects the nodes of a graph; every method that adds nodes returns the name of their result.

    Parameters
    ----------
    random
        Draws the weights.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []

    def input(self, shape: Sequence[int], dtype: str = "float32") -> str:
        """Add an input."""
        from onnx import helper

        name = f"input_{len(self._inputs)}"
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def constant(self, array: np.ndarray) -> str:
        """Add a constant."""
        from onnx import numpy_helper

        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def weights(self, *shape: int, mean: float = 0.0) -> str:
        """Add random numbers, small enough that values neither grow nor vanish from layer to
        layer.
        """
        spread = 1.0 / max(1.0, float(np.sqrt(np.prod(shape[1:]))))
        drawn = self.random.standard_normal(shape, np.float32) * np.float32(spread) + np.float32(
            mean
        )
        return self.constant(drawn.astype(np.float32))

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node of a kind; of several outputs the first is returned, ``name_1`` is the
        second, and so on.
        """
        from onnx import helper

        number = len(self._nodes)
        results = [f"value_{number}"] + [f"value_{number}_{place}" for place in range(1, outputs)]
        self._nodes.append(
            helper.make_node(kind, list(inputs), results, f"node_{number}", **attributes)
        )
        return results[0]

    def model(self, *outputs: str) -> bytes:
        """Return the content of a file with all nodes so far, whose outputs these are."""
        from onnx import ValueInfoProto, helper, shape_inference

        given = [ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self._nodes, "network", self._inputs, given, self._constants)
        made = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="nnpipe"
        )
        made.ir_version = _IR_VERSION
        content: bytes = shape_inference.infer_shapes(made).SerializeToString()
        return content


Lengths = tuple[int, ...]

_MOST_AXES = 6  # more have too many orders to try


def add_reshape(builder: ONNXBuilder, x: str, shape: Lengths, out: Lengths) -> str:
    """Return the same values with another shape, which costs nothing; one axis of ``out`` may be
    -1.

    Raises
    ------
    NotSupported
        If the shapes have different numbers of values.
    """
    if shape == out:
        return x
    if -1 not in out and math.prod(shape) != math.prod(out):
        raise NotSupported("shapes that contradict each other")
    return builder.add("Reshape", x, builder.constant(np.array(out, np.int64)))


def add_transpose(builder: ONNXBuilder, x: str, shape: Lengths) -> tuple[str, Lengths]:
    """Return the values with the last two axes exchanged, and their shape."""
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    return builder.add("Transpose", x, perm=order), tuple(shape[axis] for axis in order)


def add_copy(
    builder: ONNXBuilder, x: str, shape: Lengths, out: Lengths, turned: bool = True
) -> str:
    """Return the values in another order of axes, a part of them, or more of them than there were.

    Parameters
    ----------
    builder
        Takes the nodes.
    x, shape
        The values.
    out
        The shape of the result.
    turned
        Whether it is an order of axes if there are as many values; otherwise they are moved in some
        other way.
    """
    size, wanted = math.prod(shape), math.prod(out)
    if size == wanted:
        order = _find_order(shape, out) if turned else None
        if order is not None:
            return builder.add("Transpose", x, perm=list(order))
        order = tuple(range(len(shape)))[::-1]
        return add_reshape(builder, builder.add("Transpose", x, perm=list(order)), shape[::-1], out)
    if len(shape) == len(out):
        pairs = list(zip(shape, out, strict=True))
        if all(after <= before for before, after in pairs):
            return builder.add(
                "Slice", x, *(builder.constant(np.array(each)) for each in ([0] * len(out), out))
            )
        if all(before in (1, after) for before, after in pairs):
            return builder.add("Expand", x, builder.constant(np.array(out, np.int64)))
        if all(after >= before for before, after in pairs):
            return builder.add(
                "Pad",
                x,
                builder.constant(np.array(build_onnx_pads([b - a for a, b in pairs]), np.int64)),
            )
    flat = add_reshape(builder, x, shape, (size,))
    return add_reshape(builder, add_copy(builder, flat, (size,), (wanted,)), (wanted,), out)


def build_onnx_pads(totals: Sequence[int]) -> list[int]:
    """Return the padding before all axes, and then that behind all."""
    before = [each // 2 for each in totals]
    return [*before, *(each - half for each, half in zip(totals, before, strict=True))]


def _find_order(shape: Lengths, out: Lengths) -> Lengths | None:
    """Return an order of axes that gives a shape, not the present one if there is another;
    ``None`` without any.
    """
    if len(shape) != len(out) or len(shape) > _MOST_AXES:
        return None
    orders = itertools.permutations(range(len(shape)))
    fitting = [order for order in orders if tuple(shape[axis] for axis in order) == out]
    others = [order for order in fitting if list(order) != sorted(order)]
    return next(iter(others or fitting), None)


_MOST_BYTES = (1 << 31) - (1 << 20)  # a protocol buffer holds 2 GB
_SMALL = ("int8", "uint8")
_SCALE, _LEAST = 0.02, -128


class GraphValues(ONNXBuilder):
    """Builds an ONNX graph; tensors have their names in another graph outside, and others inside.

    Where that graph has channels last, the ONNX graph has them first.

    Parameters
    ----------
    graph
        The other graph, with the length of every axis known.
    random
        Draws the weights.
    """

    def __init__(self, graph: Graph, random: np.random.Generator) -> None:
        super().__init__(random)
        self.graph = graph
        self._made = {tensor for each in graph.operations for tensor in each.outputs} | set(
            graph.inputs
        )
        self._read = {tensor for each in graph.operations for tensor in each.inputs} | set(
            graph.outputs
        )
        self._moved = _find_channels_last_ranks(graph)
        self._values: dict[str, str] = {}
        self._reals: dict[str, str] = {}
        self._zeros: dict[str, int] = {}
        self._bytes = 0
        for name in graph.inputs:
            self._values[name] = self.input(self.shape(name), self.dtype(name))

    def dtype(self, name: str) -> str:
        """Return the element type of a tensor."""
        return self.graph.tensors[name].dtype

    def shape(self, name: str) -> Lengths:
        """Return the shape of a tensor in the ONNX graph."""
        shape = tuple(int(length or 1) for length in self.graph.tensors[name].shape)
        return (
            self._to_channels_first(shape)
            if len(shape) in self._moved and name in self._made
            else shape
        )

    def list_computed_inputs(self, operation: Operation) -> list[str]:
        """Return the inputs of an operation that are not constants."""
        return [name for name in operation.inputs if name in self._made]

    def constants(self, operation: Operation) -> list[str]:
        """Return the inputs of an operation that are constants."""
        return [name for name in operation.inputs if name not in self._made]

    def is_read(self, name: str) -> bool:
        """Return whether a tensor is an output of the graph, or an input of an operation."""
        return name in self._read

    def put(self, name: str, value: str) -> None:
        """Record which value of the ONNX graph a tensor is."""
        self._values[name] = value

    def put_anything(self, operation: Operation) -> None:
        """Make the results of an operation that cannot be written inputs, so that those behind
        it can be looked at.
        """
        for name in operation.outputs:
            self._values[name] = self.input(self.shape(name), self.dtype(name))

    def value(self, name: str, rank: int = 0) -> str:
        """Return a tensor's value; constants of lower rank are fitted to values of ``rank``
        axes.
        """
        if name in self._values:
            return self._values[name]
        shape, dtype = self.shape(name), np.dtype(self.dtype(name))
        if rank in self._moved and 0 < len(shape) <= rank:
            shape = self._to_channels_first((1,) * (rank - len(shape)) + shape)
        self._count(shape, dtype.itemsize)
        if dtype.kind in "iub":
            array = self.random.integers(
                dtype.kind != "b", 2, shape, endpoint=dtype.kind != "b"
            ).astype(dtype)
        else:  # near 1 like those above, so that quotients and powers stay finite
            array = (1 + 0.1 * self.random.standard_normal(shape)).astype(dtype)
        made = self.constant(array)
        if rank not in self._moved:
            self._values[name] = made
        return made

    def operand(self, name: str, rank: int = 0) -> str:
        """Return a tensor's value to compute with, which is real for numbers of 8 bits.

        Values of lower rank are fitted to values of ``rank`` axes.
        """
        fitted = rank in self._moved and len(self.shape(name)) <= rank
        if name not in self._made and fitted:
            found = self.value(name, rank)
            return self._add_dequantize(found, name) if self.is_small(name) else found
        if self.is_small(name) and name not in self._reals:
            self._reals[name] = self._add_dequantize(self.value(name), name)
        found, shape = self._reals.get(name) or self.value(name), self.shape(name)
        if not fitted or not 0 < len(shape) < rank:
            return found
        full = add_reshape(self, found, shape, (1,) * (rank - len(shape)) + shape)
        return self.add("Transpose", full, perm=list(self._to_channels_first(tuple(range(rank)))))

    def is_small(self, name: str) -> bool:
        """Return whether a tensor holds numbers of 8 bits, as quantised models do."""
        return self.dtype(name) in _SMALL

    def put_rounded(self, name: str, x: str, positive: bool = False) -> None:
        """Record that a tensor of 8 bits is the real numbers ``x``.

        If these cannot be negative, the least integer stands for 0; then runtimes know that the
        activation before it changes nothing, and fuse it.
        """
        if positive and self.dtype(name) == "int8":
            self._zeros[name] = _LEAST
        scale, zero = (
            self._add_scalar(_SCALE, "float32"),
            self._add_scalar(self._zeros.get(name, 0), self.dtype(name)),
        )
        self._values[name] = self.add("QuantizeLinear", x, scale, zero)

    def _add_dequantize(self, x: str, name: str) -> str:
        zero = self._add_scalar(self._zeros.get(name, 0), self.dtype(name))
        return self.add("DequantizeLinear", x, self._add_scalar(_SCALE, "float32"), zero)

    def add_stored_weights(self, dtype: str, *shape: int) -> str:
        """Add weights that are stored in an element type, as real numbers."""
        if dtype not in (*_SMALL, "int32"):
            return self.weights(*shape)
        self._count(shape, np.dtype(dtype).itemsize)
        low = 0 if dtype == "uint8" else -8
        drawn = self.constant(self.random.integers(low, 8, shape).astype(np.dtype(dtype)))
        scale = _SCALE**2 if dtype == "int32" else _SCALE  # as biases have it
        return self.add(
            "DequantizeLinear",
            drawn,
            self._add_scalar(scale, "float32"),
            self._add_scalar(0, dtype),
        )

    def weights(self, *shape: int, mean: float = 0.0) -> str:
        """Add random numbers, small enough that values neither grow nor vanish from layer to
        layer.
        """
        self._count(shape, 4)
        return super().weights(*shape, mean=mean)

    def _add_scalar(self, value: float, dtype: str) -> str:
        return self.constant(np.array(value, np.dtype(dtype)))

    def _count(self, shape: Lengths, each: int) -> None:
        self._bytes += math.prod(shape) * each
        if self._bytes > _MOST_BYTES:
            raise ConversionError(
                "a network of the same cost cannot be made: its weights would be larger than 2 GB"
            )

    def _to_channels_first(self, shape: Lengths) -> Lengths:
        return (shape[0], shape[-1], *shape[1:-1])


def _find_channels_last_ranks(graph: Graph) -> frozenset[int]:
    """Return the numbers of axes of values whose channels are last, as the convolutions of the
    graph tell.
    """
    votes: Counter[tuple[int, bool]] = Counter()
    for operation in graph.operations:
        first = operation.primitives[0] if operation.primitives else None
        if isinstance(first, ConvolutionPrimitive) and operation.outputs:
            shape = graph.tensors[operation.outputs[0]].shape
            rank = len(first.kernel) + 2
            if len(shape) == rank:
                votes[rank, shape[1] != first.out_channels and shape[-1] == first.out_channels] += 1
    ranks = {rank for rank, _ in votes}
    return frozenset(rank for rank in ranks if votes[rank, True] > votes[rank, False])
