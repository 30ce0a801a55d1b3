"""The reader of PyTorch modules: structure and weights as a graph of layers.

``torch.export`` traces the module in inference mode; its operators are translated
to those of ONNX, which become layers in the same way as ONNX files.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import MissingDependency
from nnpipe.core.messages import format_one_line
from nnpipe.formats.onnx_network import ONNXNode
from nnpipe.frameworks.torch_program import build_dynamic_shapes, suppress_torch_logs
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.imports.torch_operators import KINDS, build_recurrent_operations
from nnpipe.layers.imports.translation import SAMPLES, OperationNetwork, build
from nnpipe.layers.keras.read_file import Reading
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.torch.to_torch import torch_weights


def from_torch(module: Any, inputs: Sequence[Any]) -> Reading:
    """Return the structure and the weights of a PyTorch module as a graph of layers.

    An operator without an equivalent layer becomes an ``Unknown`` layer, and a
    problem names the module that contains it.  Layers have the names of modules.
    For a module made by :func:`~nnpipe.layers.torch.to_torch.to_torch`, its own graph is returned.

    Parameters
    ----------
    module
        A ``torch.nn.Module``.  It is traced in inference mode and not changed.
    inputs
        An example of each input tensor, batch axis first, with two samples or more.

    Raises
    ------
    MissingDependency
        If PyTorch is not installed.  All other faults are problems in the result.
    """
    check_call(from_torch, locals())
    try:
        import torch
    except ImportError as error:
        raise MissingDependency(
            f"PyTorch is needed here: pip install 'nnpipe[torch]' ({error})"
        ) from None
    if isinstance(getattr(module, "graph", None), NetworkGraph) and hasattr(module, "penalty"):
        return Reading(module.graph, torch_weights(module))  # a module made by to_torch
    modes = {part: part.training for part in module.modules()}
    try:
        with torch.no_grad(), suppress_torch_logs():
            program = _export_program(module.eval(), tuple(inputs))
    except Exception as error:  # its errors share no base but Exception
        text = format_one_line(error)
        return Reading(
            None, {}, (NetworkProblem("structure", "", f"torch.export cannot follow it: {text}"),)
        )
    finally:
        for part, training in modes.items():
            part.training = training
    return build(_ProgramReader(program, type(module).__name__).read_program())


def _export_program(module: Any, inputs: tuple[Any, ...]) -> Any:
    """Export a module with a free batch size or, if that fails, with that of the example."""
    import torch

    samples = torch.export.Dim("samples", min=1, max=1 << 20)
    free = tuple({0: samples} if tensor.ndim else None for tensor in inputs)
    try:
        program = torch.export.export(
            module, inputs, dynamic_shapes=build_dynamic_shapes(module, free)
        )
    except Exception:  # of several kinds; most modules with a fixed batch size fail here
        program = torch.export.export(module, inputs)
    schemas = [getattr(node.target, "_schema", None) for node in program.graph.nodes]
    # In-place writes to tensors that have views would be missed.
    return (
        program.run_decompositions()
        if any(s is not None and s.is_mutable for s in schemas)
        else program
    )


class _ProgramReader:
    def __init__(self, program: Any, name: str) -> None:
        self.program, self.title = program, name
        self.nodes: list[ONNXNode] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: dict[str, tuple[str, tuple[int | None, ...]]] = {}
        self.names: dict[str, str] = {}
        self.results: dict[str, list[str]] = {}

    def read_program(self) -> OperationNetwork:
        from torch.export.graph_signature import InputKind

        held = {**self.program.state_dict, **self.program.constants}
        for spec in self.program.graph_signature.input_specs:
            if spec.kind is InputKind.USER_INPUT:
                continue
            tensor = held[spec.target].detach().cpu()
            real = tensor.float() if tensor.dtype.is_floating_point else tensor
            self.names[spec.arg.name] = spec.target
            self.constants[spec.target] = real.numpy()
        for node in self.program.graph.nodes:
            if node.op == "placeholder" and node.name not in self.names:
                value = node.meta["val"]
                shape: tuple[int | None, ...] = tuple(self.number(extent) for extent in value.shape)
                self.names[node.name] = node.name
                if shape and not isinstance(value.shape[0], int):
                    shape = (None, *shape[1:])
                self.inputs[node.name] = (str(value.dtype).removeprefix("torch."), shape)
            elif node.op == "call_function":
                self.translate(node)
        outputs = [self.name(name) for name in self.program.graph_signature.user_outputs]
        return OperationNetwork(
            self.title, "torch", self.inputs, self.constants, self.nodes, outputs
        )

    def translate(self, node: Any) -> None:
        from nnpipe.layers.imports.torch_operators import OPERATORS

        schema = getattr(node.target, "_schema", None)
        if node.target is operator.getitem:
            self.take(node)
            return
        if schema is None or not _has_tensors(node.meta.get("val")):
            return  # arithmetic on lengths; the shape of the result tells it
        kind = str(schema.name)
        if kind.removeprefix("aten::") in KINDS and self.try_translate_recurrent(
            node, kind, schema
        ):
            return
        words = OPERATORS.get(kind.removeprefix("aten::"))
        arguments = self.arguments(node, schema)
        made = self.shape(node)
        if words is None:
            given = [value for value in node.all_input_nodes if _has_tensors(value.meta.get("val"))]
            plain = {
                name: value
                for name, value in arguments.items()
                if isinstance(value, (int, float, str, bool))
            }
            self.put(node, kind, given, plain)
            return
        first = next(
            (
                self.shape(value)
                for value in node.all_input_nodes
                if _has_tensors(value.meta.get("val"))
            ),
            (),
        )
        try:
            said = words(arguments, first, made)
            if any(hasattr(value, "all_input_nodes") for value in said[2].values()):
                raise TypeError("a tensor where there a number stands")
        except (KeyError, TypeError, IndexError, ValueError, StopIteration):
            said = kind, node.all_input_nodes, {}
        self.put(node, *said)

    def put(
        self, node: Any, kind: str, given: Sequence[Any], attributes: Mapping[str, Any]
    ) -> None:
        inputs = []
        for number, value in enumerate(given):
            if isinstance(value, np.ndarray):
                name = f"{node.name}.constant{number}"
                self.constants[name] = value
                inputs.append(name)
            else:
                inputs.append("" if value is None else self.name(value.name))
        while inputs and not inputs[-1]:
            inputs.pop()
        held = {name: value for name, value in attributes.items() if value is not None}
        self.nodes.append(ONNXNode(kind, _get_module_path(node), tuple(inputs), (node.name,), held))

    def try_translate_recurrent(self, node: Any, kind: str, schema: Any) -> bool:
        """Translate a recurrent operator that starts from zeros; return whether the node is one."""
        a = self.arguments(node, schema)
        if "batch_sizes" in a or "params" not in a:
            return False
        states = a["hx"] if isinstance(a["hx"], list) else [a["hx"]]
        names = [self.name(weight.name) for weight in a["params"]]
        zeros = all(str(getattr(state, "target", "")).startswith("aten.zeros") for state in states)
        if not zeros or not all(name in self.constants for name in names):
            return False
        taken, shape = self.name(a["input"].name), self.shape(a["input"])
        weights = [self.constants[name] for name in names]
        if any(len(weight) % 4 for weight in weights) and kind == "aten::lstm":
            return False  # it projects its states
        made = build_recurrent_operations(
            kind.removeprefix("aten::"), node.name, _get_module_path(node), taken, weights, a, shape
        )
        self.nodes += made.nodes
        self.constants |= made.constants
        self.results[node.name] = made.results
        return True

    def take(self, node: Any) -> None:
        """Translate the choice of one of several results: the first is the operation's own,
        parts are slices.
        """
        source, index = node.args
        if source.name in self.results:
            self.nodes.append(
                ONNXNode(
                    "Identity",
                    _get_module_path(node),
                    (self.results[source.name][index],),
                    (node.name,),
                    {},
                )
            )
            return
        name = str(getattr(getattr(source.target, "_schema", None), "name", ""))
        if name in ("aten::split", "aten::chunk", "aten::split_with_sizes"):
            axis = next((value for value in source.args[2:3]), source.kwargs.get("dim", 0))
            shapes = [tuple(self.number(e) for e in value.shape) for value in source.meta["val"]]
            start = sum(shape[axis] for shape in shapes[:index])
            listed = [
                np.array([n], np.int64) for n in (start, start + shapes[index][axis], axis, 1)
            ]
            self.put(node, "Slice", [source.all_input_nodes[0], *listed], {})
        elif index == 0:
            self.put(node, "Identity", [source], {})
        else:
            self.put(node, f"{name}[{index}]", [source], {})

    def arguments(self, node: Any, schema: Any) -> dict[str, Any]:
        found = {}
        for place, argument in enumerate(schema.arguments):
            value = argument.default_value if argument.has_default_value() else None
            if place < len(node.args):
                value = node.args[place]
            value = node.kwargs.get(argument.name, value)
            found[argument.name] = self.resolve_lengths(value)
        return found

    def resolve_lengths(self, value: Any) -> Any:
        """Return numbers for symbolic lengths; nodes of tensors stay as they are."""
        import torch

        if isinstance(value, (list, tuple)):
            return [self.resolve_lengths(item) for item in value]
        if isinstance(value, torch.fx.Node):
            return value if _has_tensors(value.meta.get("val")) else self.number(value.meta["val"])
        return self.number(value) if isinstance(value, torch.SymInt) else value

    def number(self, value: Any) -> int:
        """Return a length; a free one becomes the placeholder of the batch size."""
        if isinstance(value, int):
            return value
        expression = getattr(getattr(value, "node", None), "expr", None)
        if expression is None:
            return int(value)
        return int(expression.subs(dict.fromkeys(expression.free_symbols, SAMPLES)))

    def shape(self, node: Any) -> tuple[int, ...]:
        value = node.meta["val"]
        value = value[0] if isinstance(value, (list, tuple)) else value
        return tuple(self.number(extent) for extent in value.shape)

    def name(self, name: str) -> str:
        return self.names.get(name, name)


def _has_tensors(value: Any) -> bool:
    import torch

    if isinstance(value, (list, tuple)):
        return any(map(_has_tensors, value))
    return isinstance(value, torch.Tensor)


def _get_module_path(node: Any) -> str:
    """Return the name of the module that contains an operation, or of the operation if no module
    does.
    """
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values()]
    return paths[-1] if paths and paths[-1] else str(node.name)
