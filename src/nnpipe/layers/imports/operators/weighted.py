"""Operators with weights: dense layers, embeddings, normalisations, and recurrent layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nnpipe.layers.imports.channels_first import Unsupported, View
from nnpipe.layers.imports.operators.shapes import SHAPES
from nnpipe.layers.imports.step import Handler, Step
from nnpipe.layers.vocabulary import recurrent
from nnpipe.layers.vocabulary.activations import ActivationFunction
from nnpipe.layers.vocabulary.dense import Dense, Embedding
from nnpipe.layers.vocabulary.layer import Shape
from nnpipe.layers.vocabulary.normalisation import BatchNorm, GroupNorm, LayerNorm
from nnpipe.layers.vocabulary.wrappers import Bidirectional


def _handle_gemm(step: Step) -> View:
    step.only("transA", 0)
    kernel = step.constant(1, "B").astype(np.float64) * float(step.attribute("alpha", 1.0))
    kernel = kernel.T if step.attribute("transB", 0) else kernel
    bias = None
    if step.has(2):
        bias = step.constant(2, "C").astype(np.float64) * float(step.attribute("beta", 1.0))
        bias = np.broadcast_to(
            bias.reshape(-1) if bias.size in (1, kernel.shape[1]) else bias, kernel.shape[1:]
        )
    return add_dense(step, kernel, bias)


def _handle_matmul(step: Step) -> View:
    kernel = step.constant(1, "B")
    if kernel.ndim != 2:
        raise Unsupported(f"multiplies by a constant of {kernel.ndim} axes")
    return add_dense(step, kernel, None)


def add_dense(step: Step, kernel: np.ndarray, bias: np.ndarray | None) -> View:
    """Multiply by a matrix ``(into, units)`` along the last axis, and add a bias."""
    view = step.get_pending_view()
    if view.flat and view.pads is None and None not in view.axes[1:]:
        # A flattened image may keep the tensor's order if the rows of the matrix are reordered
        # instead.
        axes = sorted(range(1, len(view.order)), key=lambda axis: view.order[axis])
        whole = kernel.reshape(*(int(extent or 0) for extent in view.axes[1:]), kernel.shape[1])
        kernel = whole.transpose([*(axis - 1 for axis in axes), len(axes)]).reshape(kernel.shape)
        view = step.builder.apply_pending(replace(view, order=tuple(range(len(view.order)))))
    view = step.builder.apply_pending(view)
    last = len(view.order) - 1
    if view.order[last] != last:
        order = sorted(range(last), key=lambda axis: view.order[axis])
        view = step.builder.permute_axes(view, (*order, last))
    units = kernel.shape[1]
    layer = Dense(view.tensor, units, use_bias=bias is not None, name=step.name(1))
    return step.builder.put(
        view, layer, {"kernel": kernel, **({} if bias is None else {"bias": bias})}
    )


def _handle_gather(step: Step) -> Any:
    if not step.is_constant(0):
        return SHAPES["Select"](step)
    table, view = step.constant(0), step.view(1)
    if int(step.attribute("axis", 0)) or table.ndim != 2:
        raise Unsupported("looks up in another axis than the first of a matrix", "axis")
    if not view.dtype.startswith(("int", "uint")):
        raise Unsupported("looks up what are no integers")
    layer = Embedding(view.tensor, *table.shape, name=step.name(0))
    found = step.builder.add(layer, step.builder.own(view), weights={"embeddings": table})
    return View(layer, found, (*view.order, len(view.order)))


def _handle_batch_norm(step: Step) -> View:
    step.only("training_mode", 0)
    view = step.view()
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    weights = {name: step.constant(place, name) for place, name in enumerate(names, 1)}
    layer = BatchNorm(
        view.tensor,
        view.order[1],
        float(step.attribute("momentum", 0.9)),
        float(step.attribute("epsilon", 1e-5)),
        name=step.name(1),
    )
    return step.builder.put(view, layer, weights)


def _handle_layer_norm(step: Step) -> View:
    view = step.view()
    count = len(view.order)
    first = int(step.attribute("axis", -1)) % count
    if first < count - 1:
        view = step.builder.materialize(view)
    axes = tuple(view.order[axis] for axis in range(first, count))
    weights = {"gamma": step.constant(1, "Scale")}
    if step.has(2):
        weights["beta"] = step.constant(2, "B")
    layer = LayerNorm(
        view.tensor,
        axes[0] if len(axes) == 1 else axes,
        float(step.attribute("epsilon", 1e-5)),
        center=step.has(2),
        name=step.name(1),
    )
    return step.builder.put(view, layer, weights)


def _handle_group_norm(step: Step) -> View:
    view = step.builder.channels_last(step.view())
    channels = view.shape[1]
    groups = -1 if step.node.kind == "InstanceNormalization" else int(step.attribute("num_groups"))
    weights = {"gamma": step.constant(1, "scale"), "beta": step.constant(2, "bias")}
    if groups > 0 and channels and weights["gamma"].size == groups != channels:
        # Until version 21, scale and bias were given per group.
        weights = {name: np.repeat(value, channels // groups) for name, value in weights.items()}
    layer = GroupNorm(
        view.tensor, groups, epsilon=float(step.attribute("epsilon", 1e-5)), name=step.name(1)
    )
    return step.builder.put(view, layer, weights)


WEIGHTS: dict[str, Handler] = {
    "Gemm": _handle_gemm,
    "MatMul": _handle_matmul,
    "Gather": _handle_gather,
    "BatchNormalization": _handle_batch_norm,
    "LayerNormalization": _handle_layer_norm,
    "InstanceNormalization": _handle_group_norm,
    "GroupNormalization": _handle_group_norm,
}

# Positions of Keras's gates in ONNX: i, f, c, o in i, o, f, c; z, r, h have the same order.
_ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (0, 1, 2), "RNN": (0,)}
_CLASSES: dict[str, type[recurrent.Recurrent]] = {
    "LSTM": recurrent.LSTM,
    "GRU": recurrent.GRU,
    "RNN": recurrent.SimpleRNN,
}
_USUAL = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


def _handle_recurrent(step: Step) -> list[View | None]:
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
    function = _read_activation(step, kind, count)
    step.builder.check_real(step.view())
    view = step.builder.permute_axes(step.view(), (1, 0, 2))  # samples, steps, features
    wanted = [step.is_wanted(output) for output in range(3)]
    if direction == "reverse" and wanted[0]:
        raise Unsupported("gives every step backwards", "direction")
    if count == 2 and any(wanted[1:]):
        raise Unsupported("gives the last states of both directions", "direction")
    name = step.builder.name(step.node.title or kind)
    given: dict[str, Any] = {
        "use_bias": biases is not None,
        "return_sequences": wanted[0],
        "activation": function,
        **(
            {"reset_after": bool(step.attribute("linear_before_reset", 0))} if kind == "GRU" else {}
        ),
    }
    weights = [
        _convert_weights(kind, kernels[n], inner[n], None if biases is None else biases[n], given)
        for n in range(count)
    ]
    if count == 2:
        layer: Any = Bidirectional(view.tensor, _CLASSES[kind]((), units, **given), name=name)
        held = {
            f"{side}/{key}": v
            for side, one in zip(_list_direction_prefixes(layer, view), weights, strict=True)
            for key, v in one.items()
        }
    else:
        more: dict[str, Any] = {
            "return_state": any(wanted[1:]),
            "go_backwards": direction == "reverse",
            "name": name,
        }
        layer, held = _CLASSES[kind](view.tensor, units, **given, **more), weights[0]
    found = step.builder.add(layer, step.builder.own(view), weights=held)
    state: Shape = (found[0], units)
    results: list[View | None] = [None, None, None]
    if wanted[0]:
        steps = found[1]
        if steps is None:
            raise Unsupported("goes over a free number of steps", "X", "shape")
        results[0] = _reshape_output(step, layer, found, (steps, count, units), (1, 2, 0, 3))
    for place in (1, 2):
        if wanted[place]:
            results[place] = _reshape_output(step, layer[place], state, (1, units), (1, 0, 2))
    return results


def _reshape_output(
    step: Step, tensor: Any, own: Shape, rest: tuple[int, ...], order: tuple[int, ...]
) -> View:
    view = View(tensor, own, tuple(range(len(own))))
    return View(*step.builder.reshape(view, rest, f"{step.node.title or 'rnn'}_shape"), order)


def _list_direction_prefixes(layer: Any, view: View) -> list[str]:
    """Return the prefixes of the weights' names for both directions."""
    assert view.own is not None
    return list(
        dict.fromkeys(variable.name.rpartition("/")[0] for variable in layer.variables(view.own))
    )


def _read_activation(step: Step, kind: str, count: int) -> ActivationFunction:
    said = step.attribute("activations")
    names = tuple(said) if isinstance(said, tuple) else _USUAL[kind] * count
    if kind == "RNN" and set(names) == {"Relu"}:
        return ActivationFunction("relu")
    if tuple(str(name) for name in names) != _USUAL[kind] * count:
        raise Unsupported(f"has the activations {names}", "activations")
    return ActivationFunction("tanh")


def _convert_weights(
    kind: str, kernel: np.ndarray, inner: np.ndarray, bias: np.ndarray | None, given: dict[str, Any]
) -> dict[str, np.ndarray]:
    order = _ORDER[kind]

    def reorder_gates(array: np.ndarray) -> np.ndarray:
        parts = np.split(array, len(order))
        return np.concatenate([parts[place] for place in order])

    found = {"kernel": reorder_gates(kernel).T, "recurrent_kernel": reorder_gates(inner).T}
    if bias is not None:
        both = [reorder_gates(part) for part in np.split(bias, 2)]
        found["bias"] = np.stack(both) if given.get("reset_after") else both[0] + both[1]
    return found


RECURRENT: dict[str, Handler] = dict.fromkeys(_CLASSES, _handle_recurrent)
