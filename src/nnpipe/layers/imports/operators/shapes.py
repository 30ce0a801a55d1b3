"""Operators that rearrange values: reshape, transpose, concatenate, slice, pad, repeat."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from nnpipe.layers.imports.channels_first import Unsupported, View
from nnpipe.layers.imports.step import Handler, Step
from nnpipe.layers.vocabulary.pooling import MaxPool1d, MaxPool2d, MaxPool3d
from nnpipe.layers.vocabulary.reshaping import Concatenate, RepeatVector
from nnpipe.layers.vocabulary.resizing import UpSample1d, UpSample2d, UpSample3d

_UPSAMPLES = {1: UpSample1d, 2: UpSample2d, 3: UpSample3d}
_POOLS = {1: MaxPool1d, 2: MaxPool2d, 3: MaxPool3d}


def _handle_reshape(step: Step) -> View:
    target = [
        int(extent)
        for extent in (
            step.constant(1, "shape") if step.has(1) else np.array(step.attribute("shape"))
        ).reshape(-1)
    ]
    view = step.get_pending_view()
    shape = view.shape
    if not step.attribute("allowzero", 0):
        target = [
            (step.samples if not place else shape[place] or -1)
            if extent == 0 and place < len(shape)
            else extent
            for place, extent in enumerate(target)
        ]
    return reshape_view(step, view, target)


def reshape_view(step: Step, view: View, target: list[int]) -> View:
    """Return a view of another shape that keeps the batch axis."""
    shape = view.shape
    if view.samples and view.pads is None:
        return _reshape_around_batch(step, view, target)
    if not target or None in shape[1:]:
        raise Unsupported(
            f"gives the shape {target} to what is of the shape {shape}", "shape", "shape"
        )
    size, rest = math.prod(extent or 0 for extent in shape[1:]), target[1:]
    if -1 in rest:
        given = math.prod(extent for extent in rest if extent != -1)
        rest = [size // given if extent == -1 and given else extent for extent in rest]
    if (
        target[0] not in (-1, step.samples)
        or math.prod(rest) != size
        or any(extent < 0 for extent in rest)
    ):
        raise Unsupported(
            f"makes {target} of {shape}, which joins or parts samples", "shape", "shape"
        )
    if tuple(rest) == shape[1:]:
        return view
    if len(rest) == 1 and not view.flat:
        return replace(view, flat=True)
    if view.flat and view.pads is None and tuple(rest) == view.axes[1:]:
        return replace(view, flat=False)
    whole = step.builder.materialize(replace(view, flat=False))
    if tuple(rest) == step.builder.own(whole)[1:]:
        return whole
    tensor, own = step.builder.reshape(whole, tuple(rest), step.node.title or step.node.kind)
    return View(tensor, own, tuple(range(len(target))), view.dtype)


def _reshape_around_batch(step: Step, view: View, target: list[int]) -> View:
    """Reshape the axes before and after the batch axis separately."""
    shape, at = view.shape, view.samples
    rest = [extent for axis, extent in enumerate(shape) if axis != at]
    if target.count(-1) == 1 and math.prod(e for e in target if e != -1) == math.prod(
        e or 0 for e in rest
    ):
        target = [step.samples if extent == -1 else extent for extent in target]
    places = [place for place, extent in enumerate(target) if extent == step.samples]
    if None in rest or -1 in target or len(places) != 1:
        raise Unsupported(
            f"makes {target} of {shape}, which joins or parts samples", "shape", "shape"
        )
    (to,) = places
    before, after = (
        math.prod(e or 0 for e in shape[:at]),
        math.prod(e or 0 for e in shape[at + 1 :]),
    )
    if (before, after) != (math.prod(target[:to]), math.prod(target[to + 1 :])):
        raise Unsupported(
            f"makes {target} of {shape}, which joins or parts samples", "shape", "shape"
        )
    whole = step.builder.permute_axes(
        view, (at, *(axis for axis in range(len(shape)) if axis != at))
    )
    others = tuple(extent for place, extent in enumerate(target) if place != to)
    tensor, own = step.builder.reshape(whole, others, step.node.title or step.node.kind)
    order = tuple(0 if place == to else place + (place < to) for place in range(len(target)))
    return View(tensor, own, order, view.dtype)


def _handle_flatten(step: Step) -> View:
    view = step.get_pending_view()
    axis = int(step.attribute("axis", 1))
    if axis % max(len(view.shape), 1) != 1:
        raise Unsupported("joins samples, or leaves axes", "axis")
    return view if len(view.shape) == 2 or view.flat else replace(view, flat=True)


def _handle_squeeze(step: Step) -> View:
    view = step.get_pending_view()
    shape = view.shape
    axes = [axis % len(shape) for axis in step.read_integers("axes", 1)]
    axes = axes or [axis for axis, extent in enumerate(_get_lengths(step, view)) if extent == 1]
    if view.samples in axes or any(shape[axis] != 1 for axis in axes):
        raise Unsupported("leaves out an axis that is not of length 1", "axes", "shape")
    return reshape_view(
        step,
        view,
        [extent for axis, extent in enumerate(_get_lengths(step, view)) if axis not in axes],
    )


def _handle_unsqueeze(step: Step) -> View:
    view = step.get_pending_view()
    shape = _get_lengths(step, view)
    axes = step.read_integers("axes", 1)
    count = len(shape) + len(axes)
    for axis in sorted(axis % count for axis in axes):
        shape.insert(axis, 1)
    if view.samples == 0 and shape[0] != step.samples:
        raise Unsupported("puts an axis before that of samples", "axes")
    return reshape_view(step, view, shape)


def _get_lengths(step: Step, view: View) -> list[int]:
    """Return a shape with the placeholder of the batch size."""
    return [
        step.samples if axis == view.samples else extent or 0
        for axis, extent in enumerate(view.shape)
    ]


def _handle_transpose(step: Step) -> View:
    view = step.view()
    count = len(view.order)
    order = [int(axis) for axis in step.attribute("perm", tuple(reversed(range(count))))]
    if sorted(order) != list(range(count)):
        raise Unsupported("does not name each axis once", "perm")
    return replace(view, order=tuple(view.order[axis] for axis in order))


def _handle_concat(step: Step) -> View:
    views = [step.view(place) for place in range(len(step.node.inputs))]
    first = views[0]
    count = len(first.order)
    axis = int(step.attribute("axis", 1)) % count
    if any(len(view.order) != count for view in views) or axis == first.samples:
        raise Unsupported("joins samples, or tensors of different rank", "axis")
    order = tuple(first.order.index(place) for place in range(count))
    views = [step.builder.permute_axes(view, order) for view in views]
    layer = Concatenate([view.tensor for view in views], order.index(axis), name=step.name())
    found = step.builder.add(layer, *(step.builder.own(view) for view in views))
    return replace(views[0], tensor=layer, own=found)


def _handle_pad(step: Step) -> View:
    step.only("mode", "constant")
    pads = step.read_integers("pads", 1)
    fill = step.constant(2, "value").reshape(-1)[0] if step.has(2) else step.attribute("value", 0.0)
    view = step.view()
    count = len(view.order)
    axes = (
        [axis % count for axis in step.read_integers("axes", 3)]
        if step.has(3)
        else list(range(count))
    )
    if len(pads) != 2 * len(axes):
        raise Unsupported("does not say what to add to each axis", "pads")
    sides = dict(zip(axes, zip(pads[: len(axes)], pads[len(axes) :], strict=True), strict=True))
    return replace(
        view, pads=tuple(sides.get(axis, (0, 0)) for axis in range(count)), fill=float(fill)
    )


def _handle_slice(step: Step) -> View:
    view = step.view()
    shape = view.shape
    starts, ends = step.read_integers("starts", 1), step.read_integers("ends", 2)
    axes = step.read_integers("axes", 3, tuple(range(len(starts))))
    steps = step.read_integers("steps", 4, (1,) * len(starts))
    pads = [(0, 0)] * len(shape)
    strides = [1] * len(shape)
    for start, end, axis, stride in zip(
        starts, ends, (axis % len(shape) for axis in axes), steps, strict=True
    ):
        extent = shape[axis]
        if axis == view.samples and (start, stride) == (0, 1) and end >= step.samples:
            continue
        if stride < 1 or axis == view.samples or extent is None:
            raise Unsupported(
                "takes values backwards, some samples, or a part of a free axis", "steps"
            )
        begin, stop, _ = slice(start, end).indices(extent)
        if stop <= begin:
            raise Unsupported("leaves nothing", "ends", "shape")
        pads[axis], strides[axis] = (-begin, stop - extent), stride
    view = replace(view, pads=tuple(pads)) if any(map(any, pads)) else view
    return view if set(strides) == {1} else _apply_strides(step, view, strides)


def _apply_strides(step: Step, view: View, strides: list[int]) -> View:
    """Take every n-th value along some axes, by max pooling with windows of one value."""
    view, rest = _with_channel(step, view, strides, "steps")
    far = tuple(strides[axis] for axis in rest)
    return step.builder.put(view, _POOLS[len(far)](view.tensor, 1, far, name=step.name()))


def _with_channel(
    step: Step, view: View, changes: list[int], argument: str
) -> tuple[View, list[int]]:
    """Move an axis that does not change (by 1) to the end; return the other axes except the
    batch axis, in order.
    """
    view = step.builder.apply_pending(view)
    others = [axis for axis in range(len(changes)) if axis != view.samples]
    still = [axis for axis in others if changes[axis] == 1]
    if not still or len(changes) - 2 not in _POOLS:
        raise Unsupported("works along too many axes", argument)
    channel = max(still, key=lambda axis: view.order[axis])
    rest = sorted((axis for axis in others if axis != channel), key=lambda axis: view.order[axis])
    return step.builder.permute_axes(view, (view.samples, *rest, channel)), rest


def _handle_repeat_each(step: Step) -> View:
    """Repeat each value along an axis, as ``numpy.repeat`` does."""
    view = step.view()
    count, times = len(view.order), int(step.attribute("repeats"))
    axis = int(step.attribute("axis")) % count
    if axis == view.samples or times < 1:
        raise Unsupported("repeats samples", "axis")
    view, rest = _with_channel(
        step, view, [times if place == axis else 1 for place in range(count)], "axis"
    )
    sizes = tuple(times if place == axis else 1 for place in rest)
    return step.builder.put(view, _UPSAMPLES[len(sizes)](view.tensor, sizes, name=step.name()))


def _handle_select(step: Step) -> View:
    """Select one index of an axis, and drop the axis."""
    view = step.view()
    shape, place = view.shape, step.constant(1, "indices")
    axis = int(step.attribute("axis", 0)) % len(shape)
    extent = shape[axis]
    if place.size != 1 or axis == view.samples or extent is None:
        raise Unsupported("takes several places, some samples, or one of a free axis", "indices")
    index = int(place.reshape(-1)[0])
    index = index + extent if index < 0 else index
    if not 0 <= index < extent:
        raise Unsupported("takes a place that is not there", "indices", "shape")
    if extent > 1:
        pads = tuple(
            (-index, index + 1 - extent) if a == axis else (0, 0) for a in range(len(shape))
        )
        view = replace(view, pads=pads)
        view = step.builder.apply_pending(view) if view.samples else view
    return reshape_view(
        step, view, [e for a, e in enumerate(_get_lengths(step, view)) if a != axis or place.ndim]
    )


def _handle_tile(step: Step) -> View:
    view, repeats = step.view(), step.constant(1, "repeats").reshape(-1)
    return _repeat_vectors(step, view, [int(times) for times in repeats])


def _handle_expand(step: Step) -> View:
    view, wanted = step.view(), [int(extent) for extent in step.constant(1, "shape").reshape(-1)]
    shape = [step.samples, *(int(extent or 0) for extent in view.shape[1:])]
    if len(wanted) != len(shape):
        raise Unsupported("gives another number of axes", "shape")
    full = [max(extent, own) for extent, own in zip(wanted, shape, strict=True)]
    return _repeat_vectors(
        step, view, [a // b if b and a % b == 0 else 0 for a, b in zip(full, shape, strict=True)]
    )


def _repeat_vectors(step: Step, view: View, times: list[int]) -> View:
    if all(number == 1 for number in times):
        return view
    shape = view.shape
    if (
        len(shape) != 3
        or shape[1] != 1
        or shape[2] is None
        or times[0] != 1
        or times[2] != 1
        or times[1] < 1
    ):
        raise Unsupported("repeats other than vectors", "repeats")
    whole: Any = step.builder.materialize(reshape_view(step, view, [-1, shape[2]]))
    layer = RepeatVector(whole.tensor, times[1], name=step.name())
    return View(layer, step.builder.add(layer, step.builder.own(whole)), (0, 1, 2))


SHAPES: dict[str, Handler] = {
    "Reshape": _handle_reshape,
    "Flatten": _handle_flatten,
    "Squeeze": _handle_squeeze,
    "Unsqueeze": _handle_unsqueeze,
    "Transpose": _handle_transpose,
    "Concat": _handle_concat,
    "Pad": _handle_pad,
    "Slice": _handle_slice,
    "Select": _handle_select,
    "Tile": _handle_tile,
    "RepeatEach": _handle_repeat_each,
    "Expand": _handle_expand,
}
