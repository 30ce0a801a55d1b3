"""GRU layers of ONNX models as products and sums, a few for each step, for compilers that do not know the layer.

The equations are those of the operator ``GRU`` in ONNX
(https://onnx.ai/onnx/operators/onnx__GRU.html), with its default activations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

_LONGEST = 512  # steps; each adds about 15 nodes for every direction
_DEFAULT = [b"Sigmoid", b"Tanh"]


def unroll(model: Any) -> Any:
    """Return an ``onnx.ModelProto`` with its GRU layers as other operations, where their number of steps is known.

    Layers with activations of their own, lengths that differ between samples, a limit on values, or weights that are
    computed stay as they are.
    """
    import onnx

    if not any(node.op_type == "GRU" for node in model.graph.node):
        return model
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        # Between layers, exporters compute shapes from shapes.
        for value in (*onnx.shape_inference.infer_shapes(model, data_prop=True).graph.value_info, *model.graph.input)
    }
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes: list[Any] = []
    replaced: list[list[str]] = []
    for node in model.graph.node:
        unrolled = _unrolled(node, shapes, held, model.graph.initializer) if node.op_type == "GRU" else None
        if unrolled is not None:
            replaced.append([name for name in node.input[1:4] if name])
        nodes += [node] if unrolled is None else unrolled
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input} | {value.name for value in model.graph.output}
    for name in {name for names in replaced for name in names} - used:
        model.graph.initializer.remove(held[name])
    return model


def _unrolled(node: Any, shapes: Mapping[str, list[int]], held: Mapping[str, Any], kept: Any) -> list[Any] | None:
    import onnx

    options = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    inputs = [*node.input, "", "", "", "", ""][:6]
    steps = (shapes.get(inputs[0]) or [0])[0]
    directions = {b"forward": [False], b"reverse": [True], b"bidirectional": [False, True]}[
        options.get("direction", b"forward")
    ]
    plain = options.get("activations", _DEFAULT * len(directions)) == _DEFAULT * len(directions)
    known = all(not name or name in held for name in inputs[1:4])
    if not plain or not known or inputs[4] or "clip" in options or options.get("layout") or not 0 < steps <= _LONGEST:
        return None
    kernel, recurrent, bias = (onnx.numpy_helper.to_array(held[name]) if name else None for name in inputs[1:4])
    assert kernel is not None
    assert recurrent is not None
    prefix = f"unrolled/{node.output[0] or node.output[1]}/"

    def constant(name: str, array: Any) -> str:
        kept.append(onnx.numpy_helper.from_array(np.array(array, order="C"), prefix + name))
        return prefix + name

    size = recurrent.shape[-1]
    bias = np.zeros((len(directions), 6 * size), kernel.dtype) if bias is None else bias
    nodes, wholes, lasts = [], [], []
    shared = {
        name: constant(name, array)
        for name, array in {
            "one": np.array(1, kernel.dtype), "start": np.array([0]), "axis": np.array([1]),
            "steps": np.full(steps, 1), "three": np.full(3, size), "two": np.full(2, size),
        }.items()
    }  # fmt: skip
    for number, backwards in enumerate(directions):
        of = f"{number}/"
        layer = _Direction(
            prefix + of, size, steps, backwards, bool(options.get("linear_before_reset", 0)),
            {
                "kernel": constant(of + "kernel", kernel[number].T),
                "recurrent": constant(of + "recurrent", recurrent[number, : 2 * size].T),
                "recurrent_new": constant(of + "recurrent_new", recurrent[number, 2 * size :].T),
                "bias": constant(of + "bias", bias[number, : 3 * size]),
                "recurrent_bias": constant(of + "recurrent_bias", bias[number, 3 * size : 5 * size]),
                "recurrent_bias_new": constant(of + "recurrent_bias_new", bias[number, 5 * size :]),
                **shared,
            },
        )  # fmt: skip
        initial = ""
        if inputs[5]:
            initial = f"{prefix}{of}initial"
            nodes.append(
                onnx.helper.make_node("Gather", [inputs[5], constant(of + "which", number)], [initial], axis=0)
            )
        made, whole, last = layer.nodes(inputs[0], initial)
        nodes += made
        wholes.append(whole)
        lasts.append(last)
    for parts, axis_of, output in ((wholes, 1, 0), (lasts, 0, 1)):
        if len(node.output) > output and node.output[output]:
            nodes.append(onnx.helper.make_node("Concat", parts, [node.output[output]], axis=axis_of))
    return nodes


class _Direction:
    """The nodes of one direction of one layer."""

    def __init__(
        self, prefix: str, size: int, steps: int, backwards: bool, reset_after: bool, weights: Mapping[str, str]
    ) -> None:
        self.prefix, self.size, self.steps, self.weights = prefix, size, steps, weights
        self.backwards, self.reset_after = backwards, reset_after
        self._made: list[Any] = []

    def nodes(self, x: str, initial: str) -> tuple[list[Any], str, str]:
        """Return the nodes, and the names of all states, ``(steps, 1, n, size)``, and of the last, ``(1, n, size)``."""
        w = self.weights
        given = self._one("Add", "given", self._one("MatMul", "product", x, w["kernel"]), w["bias"])
        split = [f"{self.prefix}given/{step}" for step in range(self.steps)]
        self._add("Split", [given, self.weights["steps"]], split, axis=0)
        state, states = initial, [""] * self.steps
        for step in self._order():
            now = self._one("Squeeze", f"{step}/given", split[step], w["start"])
            state = self._step(f"{step}/", now, state)
            states[step] = self._one("Unsqueeze", f"{step}/kept", state, w["start"])
        joined = f"{self.prefix}states"
        self._add("Concat", states, [joined], axis=0)
        whole = self._one("Unsqueeze", "whole", joined, w["axis"])
        return self._made, whole, states[self._order()[-1]]

    def _order(self) -> list[int]:
        steps = list(range(self.steps))
        return steps[::-1] if self.backwards else steps

    def _step(self, of: str, given: str, state: str) -> str:
        """Return the state after a step, from the input's part ``(n, 3 * size)`` and the state before, if any."""
        w, names = self.weights, [f"{self.prefix}{of}{name}" for name in ("update", "reset", "new")]
        self._add("Split", [given, w["three"]], names, axis=1)
        own = [f"{self.prefix}{of}own/{name}" for name in ("update", "reset")]
        self._add("Split", [self._of_state(of + "gates", state, ""), w["two"]], own, axis=-1)
        gates = [
            self._one("Add", f"{of}gate+/{n}", name, part)
            for n, (name, part) in enumerate(zip(names, own, strict=False))
        ]
        update, reset = (self._one("Sigmoid", f"{of}gate/{n}", gate) for n, gate in enumerate(gates))
        new = self._one("Tanh", of + "tanh", self._one("Add", of + "sum", names[2], self._recalled(of, reset, state)))
        rest = self._one("Mul", of + "rest", self._one("Sub", of + "1-", w["one"], update), new)
        return rest if not state else self._one("Add", of + "state", rest, self._one("Mul", of + "old", update, state))

    def _recalled(self, of: str, reset: str, state: str) -> str:
        """Return what the new state takes from the one before."""
        if self.reset_after:
            return self._one("Mul", of + "left", reset, self._of_state(of + "recalled", state, "_new"))
        left = self._one("Mul", of + "left", reset, state) if state else ""
        return self._of_state(of + "recalled", left, "_new")

    def _of_state(self, name: str, state: str, which: str) -> str:
        """Return the product with the state and the bias; without a state, which is 0 at first, the bias alone."""
        bias = self.weights[f"recurrent_bias{which}"]
        if not state:
            return bias
        return self._one("Add", f"{name}+", self._one("MatMul", name, state, self.weights[f"recurrent{which}"]), bias)

    def _one(self, kind: str, name: str, *inputs: str) -> str:
        output = f"{self.prefix}{name}"
        self._add(kind, inputs, [output])
        return output

    def _add(self, kind: str, inputs: Any, outputs: list[str], **attributes: int) -> None:
        import onnx

        self._made.append(onnx.helper.make_node(kind, list(inputs), outputs, **attributes))
