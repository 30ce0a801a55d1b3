"""Translation of PyTorch's recurrent operators to ONNX's: one operation for each of their layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnpipe.formats.onnx_nodes import ONNXNode

# ONNX's operator, the positions of its gates in PyTorch, and further attributes.
KINDS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "lstm": ("LSTM", (0, 3, 1, 2), {}),  # i, o, f, c of i, f, c, o
    "gru": ("GRU", (1, 0, 2), {"linear_before_reset": 1}),  # z, r, h of r, z, h
    "rnn_tanh": ("RNN", (0,), {}),
    "rnn_relu": ("RNN", (0,), {"activations": ("Relu",)}),
}


@dataclass
class Cells:
    """The operations and constants that replace a recurrent operator, and the names of its results."""

    nodes: list[ONNXNode] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    results: list[str] = field(default_factory=list)


def cells_of(
    kind: str,
    name: str,
    title: str,
    taken: str,
    weights: Sequence[np.ndarray],
    a: Mapping[str, Any],
    shape: Sequence[int],
) -> Cells:
    """Return the ONNX operations of a recurrent operator.

    Parameters
    ----------
    kind
        A key of :data:`KINDS`.
    name, title
        The base of its results' names, and the module that contains it.
    taken
        Name of the input; ``a["batch_first"]`` states the order of its first two axes.
    weights
        For each layer and direction, the weights of inputs and of states, and the biases of both.
    a
        The other arguments by name.
    shape
        Shape of the input.
    """
    made = Cells()
    both, biased = 2 if a["bidirectional"] else 1, bool(a["has_biases"])
    each = 4 if biased else 2
    operator, order, more = KINDS[kind]
    steps, samples = (shape[1], shape[0]) if a["batch_first"] else (shape[0], shape[1])

    def add(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> str:
        made.nodes.append(ONNXNode(kind, title, tuple(inputs), tuple(outputs), attributes))
        return outputs[0]

    def hold(label: str, value: np.ndarray) -> str:
        made.constants[f"{name}.{label}"] = value
        return f"{name}.{label}"

    def gates(array: np.ndarray) -> np.ndarray:
        parts = np.split(array, len(order))
        return np.concatenate([parts[place] for place in order])

    current = add("Transpose", [taken], [f"{name}.steps"], perm=(1, 0, 2)) if a["batch_first"] else taken
    states: list[list[str]] = [[], []]
    for number in range(a["num_layers"]):
        own = weights[number * both * each : (number + 1) * both * each]
        sides = [own[side * each : (side + 1) * each] for side in range(both)]
        given = [
            current,
            hold(f"W{number}", np.stack([gates(side[0]) for side in sides])),
            hold(f"R{number}", np.stack([gates(side[1]) for side in sides])),
        ]
        if biased:
            joined = [np.concatenate([gates(side[2]), gates(side[3])]) for side in sides]
            given.append(hold(f"B{number}", np.stack(joined)))
        outputs = [f"{name}.{number}.{part}" for part in ("y", "h", "c")]
        units = int(own[1].shape[1])
        direction = "bidirectional" if both == 2 else "forward"
        usual = {key: value * both if key == "activations" else value for key, value in more.items()}
        add(operator, given, outputs, hidden_size=units, direction=direction, **usual)
        for place, state in enumerate(outputs[1:]):
            states[place].append(state)
        turned = add("Transpose", outputs[:1], [f"{name}.{number}.turned"], perm=(0, 2, 1, 3))
        target = hold(f"shape{number}", np.array([steps, samples, both * units], np.int64))
        current = add("Reshape", [turned, target], [f"{name}.{number}.joined"], allowzero=1)
    if a["batch_first"]:
        current = add("Transpose", [current], [f"{name}.result"], perm=(1, 0, 2))
    made.results = [current]
    for place, names in enumerate(states):
        made.results.append(names[0] if len(names) == 1 else add("Concat", names, [f"{name}.state{place}"], axis=0))
    return made
