"""The table of all translated operators, and the activations among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from nnpipe.layers.imports.channels_first import Unsupported, View
from nnpipe.layers.imports.operators.shapes import SHAPES
from nnpipe.layers.imports.operators.weighted import RECURRENT, WEIGHTS
from nnpipe.layers.imports.operators.windows import CONVOLUTIONS, WINDOWS
from nnpipe.layers.imports.step import Handler, Step
from nnpipe.layers.vocabulary import activation_layers, reshaping
from nnpipe.layers.vocabulary.activations import HARD_SIGMOID_2
from nnpipe.layers.vocabulary.dropout import Dropout
from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.recurrent import Recurrent
from nnpipe.layers.vocabulary.reshaping import Rescaling
from nnpipe.layers.vocabulary.weighted_layer import Biased


def _make_merge_handler(cls: type[Layer]) -> Handler:
    def handle(step: Step) -> View:
        return merge(step, cls)

    return handle


def merge(step: Step, cls: type[Layer]) -> View:
    """Apply a layer that merges several tensors element by element."""
    count = len([name for name in step.node.inputs if name])
    views = [step.view(place) for place in range(count)]
    if count == 1:
        return views[0]
    for view in views:
        step.builder.check_real(view)
    first = views[0]
    if any(len(view.order) != len(first.order) for view in views):
        raise Unsupported("takes tensors of different rank")
    # The axes have the order of the first tensor.
    order = tuple(first.order.index(axis) for axis in range(len(first.order)))
    views = [step.builder.permute_axes(view, order) for view in views]
    layer = cls([view.tensor for view in views], name=step.name())
    found = step.builder.add(layer, *(step.builder.own(view) for view in views))
    return replace(views[0], tensor=layer, own=found)


def _make_arithmetic_handler(kind: str) -> Handler:
    """Return the handler of Add, Sub, Mul or Div; either side may be a constant."""

    def handle(step: Step) -> View:
        pair: dict[str, type[Layer]] = {
            "Add": reshaping.Add,
            "Sub": reshaping.Subtract,
            "Mul": reshaping.Multiply,
        }
        if not step.is_constant(0) and not step.is_constant(1):
            if kind == "Div":
                raise Unsupported("divides by what is computed", code="unknown-layer")
            return merge(step, pair[kind])
        place = 0 if step.is_constant(1) else 1
        number = step.constant(1 - place).astype(np.float64)
        if kind == "Div" and place == 1:
            raise Unsupported("divides a constant", code="unknown-layer")
        if kind == "Div":
            if not number.all():
                raise Unsupported("divides by 0")
            return _apply_affine(step, place, 1 / number, np.zeros(()))
        if kind == "Mul":
            return _apply_affine(step, place, number, np.zeros(()))
        if kind == "Sub" and place == 1:
            return _apply_affine(step, place, -np.ones(()), number)
        return _apply_affine(step, place, np.ones(()), -number if kind == "Sub" else number)

    return handle


def _apply_affine(step: Step, place: int, scale: np.ndarray, offset: np.ndarray) -> View:
    """Multiply by a constant and add one; each is a scalar or a vector along one axis."""
    view = step.view(place)
    if max(scale.ndim, offset.ndim) > len(view.order):
        raise Unsupported("has a constant of more axes than what it is for")
    if scale.size == offset.size == 1:
        factor, addend = float(scale.reshape(-1)[0]), float(offset.reshape(-1)[0])
        return step.builder.put(view, Rescaling(view.tensor, factor, addend, name=step.name()))
    number = scale if scale.size > 1 else offset
    count = len(view.order)
    shape = (1,) * (count - number.ndim) + number.shape
    wide = [axis for axis, extent in enumerate(shape) if extent > 1]
    if len(wide) != 1 or wide[0] == 0 or view.shape[wide[0]] != shape[wide[0]]:
        raise Unsupported(
            f"has a constant of the shape {number.shape}, which belongs to no single axis"
        )
    (axis,) = wide
    only_adds = scale.size == 1 and float(scale.reshape(-1)[0]) == 1
    fused = _with_bias(step, place, view, axis, offset) if only_adds else None
    if fused is not None:
        return fused
    view = step.builder.permute_axes(view, (*(a for a in range(count) if a != axis), axis))
    step.builder.reserve_values(8 * number.size)  # a Python number takes that much more memory
    given = [
        float(a.reshape(-1)[0]) if a.size == 1 else tuple(map(float, a.reshape(-1)))
        for a in (scale, offset)
    ]
    return step.builder.put(view, Rescaling(view.tensor, given[0], given[1], name=step.name()))


def _with_bias(step: Step, place: int, view: View, axis: int, offset: np.ndarray) -> View | None:
    """Turn a constant that is added to each channel into the bias of the layer before, if that
    has none yet.
    """
    layer = view.tensor
    if not isinstance(layer, Biased) or isinstance(layer, Recurrent) or layer.use_bias:
        return None
    if view.order[axis] != len(view.order) - 1 or not step.is_first(place, layer):
        return None
    biased = replace(layer, use_bias=True)
    step.builder.weights[f"{layer.name}/bias"] = np.ascontiguousarray(
        offset.reshape(-1), np.float32
    )
    return replace(view, tensor=biased)


ARITHMETIC: dict[str, Handler] = {
    **{kind: _make_arithmetic_handler(kind) for kind in ("Add", "Sub", "Mul", "Div")},
    **{
        kind: _make_merge_handler(cls)
        for kind, cls in {
            "Sum": reshaping.Add,
            "Mean": reshaping.Average,
            "Max": reshaping.Maximum,
            "Min": reshaping.Minimum,
        }.items()
    },
}

# -- activations ----------------------------------------------------------------------------------


def _make_activation_handler(name: str) -> Handler:
    def handle(step: Step) -> View:
        view = step.view()
        return step.builder.put(
            view, activation_layers.Activation(view.tensor, name, name=step.name())
        )

    return handle


def _handle_leaky_relu(step: Step) -> View:
    view = step.view()
    slope = float(step.attribute("alpha", 0.01))
    return step.builder.put(view, activation_layers.LeakyReLU(view.tensor, slope, name=step.name()))


def _handle_elu(step: Step) -> View:
    view = step.view()
    slope = float(step.attribute("alpha", 1.0))
    return step.builder.put(view, activation_layers.ELU(view.tensor, slope, name=step.name()))


def _handle_relu(step: Step) -> View:
    view = step.view()
    return step.builder.put(view, activation_layers.ReLU(view.tensor, name=step.name()))


def _handle_selu(step: Step) -> View:
    for name, usual in (("alpha", 1.67326), ("gamma", 1.0507)):
        if not math.isclose(float(step.attribute(name, usual)), usual, rel_tol=1e-4):
            raise Unsupported("is not the usual SELU", name)
    return _make_activation_handler("selu")(step)  # type: ignore[return-value]


def _handle_hard_sigmoid(step: Step) -> View:
    slope, offset = float(step.attribute("alpha", 0.2)), float(step.attribute("beta", 0.5))
    for name, known in (("hard_sigmoid", 1 / 6), (HARD_SIGMOID_2, 0.2)):
        if math.isclose(slope, known, rel_tol=1e-5) and offset == 0.5:
            return _make_activation_handler(name)(step)  # type: ignore[return-value]
    raise Unsupported(f"has the slope {slope:g}, which no layer has", "alpha")


def _handle_gelu(step: Step) -> View:
    step.only("approximate", "none")
    return _make_activation_handler("gelu")(step)  # type: ignore[return-value]


def _handle_clip(step: Step) -> View:
    view = step.view()
    least, most = (_read_bound(step, name, place) for name, place in (("min", 1), ("max", 2)))
    if least == 0 and most is None:
        return step.builder.put(view, activation_layers.ReLU(view.tensor, name=step.name()))
    if least == 0 and most is not None and most > 0:
        return step.builder.put(view, activation_layers.ReLU(view.tensor, most, name=step.name()))
    if (least, most) == (-1, 1):
        return _make_activation_handler("hard_tanh")(step)  # type: ignore[return-value]
    raise Unsupported(f"clips to {least} and {most}, which no layer does", "min")


def _read_bound(step: Step, name: str, place: int) -> float | None:
    found = step.constant(place, name).reshape(-1)[0] if step.has(place) else step.attribute(name)
    return None if found is None or abs(float(found)) > 3e38 else float(found)


def _handle_softmax(step: Step) -> View:
    view = step.view()
    axis = int(step.attribute("axis", -1 if step.opset >= 13 else 1)) % len(view.order)
    if step.opset < 13 and axis != len(view.order) - 1:
        # older versions flattened all axes from that one on
        raise Unsupported("goes over several axes", "axis")
    layer = activation_layers.Softmax(view.tensor, view.order[axis], name=step.name())
    return step.builder.put(view, layer)


def _handle_log_softmax(step: Step) -> View:
    view = step.view()
    count = len(view.order)
    axis = int(step.attribute("axis", -1 if step.opset >= 13 else 1)) % count
    if step.opset < 13 and axis != count - 1:
        raise Unsupported("goes over several axes", "axis")
    view = step.builder.permute_axes(view, (*(a for a in range(count) if a != axis), axis))
    return step.builder.put(
        view, activation_layers.Activation(view.tensor, "log_softmax", name=step.name())
    )


def _handle_prelu(step: Step) -> View:
    view, slope = step.view(), step.constant(1, "slope")
    own = step.builder.own(view)
    # PyTorch has one for each channel, unless channels are last
    if step.attribute("channels") and slope.size > 1:
        slope = slope.reshape(-1, *(1,) * (len(view.order) - 2))
    slope = slope.reshape((1,) * (len(view.order) - slope.ndim) + slope.shape)
    # In the order of the tensor's axes, without the batch axis.
    moved = np.transpose(slope, [view.order.index(axis) for axis in range(len(own))])
    if moved.shape[0] != 1:
        raise Unsupported("has a slope for each sample", "slope")
    shared = tuple(axis for axis in range(1, len(own)) if moved.shape[axis] == 1 and own[axis] != 1)
    layer = activation_layers.PReLU(view.tensor, shared_axes=shared or None, name=step.name(1))
    return step.builder.put(view, layer, {"alpha": moved[0]})


# -- the rest -------------------------------------------------------------------------------------


def _handle_dropout(step: Step) -> View:
    if step.has(2) and step.constant(2, "training_mode").any():
        raise Unsupported("is at work in inference, too", "training_mode")
    rate = (
        float(step.constant(1, "ratio").reshape(-1)[0])
        if step.has(1)
        else float(step.attribute("ratio", 0.5))
    )
    view = step.view()
    return step.builder.put(view, Dropout(view.tensor, rate, name=step.name()))


def _handle_cast(step: Step) -> View:
    view, wanted = step.view(), int(step.attribute("to", 1))
    if wanted in (1, 11):  # layers compute in single precision anyway
        return (
            view
            if view.dtype == "float32"
            else step.builder.convert_to_float32(view, step.node.title or "cast")
        )
    if wanted in (6, 7) and view.dtype in ("int32", "int64"):
        return view
    raise Unsupported("casts to what no layer computes in", "to")


HANDLERS: dict[str, Callable[[Step], Any]] = {
    **CONVOLUTIONS,
    **WINDOWS,
    **SHAPES,
    **ARITHMETIC,
    **WEIGHTS,
    **RECURRENT,
    "Relu": _handle_relu,
    "LeakyRelu": _handle_leaky_relu,
    "Elu": _handle_elu,
    "Selu": _handle_selu,
    "Gelu": _handle_gelu,
    "HardSigmoid": _handle_hard_sigmoid,
    "Clip": _handle_clip,
    "Softmax": _handle_softmax,
    "LogSoftmax": _handle_log_softmax,
    "PRelu": _handle_prelu,
    **{
        kind: _make_activation_handler(name)
        for kind, name in {
            "Sigmoid": "sigmoid",
            "Tanh": "tanh",
            "Softplus": "softplus",
            "Softsign": "softsign",
            "Exp": "exponential",
            "HardSwish": "hard_silu",
            "Mish": "mish",
            "Silu": "silu",
            "LogSigmoid": "log_sigmoid",
        }.items()
    },
    "Dropout": _handle_dropout,
    "Identity": lambda step: step.get_pending_view(),
    "Cast": _handle_cast,
}
"""The function that translates each operator; names that ONNX lacks are PyTorch's own."""
