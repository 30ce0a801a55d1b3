"""The translation of operations on tensors, as ONNX defines them, to a graph of layers.

The operators and their arguments are those of https://onnx.ai/onnx/operators;
PyTorch's are translated to them first.  An operation without an equivalent layer
is kept as an unknown layer, and reported as a problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnpipe.formats.onnx_nodes import ONNXNode
from nnpipe.layers.graph.graph import network
from nnpipe.layers.graph.shape_inference import infer
from nnpipe.layers.imports.channels_first import Builder, Unsupported, View
from nnpipe.layers.imports.constant_folding import copied, fold
from nnpipe.layers.imports.operator import own_handler
from nnpipe.layers.imports.operator_fusion import put_together
from nnpipe.layers.imports.operators.table import HANDLERS
from nnpipe.layers.imports.step import Step
from nnpipe.layers.keras.read_file import Reading
from nnpipe.layers.problems import NetworkProblem
from nnpipe.layers.vocabulary.layer import Shape

SAMPLES = 7919
"""Placeholder of the batch size in computations of shapes; a prime that no real network has as an extent."""

_TIMES = 16  # values that may be created for each value of the source; unrolled steps share their weights


@dataclass(frozen=True)
class Foreign:
    """A network of operations.

    Attributes
    ----------
    name, source
        Its name, and the origin of its operations: ``"onnx"`` or ``"torch"``.
    inputs
        Element type and shape by name.
    constants
        Arrays by name.
    nodes
        The operations in topological order.
    outputs
        Names of the outputs.
    opset
        Version of the operator set.
    """

    name: str
    source: str
    inputs: Mapping[str, tuple[str, Shape]]
    constants: Mapping[str, np.ndarray]
    nodes: Sequence[ONNXNode]
    outputs: Sequence[str]
    opset: int = 18


def build(foreign: Foreign) -> Reading:
    """Translate a network of operations to layers as far as possible; faults are problems, and nothing is raised."""
    return _Translation(foreign).result()


class _Translation:
    def __init__(self, foreign: Foreign) -> None:
        self.foreign, self.builder = foreign, Builder()
        within = (value for node in foreign.nodes for value in node.attributes.values())
        arrays = [value for value in (*foreign.constants.values(), *within) if isinstance(value, np.ndarray)]
        self.builder.room += _TIMES * sum(value.size for value in arrays)
        self.values: dict[str, View] = {}
        self.constants = dict(foreign.constants)
        self.problems: list[NetworkProblem] = []
        self.users: Counter[str] = Counter()
        self.made: dict[str, Any] = {}  # the layer that was created for each value, if one was
        first = {shape[0] for _, shape in foreign.inputs.values() if shape}
        fixed = first.pop() if len(first) == 1 else None
        self.samples = SAMPLES if fixed is None else fixed

    def result(self) -> Reading:
        for name, (dtype, shape) in self.foreign.inputs.items():
            try:
                self.values[name] = self.builder.input(name, dtype, shape)
            except Unsupported as error:
                return Reading(None, {}, (NetworkProblem(error.code, name, str(error)),))
        nodes = self.needed()
        self.users.update(name for node in nodes for name in node.inputs if name)
        self.users.update(self.foreign.outputs)
        for node in nodes:
            self.translate(node)
        missing = [name for name in self.foreign.outputs if name not in self.values]
        for name in missing:
            self.problems.append(NetworkProblem("reference", name, "is an output that nothing gives, or a constant"))
        if not self.foreign.outputs:
            self.problems.append(NetworkProblem("reference", "outputs", "the network has no output"))
        if missing or not self.foreign.outputs:
            return Reading(None, {}, tuple(self.problems))
        # Outputs keep the order of axes in the source.
        outputs = tuple(self.plain(name, name).tensor for name in self.foreign.outputs)
        graph = network(tuple(self.builder.inputs), outputs, self.foreign.name)
        held = [n for n in self.builder.weights if n.partition("/")[0] in graph.layers]
        told = {problem.path for problem in self.problems}
        more = [p for p in infer(graph).problems if p.code != "unknown-layer" and p.path not in told]
        return Reading(graph, {name: self.builder.weights[name] for name in held}, (*self.problems, *more))

    def plain(self, name: str, place: str) -> View:
        """Return a value after pending operations; if they are not supported, report it and return it unchanged."""
        view = self.values[name]
        if view.own is None:
            return view
        try:
            return self.builder.plain(view)
        except Unsupported as error:
            self.problems.append(NetworkProblem(error.code, place, str(error)))
            return view

    def needed(self) -> list[ONNXNode]:
        """Return the operations on which the outputs depend."""
        wanted, found = set(self.foreign.outputs), []
        for node in reversed(put_together(self.foreign.nodes, self.constants)):
            if wanted.intersection(node.outputs):
                wanted.update(node.inputs)
                found.append(node)
        return found[::-1]

    def translate(self, node: ONNXNode) -> None:
        title = node.title or node.kind
        step = Step(
            node, builder=self.builder, opset=self.foreign.opset, samples=self.samples, values=self.values,
            constants=self.constants, users=self.users, made=self.made,
        )  # fmt: skip
        try:
            if self.fold(node):
                return
            handler = HANDLERS.get(node.kind) or own_handler(node.kind)
            if handler is None:
                raise Unsupported(f"{node.kind} is not in the vocabulary", code="unknown-layer")
            found = handler(step)
        except Unsupported as error:
            place = f"{title}.{error.argument}" if error.argument else title
            message = str(error) if error.code == "unknown-layer" else f"{node.kind} {error}"
            self.problems.append(NetworkProblem(error.code, place, message))
            self.keep(node, step)
            return
        except (ValueError, TypeError, IndexError, KeyError, OverflowError, ArithmeticError) as error:
            text = " ".join(f"{node.kind} is not used as it is defined: {error}".split())
            self.problems.append(NetworkProblem("structure", title, text[:200]))
            self.keep(node, step)
            return
        views = found if isinstance(found, Sequence) else [found]
        before = [self.values[name].tensor for name in node.inputs if name in self.values]
        if views[0] is not None and all(views[0].tensor is not tensor for tensor in before):
            self.made[node.outputs[0]] = views[0].tensor
        self.values |= {output: view for output, view in zip(node.outputs, views, strict=False) if view is not None}

    def fold(self, node: ONNXNode) -> bool:
        """Compute an operation that depends on constants and shapes alone; return whether it was one."""
        if node.kind in ("Shape", "Size") and node.takes(0) in self.values:
            view = self.values[node.takes(0)]
            shape = view.shape
            if any(extent is None and axis != view.samples for axis, extent in enumerate(shape)):
                raise Unsupported("asks for a shape that is free", code="shape")
            lengths = np.array([self.samples if axis == view.samples else e for axis, e in enumerate(shape)], np.int64)
            start, end = node.attributes.get("start") or 0, node.attributes.get("end")
            self.constants[node.outputs[0]] = lengths[start:end] if node.kind == "Shape" else lengths.prod()
            return True
        given = [self.constants.get(name) if name else None for name in node.inputs]
        if any(name and value is None for name, value in zip(node.inputs, given, strict=True)):
            return False
        found = fold(node, given, self.builder.room)
        if found is None:
            return False
        self.builder.spend(copied(node, found))
        self.constants[node.outputs[0]] = found
        return True

    def keep(self, node: ONNXNode, step: Step) -> None:
        """Keep an operation without an equivalent layer, with its constants."""
        name = step.name()
        given = [self.plain(value, node.title or node.kind) for value in node.inputs if value in self.values]
        held = {value: self.constants[value] for value in node.inputs if value in self.constants}
        plain = {key: value for key, value in node.attributes.items() if not isinstance(value, np.ndarray)}
        raw = {"class_name": node.kind, "module": self.foreign.source, "config": plain}
        views = self.builder.unknown(name, raw, given, max(len(node.outputs), 1))
        self.values |= {output: view for output, view in zip(node.outputs, views, strict=False) if output}
        self.builder.weights |= {f"{name}/{key}": value for key, value in held.items()}
