"""Arithmetic operators on several tensors, or on a tensor and constants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nnpipe.layers.imports.channels_first import Unsupported, View
from nnpipe.layers.imports.step import Handler, Step
from nnpipe.layers.vocabulary import merging
from nnpipe.layers.vocabulary.layer import Layer
from nnpipe.layers.vocabulary.recurrent import Recurrent
from nnpipe.layers.vocabulary.reshaping import Rescaling
from nnpipe.layers.vocabulary.weighted_layer import Biased


def _merged(cls: type[Layer]) -> Handler:
    def handler(step: Step) -> View:
        return merge(step, cls)

    return handler


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
    views = [step.builder.arranged(view, order) for view in views]
    layer = cls([view.tensor for view in views], name=step.name())
    found = step.builder.add(layer, *(step.builder.own(view) for view in views))
    return replace(views[0], tensor=layer, own=found)


def _arithmetic(kind: str) -> Handler:
    """Return the handler of Add, Sub, Mul or Div; either side may be a constant."""

    def handler(step: Step) -> View:
        pair: dict[str, type[Layer]] = {"Add": merging.Add, "Sub": merging.Subtract, "Mul": merging.Multiply}
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
            return _scaled(step, place, 1 / number, np.zeros(()))
        if kind == "Mul":
            return _scaled(step, place, number, np.zeros(()))
        if kind == "Sub" and place == 1:
            return _scaled(step, place, -np.ones(()), number)
        return _scaled(step, place, np.ones(()), -number if kind == "Sub" else number)

    return handler


def _scaled(step: Step, place: int, scale: np.ndarray, offset: np.ndarray) -> View:
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
        raise Unsupported(f"has a constant of the shape {number.shape}, which belongs to no single axis")
    (axis,) = wide
    only_adds = scale.size == 1 and float(scale.reshape(-1)[0]) == 1
    fused = _with_bias(step, place, view, axis, offset) if only_adds else None
    if fused is not None:
        return fused
    view = step.builder.arranged(view, (*(a for a in range(count) if a != axis), axis))
    step.builder.spend(8 * number.size)  # a Python number takes that much more memory
    given = [float(a.reshape(-1)[0]) if a.size == 1 else tuple(map(float, a.reshape(-1))) for a in (scale, offset)]
    return step.builder.put(view, Rescaling(view.tensor, given[0], given[1], name=step.name()))


def _with_bias(step: Step, place: int, view: View, axis: int, offset: np.ndarray) -> View | None:
    """Turn a constant that is added to each channel into the bias of the layer before, if that has none yet."""
    layer = view.tensor
    if not isinstance(layer, Biased) or isinstance(layer, Recurrent) or layer.use_bias:
        return None
    if view.order[axis] != len(view.order) - 1 or not step.is_first(place, layer):
        return None
    biased = replace(layer, use_bias=True)
    step.builder.weights[f"{layer.name}/bias"] = np.ascontiguousarray(offset.reshape(-1), np.float32)
    return replace(view, tensor=biased)


ARITHMETIC: dict[str, Handler] = {
    **{kind: _arithmetic(kind) for kind in ("Add", "Sub", "Mul", "Div")},
    **{
        kind: _merged(cls)
        for kind, cls in {
            "Sum": merging.Add, "Mean": merging.Average, "Max": merging.Maximum, "Min": merging.Minimum,
        }.items()
    },
}  # fmt: skip
