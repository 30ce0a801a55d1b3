"""ONNX graphs in the form that ONNX Runtime's converters expect.

They leave alone what is not: weights in other floats than float32 or in ``Constant`` nodes.  They take the scales of
blocks for those of channels, and what is an output for something that only the next node takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from nnpipe.compilers._onnx import rename


def separate_weights(model: Any) -> None:
    """Take the weights of an ``onnx.ModelProto`` out of its inputs, among which version 3 of the IR lists them, too.

    Converters that keep the types of inputs would leave them as they are.
    """
    weights = {constant.name for constant in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    if len(inputs) < len(model.graph.input):
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        model.ir_version = max(model.ir_version, 4)


def hold_constants(graph: Any) -> None:
    """Make weights of the numbers in the ``Constant`` nodes of an ``onnx.GraphProto``."""
    from onnx import numpy_helper

    for node in [node for node in graph.node if node.op_type == "Constant"]:
        (attribute,) = node.attribute
        if attribute.name == "value":
            found = numpy_helper.to_array(attribute.t)
        elif attribute.name.startswith("value_float"):
            found = np.array(attribute.floats or attribute.f, np.float32)
        elif attribute.name.startswith("value_int"):
            found = np.array(attribute.ints or attribute.i, np.int64)
        else:
            continue
        graph.initializer.append(numpy_helper.from_array(found, node.output[0]))
        graph.node.remove(node)


def separate_outputs(graph: Any, *kinds: str) -> None:
    """Copy outputs that are also weights, or that operators of these kinds read, which could change both."""
    shared = {constant.name for constant in graph.initializer}
    shared.update(name for node in graph.node if node.op_type in kinds for name in node.input)
    shared -= {value.name for value in graph.input}
    _put_behind(graph, {value.name: ("Identity", {}) for value in graph.output if value.name in shared})


def compute_in_float32(graph: Any, *others: str) -> None:
    """Compute in float32 what a graph computes in other floats; its inputs and outputs keep their types.

    Parameters
    ----------
    graph
        The graph, without weights in other files.
    others
        The types to replace: ``"FLOAT16"``, ``"DOUBLE"``.
    """
    from onnx import TensorProto, helper

    types = {TensorProto.DataType.Value(name) for name in others}
    ends = [(value, value.type.tensor_type.elem_type) for value in (*graph.input, *graph.output)]
    given = [value.name for value in graph.input if value.type.tensor_type.elem_type in types]
    made = {value.name: kind for value, kind in ends if kind in types and value.name not in given}
    _widen(graph, types)
    for value, kind in ends:
        value.type.tensor_type.elem_type = kind
    _put_behind(graph, {name: ("Cast", {"to": kind}) for name, kind in made.items()})
    inner = {name: f"{name}/float32" for name in given}
    outputs = [value.name for value in graph.output]
    rename(graph, inner)
    for value, name in zip(graph.output, outputs, strict=True):
        value.name = name
    for place, (name, wide) in enumerate(inner.items()):
        graph.node.insert(place, helper.make_node("Cast", [name], [wide], to=TensorProto.FLOAT))


def unpack_blocks(graph: Any) -> None:
    """Replace weights that are stored in blocks with a scale each by their values."""
    from onnx import numpy_helper

    constants = {constant.name: constant for constant in graph.initializer}
    for node in list(graph.node):
        stated = {attribute.name: attribute.i for attribute in node.attribute}
        packed = [constants.get(name) for name in node.input]
        if node.op_type != "DequantizeLinear" or not stated.get("block_size") or None in packed:
            continue
        values, *others = (numpy_helper.to_array(constant) for constant in packed)
        axis, size = stated.get("axis", 1), stated["block_size"]
        scale, *zero = (np.repeat(each, size, axis).take(range(values.shape[axis]), axis) for each in others)
        real = values.astype(np.float32) - (zero[0].astype(np.float32) if zero else 0)
        graph.initializer.append(numpy_helper.from_array(real * scale.astype(np.float32), node.output[0]))
        graph.node.remove(node)  # ONNX Runtime removes the constants that nothing takes


def _put_behind(graph: Any, operations: dict[str, tuple[str, dict[str, int]]]) -> None:
    """Put an operation, with its attributes, between an output and what gave it until now, by the output's name."""
    from onnx import helper

    outputs = [value.name for value in graph.output]
    rename(graph, {name: f"{name}/inside" for name in operations})
    for value, name in zip(graph.output, outputs, strict=True):
        value.name = name
    for name, (kind, attributes) in operations.items():
        graph.node.append(helper.make_node(kind, [f"{name}/inside"], [name], f"{name}/{kind}", **attributes))


def _widen(graph: Any, others: Collection[int]) -> None:
    """Replace types of floats wherever a graph, or one inside it, states them."""
    from onnx import TensorProto, numpy_helper

    for tensor in _tensors(graph):
        if tensor.data_type in others:
            wide = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in others:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i in others:
                attribute.i = TensorProto.FLOAT
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ())):
                _widen(inner, others)


def _tensors(graph: Any) -> Iterator[Any]:
    """Yield the constants of a graph, without those of graphs inside."""
    yield from graph.initializer
    for node in graph.node:
        yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))
