"""The graph of an ONNX file as a module of PyTorch, which calls a function of PyTorch for each
node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnpipe.compilers._onnx_torch import elementwise, shapes, weighted
from nnpipe.compilers._onnx_torch.call import (
    Known,
    OperatorCall,
    convert_known_to_tensor,
    fold_known_integers,
)
from nnpipe.core.errors import CompileError
from nnpipe.core.messages import format_one_line
from nnpipe.formats.onnx_network import ONNXNetwork, ONNXNode
from nnpipe.layers.imports.translation import fold

_FAMILIES = (
    elementwise.build_operators,
    elementwise.build_reduction_operators,
    shapes.build_operators,
    shapes.build_indexing_operators,
    weighted.build_operators,
    weighted.build_window_operators,
)
OWN = frozenset({"Constant", "Shape", "Size"})
"""Operators that the graph in PyTorch computes itself."""


def build_operator_table() -> Mapping[str, Callable[[OperatorCall], Any]]:
    """Return the operators by their names in ONNX."""
    return {name: operator for operators in _FAMILIES for name, operator in operators().items()}


def find_untranslated(kinds: Iterable[str]) -> list[str]:
    """Return the operators among these that are not translated, each once."""
    known = build_operator_table().keys() | OWN
    return [kind for kind in dict.fromkeys(kinds) if kind not in known]


_LARGEST_FOLDED = 1 << 26  # values


def build_module(network: ONNXNetwork) -> Any:
    """Return an ``nn.Module`` that takes a dict of tensors by name, and returns one.

    Constants become its parameters, or buffers if they are integers, when it is first called.  So
    it has to be called once before it is exported.
    """
    import torch

    nodes, constants = _fold_constants(network)
    nodes = _with_biases(nodes, constants, network.outputs)
    operators = build_operator_table()
    last = {name: place for place, node in enumerate(nodes) for name in node.inputs}
    kept = set(network.outputs)

    class Graph(torch.nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        def __init__(self) -> None:
            super().__init__()
            self.places: dict[str, tuple[Any, str]] = {}
            self.settled = False

        def forward(self, given: dict[str, Any]) -> dict[str, Any]:
            values: dict[str, Any] = dict(given)
            for place, node in enumerate(nodes):
                for name, value in zip(node.outputs, self.called(node, values), strict=False):
                    values[name] = value
                for name in node.inputs:
                    if last[name] == place and name not in kept:
                        values.pop(name, None)
            found = {name: self.as_tensor(values, name) for name in network.outputs}
            self.settled = True
            return found

        def called(self, node: ONNXNode, values: Mapping[str, Any]) -> Sequence[Any]:
            def get_known(name: str) -> Known | None:
                value = values.get(name, constants.get(name))
                return value if isinstance(value, np.ndarray) else None

            if node.kind in ("Shape", "Size"):
                return [
                    _get_lengths(
                        node,
                        values.get(node.inputs[0], constants.get(node.inputs[0])),
                        self.settled,
                    )
                ]
            given = [get_known(name) if name else None for name in node.inputs]
            if all(
                array is not None or not name
                for array, name in zip(given, node.inputs, strict=True)
            ):
                found = fold_known_integers(node, given, self.settled)
                if found is not None:
                    return [found]
            call = OperatorCall(
                node,
                network.opset,
                lambda name: self.as_tensor(values, name),
                get_known,
                lambda name: self.weight(name, True) if _is_matrix(constants.get(name)) else None,
            )
            try:
                result = operators[node.kind](call)
            except CompileError as error:
                raise CompileError(
                    f"the operation {_describe_node(node)} cannot be translated: {error}"
                ) from None
            return result if isinstance(result, tuple) else [result]

        def as_tensor(self, values: Mapping[str, Any], name: str) -> Any:
            if name not in values:
                return self.weight(name)
            value = values[name]
            return convert_known_to_tensor(value) if isinstance(value, np.ndarray) else value

        def weight(self, name: str, transposed: bool = False) -> Any:
            key = f"{name}, transposed" if transposed else name
            if key not in self.places:
                array = constants[name]
                self.places[key] = _register_constant(self, name, array.T if transposed else array)
            owner, last_name = self.places[key]
            return getattr(owner, last_name)

    return Graph().eval()


def _describe_node(node: ONNXNode) -> str:
    return f"{node.kind} ({node.title})"


def _is_matrix(array: np.ndarray | None) -> bool:
    return array is not None and array.ndim == 2 and array.dtype.kind == "f"


def _get_lengths(node: ONNXNode, value: Any, simplified: bool) -> Known:
    """Return lengths of axes; in the first call all count as free, so that it uses all weights
    of later ones.
    """
    lengths = np.array(value.shape, object)
    part = lengths[node.attributes.get("start") or 0 : node.attributes.get("end")]
    found = (
        part if node.kind == "Shape" else np.asarray(lengths.prod() if lengths.size else 1, object)
    )
    plain = simplified and all(isinstance(length, int) for length in found.reshape(-1).tolist())
    return found.astype(np.int64) if plain else found


def _register_constant(module: Any, name: str, array: np.ndarray) -> tuple[Any, str]:
    """Register a constant under its name in the file, as far as PyTorch allows; return its owner
    and its name there.
    """
    import torch

    *above, last = [re.sub(r"\W", "_", part) or "_" for part in name.split(".")]
    owner = module
    for part in above:
        inner = getattr(owner, part, None)
        if inner is None:
            inner = torch.nn.Module()
            owner.add_module(part, inner)
        elif not isinstance(inner, torch.nn.Module):
            return _register_constant(module, name.replace(".", "_"), array)
        owner = inner
    while hasattr(owner, last):
        last += "_"
    tensor = torch.from_numpy(np.array(array, order="C"))
    if tensor.is_floating_point():
        owner.register_parameter(last, torch.nn.Parameter(tensor, requires_grad=False))
    else:
        owner.register_buffer(last, tensor)
    return owner, last


def _fold_constants(network: ONNXNetwork) -> tuple[list[ONNXNode], dict[str, np.ndarray]]:
    """Return the nodes that depend on inputs, and all constants."""
    constants, nodes = dict(network.constants), []
    for node in network.nodes:
        given = [constants.get(name) if name else None for name in node.inputs]
        found = None
        if all(
            array is not None or not name for array, name in zip(given, node.inputs, strict=True)
        ):
            try:
                found = fold(node, given, _LARGEST_FOLDED)
            except (ValueError, IndexError, KeyError, TypeError) as error:
                if node.kind == "Constant":
                    raise CompileError(
                        f"the constant {node.title} cannot be read: {format_one_line(error)}"
                    ) from None
        if found is None:
            nodes.append(node)
        else:
            constants[node.outputs[0]] = found
    return nodes, constants


def _with_biases(
    nodes: Sequence[ONNXNode], constants: Mapping[str, np.ndarray], outputs: Mapping[str, Any]
) -> list[ONNXNode]:
    """Return the nodes with sums that only add a vector to a product made part of it, as
    quantisers want them.
    """
    uses = Counter(name for node in nodes for name in node.inputs)
    uses.update(list(outputs))
    products = {
        node.outputs[0]: place
        for place, node in enumerate(nodes)
        if node.kind == "MatMul"
        and _is_matrix(constants.get(node.get_input(1)))
        and uses[node.outputs[0]] == 1
    }
    found: list[ONNXNode | None] = list(nodes)
    for place, node in enumerate(nodes):
        if node.kind != "Add":
            continue
        for product, bias in (node.inputs, node.inputs[::-1]):
            if product not in products or bias not in constants:
                continue
            before = nodes[products[product]]
            if constants[bias].shape == constants[before.inputs[1]].shape[1:]:
                found[products[product]] = None
                found[place] = replace(before, inputs=(*before.inputs, bias), outputs=node.outputs)
                break
    return [node for node in found if node is not None]
