"""The inference graph of a PyTorch model, and the values inside it."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.errors import NotSupported
from nnpipe.core.graph import Graph, Operation, Selector
from nnpipe.core.graph_sizes import Shapes
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.frameworks.torch_session import array_of, tensor_of
from nnpipe.modelwrappers.frameworks.inspection import selected
from nnpipe.modelwrappers.frameworks.pytorch_export import PREFIX, exported_program, fixed_length
from nnpipe.modelwrappers.frameworks.pytorch_primitives import primitives_of

if TYPE_CHECKING:
    from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper


def inference_graph(wrapper: PyTorchWrapper, module: Any, shapes: Shapes | None = None) -> Graph:
    """Return the graph of the exported program, which is its ``native`` object, for inputs of given shapes if any."""
    return graph_of_program(wrapper, exported_program(wrapper, module), shapes)


def graph_of_program(wrapper: PyTorchWrapper, program: Any, shapes: Shapes | None = None) -> Graph:
    """Return the graph of a program that was exported from the wrapper."""
    signature = program.graph_signature
    weights = {
        node: target.removeprefix(PREFIX)
        for found in (
            signature.inputs_to_parameters,
            signature.inputs_to_buffers,
            signature.inputs_to_lifted_tensor_constants,
        )
        for node, target in found.items()
    }
    inputs = dict(zip(signature.user_inputs, (spec.name for spec in wrapper.io.inputs), strict=True))
    length = fixed_length if shapes is None else lengths_for(program.graph, inputs, shapes)
    graph = read_graph(program.graph, weights | inputs, set(inputs), program, layer_of, length)
    # Buffers that change in inference may be among the program's outputs.
    ours = [spec.kind.name == "USER_OUTPUT" for spec in signature.output_specs]
    return replace(graph, outputs=tuple(name for name, kept in zip(graph.outputs, ours, strict=True) if kept))


def read_graph(
    graph: Any,
    names: Mapping[str, str],
    inputs: Collection[str],
    native: Any,
    layer: Callable[[Any], str],
    length: Callable[[Any], int | None] = fixed_length,
) -> Graph:
    """Convert a graph of ``torch.fx``.

    Parameters
    ----------
    graph
        A ``torch.fx.Graph`` of calls of ATen operators.
    names
        Names for the tensors of placeholders, by node.
    inputs
        Placeholders that are inputs; the others are weights.
    native
        The framework's object to which the result refers.
    layer
        Returns the layer of a node.
    length
        Returns the length of a traced axis, or ``None`` if it is free.
    """
    taken = {node.name for node in graph.nodes if node.op != "placeholder"}
    known = {node: name for node, name in names.items() if name not in taken}
    # A result of an operation that is extracted twice is one tensor.
    known |= {str(twin.name): str(first.name) for twin, first in _twins(graph)}
    tensors: dict[str, TensorSpec] = {}
    operations: list[Operation] = []
    graph_inputs: list[str] = []
    graph_outputs: list[str] = []
    for node in graph.nodes:
        name = known.get(node.name, str(node.name))
        if node.op == "placeholder":
            tensors[name] = _spec(name, node.meta["val"], length)
            if node.name in inputs:
                graph_inputs.append(name)
        elif node.op == "output":
            graph_outputs = [known.get(given.name, str(given.name)) for given in _nodes(node.args)]
        elif node.op == "get_attr" and hasattr(constant := getattr(graph.owning_module, node.target), "dtype"):
            tensors[name] = _spec(name, constant, length)
        elif node.op != "call_function":
            raise NotSupported(f"the graph holds a {node.op} ({node.target}), which is no operation on tensors")
        elif not takes_out(node):
            found = results(node)
            tensors |= {tensor: _spec(tensor, value, length) for tensor, value in found.items()}
            used = tuple(known.get(given.name, str(given.name)) for given in node.all_input_nodes)
            computed = primitives_of(node, length)
            operations.append(Operation(str(node.name), kind_of(node), used, tuple(found), layer(node), node, computed))
    return Graph(tuple(operations), tensors, tuple(graph_inputs), tuple(graph_outputs), native)


def takes_out(node: Any) -> bool:
    """Return whether a node only extracts one result of another operation."""
    return node.target is operator.getitem and isinstance(node.args[0].meta.get("val"), (tuple, list))


def results(node: Any, value: Any = None) -> dict[str, Any]:
    """Return the results of an operation by tensor name: from ``value``, or by default the traced ones."""
    if value is None:
        value = node.meta.get("val")
    if not isinstance(value, (tuple, list)):
        return {} if value is None else {str(node.name): value}
    names = {i: f"{node.name}.{i}" for i in range(len(value))}
    for user in reversed(list(node.users)):
        if takes_out(user):
            names[user.args[1]] = str(user.name)
    return {names[i]: part for i, part in enumerate(value) if part is not None}


def _twins(graph: Any) -> Iterator[tuple[Any, Any]]:
    for node in graph.nodes:
        first: dict[Any, Any] = {}
        for user in node.users:
            if user.op == "call_function" and takes_out(user):
                if user.args[1] in first:
                    yield user, first[user.args[1]]
                first.setdefault(user.args[1], user)


def _nodes(arguments: Any) -> Iterator[Any]:
    if isinstance(arguments, (tuple, list)):
        for argument in arguments:
            yield from _nodes(argument)
    elif isinstance(arguments, dict):
        yield from _nodes(list(arguments.values()))
    elif hasattr(arguments, "all_input_nodes"):
        yield arguments


def kind_of(node: Any) -> str:
    """Return the name of the operator, such as ``aten.conv2d.default``."""
    if hasattr(node.target, "_schema"):
        return str(node.target)
    return f"{node.target.__module__.lstrip('_')}.{node.target.__name__}"  # arithmetic on lengths of axes


def layer_of(node: Any) -> str:
    """Return the path of the innermost module that contains an exported node; empty for the whole model."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = re.sub(r"@\d+", "", str(stack[-1][0])) if stack else ""  # "@1": the second call of a module
    return path.removeprefix(PREFIX) if path.startswith(PREFIX) else ""


def lengths_for(graph: Any, inputs: Mapping[str, str], shapes: Shapes) -> Callable[[Any], int | None]:
    """Return a function from a traced axis to its length, if the inputs have these shapes.

    Parameters
    ----------
    graph
        A ``torch.fx.Graph`` of an exported program.
    inputs
        The names of the program's inputs, by node.
    shapes
        The shapes of the inputs by name.
    """
    known: dict[Any, int] = {}
    for node in graph.nodes:
        if node.op == "placeholder" and node.name in inputs:
            axes = zip(node.meta["val"].shape, shapes[inputs[node.name]], strict=True)
            known |= {axis.node.expr: length for axis, length in axes if not isinstance(axis, int)}

    def length(axis: Any) -> int | None:
        if isinstance(axis, int):
            return axis
        found = axis.node.expr.subs(known)
        return int(found) if found.is_Integer else None

    return length


def _spec(name: str, value: Any, length: Callable[[Any], int | None]) -> TensorSpec:
    import torch

    if isinstance(value, torch.Tensor):
        return TensorSpec(name, tuple(map(length, value.shape)), str(value.dtype).removeprefix("torch."))
    if isinstance(value, (bool, torch.SymBool)):
        return TensorSpec(name, (), "bool")
    return TensorSpec(name, (), "float64" if isinstance(value, (float, torch.SymFloat)) else "int64")


def intermediates(
    wrapper: PyTorchWrapper, program: Any, graph: Graph, selector: Selector, batch: Batch, given: Batch
) -> dict[str, np.ndarray]:
    """Run a program node by node and keep the values chosen; what is given takes a computed tensor's place."""
    wanted = set(selected(type(wrapper).__name__, selector, graph.operations))
    kept: dict[str, np.ndarray] = {}

    def keep(node: Any, value: Any) -> None:
        if node.op == "call_function" and not takes_out(node):
            for tensor, result in results(node, value).items():
                if tensor in wanted:
                    # Copied at once, because operations may work in place.
                    kept[tensor] = array_of(result).copy() if hasattr(result, "cpu") else np.asarray(result)

    interpret(wrapper, program, batch, keep, given=given)
    return {tensor: kept[tensor] for tensor in graph.tensors if tensor in kept}


def interpret(
    wrapper: PyTorchWrapper,
    program: Any,
    batch: Batch,
    after: Callable[[Any, Any], None] | None = None,
    around: Callable[[Any], Any] = nullcontext,
    given: Batch = MappingProxyType({}),
) -> None:
    """Run an exported program node by node with the present weights.

    ``after`` is called with each node and its value; ``around`` is called with
    each node and returns a context manager in which the node runs.  An operation
    whose single result is ``given`` continues with the given value.
    """
    import torch

    class Watched(torch.fx.Interpreter):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        def run_node(self, n: Any) -> Any:
            with around(n):
                value = super().run_node(n)
            if after is not None:
                after(n, value)
            # Copied, because operations may work in place.
            return value if n.name not in given else tensor_of(np.array(given[n.name]), wrapper.device).to(value.dtype)

    wrapper.io.check_inputs(batch)
    inputs = iter([tensor_of(batch[spec.name], wrapper.device) for spec in wrapper.io.inputs])
    held = {**program.state_dict, **program.constants}
    kinds = torch.export.graph_signature.InputKind
    arguments = [
        next(inputs) if spec.kind is kinds.USER_INPUT else held[spec.target]
        for spec in program.graph_signature.input_specs
    ]
    with torch.inference_mode():
        Watched(program.graph_module).run(*arguments)
