"""Steps shared by compilers of ONNX models."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.compilers._quantisation import GraphStep
from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.onnx_external_data import write_joined

_FATAL = 4  # log severity: errors are raised, so there is nothing to print
_MADE = "fused/"


class ONNXRewriter(WritingCompiler):
    """A compiler that reads and writes ONNX models."""

    requires: ClassVar[tuple[str, ...]] = ("onnxruntime", "onnx")
    install: ClassVar[str] = "nnpipe[onnx]"
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    one_file: ClassVar[bool] = True
    produces: ClassVar[str] = "onnx"
    suffix: ClassVar[str] = ".onnx"
    packages: ClassVar[tuple[str, ...]] = ("onnxruntime", "onnx")


def merge_into_one_file(source: Path, folder: Path) -> Path:
    """Return a single file with the model and its weights: the source itself, or a new one in
    ``folder``.

    Raises
    ------
    ArtifactError
        If the source is damaged, or refers to weight files outside its folder.
    """
    file = read_onnx(source)
    file.check_external()
    if not file.external:
        return source
    whole = folder / "whole.onnx"
    write_joined(file, whole)
    return whole


def optimize_onnx_file(source: Path, destination: Path, level: str) -> None:
    """Optimise a model with ONNX Runtime and write the result.

    Tensors that are new in the result get names of their own: ONNX Runtime makes the same names
    again when it fuses further at loading, and then refuses the model ("Attempt to replace the
    existing tensor", 1.31).

    Parameters
    ----------
    source, destination
        ONNX files.
    level
        A member of ``onnxruntime.GraphOptimizationLevel``.
    """
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(destination)
    # Nothing is run, so weights need not be repacked for kernels, which would take their memory
    # once more.
    options.add_session_config_entry("session.disable_prepacking", "1")
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    known = _list_tensors(onnx.load_model(str(source), load_external_data=False).graph)
    model = onnx.load_model(str(destination))
    if new := _list_tensors(model.graph) - known:
        prefix = _MADE
        # the source has been optimised before
        while any(name.startswith(prefix) for name in known):
            prefix += _MADE
        rename(model.graph, {name: f"{prefix}{name}" for name in new})
        onnx.save_model(model, str(destination))


def _list_tensors(graph: Any) -> set[str]:
    """Return the names of the tensors that a graph computes or holds, without those of graphs
    inside.
    """
    return {name for node in graph.node for name in node.output} | {
        held.name for held in graph.initializer
    }


def rename(graph: Any, names: dict[str, str]) -> None:
    """Rename tensors of a graph, also where graphs inside use them."""
    for node in graph.node:
        for held in (node.input, node.output):
            held[:] = [names.get(name, name) for name in held]
        for attribute in node.attribute:
            for inner in (
                (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs
            ):
                rename(inner, names)
    for held in (*graph.initializer, *graph.value_info, *graph.output, *graph.sparse_initializer):
        named = held.values if hasattr(held, "values") else held
        named.name = names.get(named.name, named.name)


def fix_batch(model: Any, io: IOSpec, batch: int) -> None:
    """Set free first axes of the inputs to a length, and all axes that depend on them.

    An output keeps a first axis that is not the batch axis, such as the number of boxes found.

    Parameters
    ----------
    model
        An ``onnx.ModelProto`` without external weights.
    io
        Its inputs and outputs, without weights.
    batch
        The batch size.
    """
    import onnx

    free = {spec.name for spec in io.inputs if spec.shape[:1] == (None,)}
    given = [_get_axes(value) for value in model.graph.input if value.name in free]
    names = {axes[0].dim_param for axes in given} - {""}
    for axes in given:
        axes[0].dim_value = batch
    for value in (*model.graph.input, *model.graph.output):
        for axis in _get_axes(value):
            if axis.dim_param in names:
                axis.dim_value = batch
    # The inferred inner shapes are no longer valid.
    del model.graph.value_info[:]
    inferred = {
        value.name: _get_axes(value)
        for value in onnx.shape_inference.infer_shapes(model).graph.output
    }
    for value in model.graph.output:
        for axis, found in zip(_get_axes(value), inferred[value.name], strict=False):
            if not axis.HasField("dim_value") and found.HasField("dim_value"):
                axis.dim_value = found.dim_value


def _get_axes(value: Any) -> Any:
    return value.type.tensor_type.shape.dim


def put_in_order(graph: Any) -> None:
    """Sort the nodes of a graph and of its subgraphs so that each follows the nodes whose results
    it takes.

    A node whose inputs are computed in the subgraph of another node is moved there: some converters
    append such nodes to the outer graph.

    Parameters
    ----------
    graph
        An ``onnx.GraphProto``; it is modified in place.
    """
    for inner in _iter_subgraphs(graph):
        made = {name for node in inner.node for name in node.output}
        known = (
            made
            | {value.name for value in inner.input}
            | {constant.name for constant in inner.initializer}
        )
        here = [
            n for n, node in enumerate(graph.node) if known.intersection(filter(None, node.input))
        ]
        for number in here:
            inner.node.add().CopyFrom(graph.node[number])
        for number in reversed(here):
            del graph.node[number]
        put_in_order(inner)
    order = _sort_topologically(graph)
    if order != sorted(order):
        nodes = [graph.node[number] for number in order]
        del graph.node[:]
        graph.node.extend(nodes)


def _sort_topologically(graph: Any) -> list[int]:
    """Return the nodes' indices in topological order, as close to the present order as possible."""
    makers = {
        name: number for number, node in enumerate(graph.node) for name in node.output if name
    }
    users: dict[int, list[int]] = {}
    waiting: dict[int, int] = {}
    for number, node in enumerate(graph.node):
        before = {makers[name] for name in find_node_inputs(node) if name in makers} - {number}
        waiting[number] = len(before)
        for maker in before:
            users.setdefault(maker, []).append(number)
    ready = [number for number, count in waiting.items() if not count]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for number in users.get(order[-1], ()):
            waiting[number] -= 1
            if not waiting[number]:
                heapq.heappush(ready, number)
    return order if len(order) == len(waiting) else list(waiting)  # later steps reject a cycle


def find_node_inputs(node: Any) -> set[str]:
    """Return the inputs of a node, including the outer values that its subgraphs use."""
    found = set(filter(None, node.input))
    for attribute in node.attribute:
        # GRAPH, GRAPHS
        for graph in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
            for inner in graph.node:
                found |= find_node_inputs(inner)
            found |= {value.name for value in graph.output}
    return found


def _iter_subgraphs(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == 5:  # AttributeProto.GRAPH
                yield attribute.g
            elif attribute.type == 10:  # AttributeProto.GRAPHS
                yield from attribute.graphs


# Operations whose rounded result is the result for the rounded input.
_PASSING = frozenset(
    (
        "Relu",
        "Clip",
        "MaxPool",
        "GlobalMaxPool",
        "Reshape",
        "Flatten",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Identity",
        "Dropout",
        "DepthToSpace",
        "SpaceToDepth",
        "Expand",
        "Tile",
    )
)


def list_onnx_steps(graph: Any) -> list[GraphStep]:
    """Return the nodes of an ``onnx.GraphProto``, without those of graphs inside."""
    return [
        GraphStep(
            node.name,
            tuple(filter(None, node.input)),
            tuple(filter(None, node.output)),
            node.op_type in _PASSING,
        )
        for node in graph.node
    ]


def find_surviving_tensors(
    name: str, before: Sequence[GraphStep], there: Collection[str]
) -> set[str]:
    """Return the tensors that stand for a source's tensor after fusion: itself, or the next ones
    that are left.

    A convolution and the normalisation after it become one operation, which computes the
    normalisation's result.

    Parameters
    ----------
    name
        A tensor of the source.
    before
        The operations of the source.
    there
        The tensors after fusion.
    """
    found: set[str] = set()
    waiting, seen = [name], {name}
    while waiting:
        tensor = waiting.pop()
        if tensor in there:
            found.add(tensor)
            continue
        fresh = {
            output for step in before if tensor in step.inputs for output in step.outputs
        } - seen
        seen |= fresh
        waiting += fresh
    return found


# ONNX graphs in the form that ONNX Runtime's converters expect.
#
# They leave alone what is not: weights in other floats than float32 or in ``Constant`` nodes.  They
# take the scales of blocks for those of channels, and what is an output for something that only the
# next node takes.


def remove_weights_from_inputs(model: Any) -> None:
    """Take the weights of an ``onnx.ModelProto`` out of its inputs, among which version 3 of the IR
    lists them, too.

    Converters that keep the types of inputs would leave them as they are.
    """
    weights = {constant.name for constant in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    if len(inputs) < len(model.graph.input):
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        model.ir_version = max(model.ir_version, 4)


def convert_constant_nodes(graph: Any) -> None:
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


def copy_shared_outputs(graph: Any, *kinds: str) -> None:
    """Copy outputs that are also weights, or that operators of these kinds read, which could
    change both.
    """
    shared = {constant.name for constant in graph.initializer}
    shared.update(name for node in graph.node if node.op_type in kinds for name in node.input)
    shared -= {value.name for value in graph.input}
    _put_behind(
        graph, {value.name: ("Identity", {}) for value in graph.output if value.name in shared}
    )


def compute_in_float32(graph: Any, *others: str) -> None:
    """Compute in float32 what a graph computes in other floats; its inputs and outputs keep their
    types.

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
    _replace_float_types(graph, types)
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
        scale, *zero = (
            np.repeat(each, size, axis).take(range(values.shape[axis]), axis) for each in others
        )
        real = values.astype(np.float32) - (zero[0].astype(np.float32) if zero else 0)
        graph.initializer.append(
            numpy_helper.from_array(real * scale.astype(np.float32), node.output[0])
        )
        graph.node.remove(node)  # ONNX Runtime removes the constants that nothing takes


def _put_behind(graph: Any, operations: dict[str, tuple[str, dict[str, int]]]) -> None:
    """Put an operation, with its attributes, between an output and what gave it until now, by
    the output's name.
    """
    from onnx import helper

    outputs = [value.name for value in graph.output]
    rename(graph, {name: f"{name}/inside" for name in operations})
    for value, name in zip(graph.output, outputs, strict=True):
        value.name = name
    for name, (kind, attributes) in operations.items():
        graph.node.append(
            helper.make_node(kind, [f"{name}/inside"], [name], f"{name}/{kind}", **attributes)
        )


def _replace_float_types(graph: Any, others: Collection[int]) -> None:
    """Replace types of floats wherever a graph, or one inside it, states them."""
    from onnx import TensorProto, numpy_helper

    for tensor in _iter_tensors(graph):
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
                _replace_float_types(inner, others)


def _iter_tensors(graph: Any) -> Iterator[Any]:
    """Yield the constants of a graph, without those of graphs inside."""
    yield from graph.initializer
    for node in graph.node:
        yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))
