"""Fusion of operators that exporters split into several, before the translation."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from nnpipe.formats.onnx_nodes import ONNXNode


def put_together(nodes: Sequence[ONNXNode], constants: Mapping[str, np.ndarray]) -> list[ONNXNode]:
    """Return the operations with each ``x (1 + erf(x / sqrt 2)) / 2``, in any order of factors, fused to a ``Gelu``."""
    known = _Known(nodes, constants)
    made = {}
    for node in nodes:
        found = known.gelu(node) if node.kind == "Erf" else None
        if found is not None:
            x, last = found
            made[id(last)] = ONNXNode("Gelu", last.name, (x,), last.outputs, {})
    # The operations that were fused are no longer needed, and drop out.
    return [made.get(id(node), node) for node in nodes]


class _Known:
    def __init__(self, nodes: Sequence[ONNXNode], constants: Mapping[str, np.ndarray]) -> None:
        self.makers = {output: node for node in nodes for output in node.outputs if output}
        self.users: dict[str, list[ONNXNode]] = defaultdict(list)
        for node in nodes:
            for name in dict.fromkeys(node.inputs):
                self.users[name].append(node)
        self.constants = dict(constants)
        for node in nodes:
            value = node.attributes.get("value", node.attributes.get("value_float"))
            if node.kind == "Constant" and value is not None and node.outputs:
                self.constants[node.outputs[0]] = np.asarray(value)

    def gelu(self, erf: ONNXNode) -> tuple[str, ONNXNode] | None:
        """Return the input of the GELU around this ``Erf``, and the operation that gives its result, or ``None``."""
        before = self.makers.get(erf.takes(0))
        x = None if before is None else self.times(before, math.sqrt(0.5))
        plus = self.user(erf, "Add")
        if x is None or plus is None or not any(self.is_number(name, 1.0) for name in plus.inputs):
            return None
        first = self.user(plus, "Mul")
        if first is None:
            return None
        other = next((name for name in first.inputs if name != plus.outputs[0]), "")
        half = self.makers.get(other)
        if half is not None and self.times(half, 0.5) == x:
            return x, first
        last = self.user(first, "Mul", "Div")
        if last is None:
            return None
        if self.is_number(other, 0.5) and x in last.inputs and last.kind == "Mul":
            return x, last
        return (x, last) if other == x and self.times(last, 0.5) == first.outputs[0] else None

    def times(self, node: ONNXNode, factor: float) -> str | None:
        """Return the tensor that a node multiplies by ``factor``; ``None`` if it does something else."""
        if len(node.inputs) != 2:
            return None
        a, b = node.inputs
        if node.kind == "Mul":
            return b if self.is_number(a, factor) else a if self.is_number(b, factor) else None
        return a if node.kind == "Div" and self.is_number(b, 1 / factor) else None

    def user(self, node: ONNXNode, *kinds: str) -> ONNXNode | None:
        """Return the only operation that takes a result, if it is of one of these kinds."""
        users = self.users[node.outputs[0]] if node.outputs else []
        return users[0] if len(users) == 1 and users[0].kind in kinds and users[0].outputs else None

    def is_number(self, name: str, value: float) -> bool:
        held = self.constants.get(name)
        return held is not None and held.size == 1 and math.isclose(float(held.reshape(-1)[0]), value, rel_tol=1e-4)
