"""Recurrent operators, with the axis of steps before or after the batch axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnpipe.layers.imports.channels_first import Unsupported, View
from nnpipe.layers.imports.step import Handler, Step
from nnpipe.layers.vocabulary import recurrent
from nnpipe.layers.vocabulary.activations import ActivationFunction
from nnpipe.layers.vocabulary.layer import Shape
from nnpipe.layers.vocabulary.wrappers import Bidirectional

# Positions of Keras's gates in ONNX: i, f, c, o in i, o, f, c; z, r, h have the same order.
_ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (0, 1, 2), "RNN": (0,)}
_CLASSES: dict[str, type[recurrent.Recurrent]] = {
    "LSTM": recurrent.LSTM, "GRU": recurrent.GRU, "RNN": recurrent.SimpleRNN,
}  # fmt: skip
_USUAL = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


def _recurrent(step: Step) -> list[View | None]:
    kind = step.node.kind
    direction = str(step.attribute("direction", "forward"))
    if step.node.attributes.get("clip") is not None:
        raise Unsupported("clips, which no layer does", "clip")
    if step.attribute("input_forget", 0) or step.attribute("layout", 0):
        raise Unsupported("is of a form that no layer has", "layout")
    for place, what in ((4, "sequence_lens"), (7, "P")):
        if step.has(place) and step.constant(place, what).any():
            raise Unsupported(f"has {what}, which no layer has", what)
    for place, what in ((5, "initial_h"), (6, "initial_c")):
        if step.has(place) and step.constant(place, what).any():
            raise Unsupported(f"starts from {what} that is not zero", what)
    kernels, inner = step.constant(1, "W"), step.constant(2, "R")
    biases = step.constant(3, "B") if step.has(3) else None
    units, count = inner.shape[2], inner.shape[0]
    function = _function(step, kind, count)
    step.builder.check_real(step.view())
    view = step.builder.arranged(step.view(), (1, 0, 2))  # samples, steps, features
    wanted = [step.is_wanted(output) for output in range(3)]
    if direction == "reverse" and wanted[0]:
        raise Unsupported("gives every step backwards", "direction")
    if count == 2 and any(wanted[1:]):
        raise Unsupported("gives the last states of both directions", "direction")
    name = step.builder.name(step.node.title or kind)
    given: dict[str, Any] = {
        "use_bias": biases is not None, "return_sequences": wanted[0], "activation": function,
        **({"reset_after": bool(step.attribute("linear_before_reset", 0))} if kind == "GRU" else {}),
    }  # fmt: skip
    weights = [_weights(kind, kernels[n], inner[n], None if biases is None else biases[n], given) for n in range(count)]
    if count == 2:
        layer: Any = Bidirectional(view.tensor, _CLASSES[kind]((), units, **given), name=name)
        held = {
            f"{side}/{key}": v for side, one in zip(_sides(layer, view), weights, strict=True) for key, v in one.items()
        }
    else:
        more: dict[str, Any] = {"return_state": any(wanted[1:]), "go_backwards": direction == "reverse", "name": name}
        layer, held = _CLASSES[kind](view.tensor, units, **given, **more), weights[0]
    found = step.builder.add(layer, step.builder.own(view), weights=held)
    state: Shape = (found[0], units)
    results: list[View | None] = [None, None, None]
    if wanted[0]:
        steps = found[1]
        if steps is None:
            raise Unsupported("goes over a free number of steps", "X", "shape")
        results[0] = _shaped(step, layer, found, (steps, count, units), (1, 2, 0, 3))
    for place in (1, 2):
        if wanted[place]:
            results[place] = _shaped(step, layer[place], state, (1, units), (1, 0, 2))
    return results


def _shaped(step: Step, tensor: Any, own: Shape, rest: tuple[int, ...], order: tuple[int, ...]) -> View:
    view = View(tensor, own, tuple(range(len(own))))
    return View(*step.builder.reshape(view, rest, f"{step.node.title or 'rnn'}_shape"), order)


def _sides(layer: Any, view: View) -> list[str]:
    """Return the prefixes of the weights' names for both directions."""
    assert view.own is not None
    return list(dict.fromkeys(variable.name.rpartition("/")[0] for variable in layer.variables(view.own)))


def _function(step: Step, kind: str, count: int) -> ActivationFunction:
    said = step.attribute("activations")
    names = tuple(said) if isinstance(said, tuple) else _USUAL[kind] * count
    if kind == "RNN" and set(names) == {"Relu"}:
        return ActivationFunction("relu")
    if tuple(str(name) for name in names) != _USUAL[kind] * count:
        raise Unsupported(f"has the activations {names}", "activations")
    return ActivationFunction("tanh")


def _weights(
    kind: str, kernel: np.ndarray, inner: np.ndarray, bias: np.ndarray | None, given: dict[str, Any]
) -> dict[str, np.ndarray]:
    order = _ORDER[kind]

    def gates(array: np.ndarray) -> np.ndarray:
        parts = np.split(array, len(order))
        return np.concatenate([parts[place] for place in order])

    found = {"kernel": gates(kernel).T, "recurrent_kernel": gates(inner).T}
    if bias is not None:
        both = [gates(part) for part in np.split(bias, 2)]
        found["bias"] = np.stack(both) if given.get("reset_after") else both[0] + both[1]
    return found


RECURRENT: dict[str, Handler] = dict.fromkeys(_CLASSES, _recurrent)
