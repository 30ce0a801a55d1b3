"""Translation of exported PyTorch programs to TensorFlow functions, operator by operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnpipe.compilers._tflite_conversion import Call
from nnpipe.compilers._torch_tf_operators import table
from nnpipe.compilers._torch_tf_values import Value
from nnpipe.core.errors import CompileError
from nnpipe.frameworks.torch_program import QUANTISED, LoadedProgram, quiet

_SHOWN = 5


def function_of(loaded: LoadedProgram) -> Call:
    """Return a program as a function of TensorFlow tensors by name; weights become constants.

    Programs may contain layers as users write them, or the core operators that
    PyTorch decomposes them into.

    Raises
    ------
    CompileError
        If operators cannot be translated; the message names them.
    """
    operators = table()
    native = loaded.native
    if any(QUANTISED in str(node.target) for node in native.graph.nodes):
        raise CompileError("it is quantised already; start from the floats it came from, with --precision int8")
    if _changes_tensors(native) or _unknown(native, operators, _constants(native)):
        with quiet():
            native = native.run_decompositions()
        still = _unknown(native, operators, _constants(native))
        if still:
            named = ", ".join(still[:_SHOWN]) + (f" and {len(still) - _SHOWN} more" if len(still) > _SHOWN else "")
            raise CompileError(f"PyTorch's {named} cannot be translated to TensorFlow")
    held = _constants(native)
    inputs, outputs = _interface(native)

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[Any, Any] = {}
        given = {node: tensors[spec.name] for node, spec in zip(inputs, loaded.io.inputs, strict=True)}
        for node in native.graph.nodes:
            if node.name in held:
                values[node] = Value(held[node.name])
            elif node.op == "placeholder":
                values[node] = Value(given[node.name])
            elif node.op == "call_function":
                values[node] = _called(node, values, operators)
        found = (values[node].first() for node in outputs)
        return {spec.name: tensor for spec, tensor in zip(loaded.io.outputs, found, strict=True)}

    return call


def _called(node: Any, values: Mapping[Any, Any], operators: Mapping[str, Any]) -> Any:
    from torch.fx.node import map_arg

    args, kwargs = (map_arg(part, values.__getitem__) for part in (node.args, node.kwargs))
    name = _name(node)
    if name is None:
        return node.target(*args, **kwargs)  # arithmetic on lengths, and selection from an operator's results
    try:
        return operators[name](*args, **kwargs)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise CompileError(f"PyTorch's {node.target} cannot be translated as it is used: {error}") from error


def _changes_tensors(native: Any) -> bool:
    """Return whether operators write into tensors, which others may see; decomposed programs have none of these."""
    schemas = (getattr(node.target, "_schema", None) for node in native.graph.nodes)
    return any(schema is not None and schema.is_mutable for schema in schemas)


def _unknown(native: Any, operators: Mapping[str, Any], held: Mapping[str, Any]) -> list[str]:
    """Return the names of operators without a translation; operators on constants need none."""
    found: dict[str, None] = {}
    for node in native.graph.nodes:
        if node.op == "call_function" and node.name not in held:
            name = _name(node)
            if name is not None and name not in operators:
                found[str(node.target)] = None
    return list(found)


def _name(node: Any) -> str | None:
    """Return the name of an operator without its overload; ``None`` for plain functions."""
    schema = getattr(node.target, "_schema", None)
    return None if schema is None else str(schema.name).removeprefix("aten::")


def _constants(native: Any) -> dict[str, Any]:
    """Return weights, and values computed from weights alone, as arrays by the names of their nodes."""
    import torch
    from torch.export.graph_signature import InputKind
    from torch.fx.node import map_arg

    known = {**native.state_dict, **native.constants}
    tensors = {
        spec.arg.name: known[spec.target].detach()
        for spec in native.graph_signature.input_specs
        if spec.kind is not InputKind.USER_INPUT
    }
    for node in native.graph.nodes:
        if _name(node) is None or not all(given.name in tensors for given in node.all_input_nodes):
            continue
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            continue
        with torch.no_grad():
            args, kwargs = (map_arg(part, lambda given: tensors[given.name]) for part in (node.args, node.kwargs))
            found = node.target(*args, **kwargs)
        if isinstance(found, torch.Tensor):
            tensors[node.name] = found
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _interface(native: Any) -> tuple[list[str], list[Any]]:
    """Return the names of the input nodes, and the output nodes."""
    from torch.export.graph_signature import InputKind, OutputKind

    signature = native.graph_signature
    inputs = [spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    nodes = {node.name: node for node in native.graph.nodes}
    outputs = [nodes[spec.arg.name] for spec in signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    return inputs, outputs
