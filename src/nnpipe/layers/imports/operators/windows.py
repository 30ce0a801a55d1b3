"""Operators with windows: convolutions, padding, pooling, means over whole axes, and upsampling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nnpipe.layers.imports.channels_first import Unsupported, View
from nnpipe.layers.imports.step import Handler, Step
from nnpipe.layers.vocabulary import convolutions, pooling
from nnpipe.layers.vocabulary.activation_layers import Activation, ReLU, Softmax
from nnpipe.layers.vocabulary.dropout import Dropout
from nnpipe.layers.vocabulary.layer import Layer, as_tensors
from nnpipe.layers.vocabulary.reshaping import (
    Add,
    Average,
    Concatenate,
    Identity,
    Maximum,
    Multiply,
    Permute,
)
from nnpipe.layers.vocabulary.resizing import (
    Crop1d,
    Crop2d,
    Crop3d,
    UpSample1d,
    UpSample2d,
    UpSample3d,
)
from nnpipe.layers.vocabulary.windows import compute_padding

_MAX = {1: pooling.MaxPool1d, 2: pooling.MaxPool2d, 3: pooling.MaxPool3d}
_AVERAGE = {1: pooling.AvgPool1d, 2: pooling.AvgPool2d, 3: pooling.AvgPool3d}
_GLOBAL = {
    "mean": {1: pooling.GlobalAvgPool1d, 2: pooling.GlobalAvgPool2d, 3: pooling.GlobalAvgPool3d},
    "max": {1: pooling.GlobalMaxPool1d, 2: pooling.GlobalMaxPool2d, 3: pooling.GlobalMaxPool3d},
}
_UPSAMPLES = {1: UpSample1d, 2: UpSample2d, 3: UpSample3d}

Sizes = tuple[int, ...]
Side = tuple[int, int]
# Layers that keep non-negative values non-negative, and functions without negative results.
_KEEPING: tuple[type[Layer], ...] = (
    Permute,
    Identity,
    Dropout,
    Concatenate,
    Add,
    Multiply,
    Maximum,
    Average,
    *_MAX.values(),
    *_AVERAGE.values(),
    *(cls for kind in _GLOBAL.values() for cls in kind.values()),
)
_POSITIVE = frozenset(
    {"relu", "relu6", "sigmoid", "softmax", "softplus", "exponential", "hard_sigmoid"}
)
_LOOKED_AT = 64


def _resolve_padding(
    step: Step, view: View, size: Sizes, dilations: Sizes, fill: float
) -> tuple[View, Sizes, list[Side]]:
    """Return the view, the strides, and the padding before and after each axis."""
    rank = len(size)
    strides = read_sizes(step, "strides", rank)
    if len(view.order) != rank + 2 or len(strides) != rank or len(dilations) != rank:
        raise Unsupported(
            f"has a window of {rank} axes over {len(view.order) - 2}", "kernel_shape", "shape"
        )
    said = [int(pad) for pad in step.attribute("pads", (0,) * (2 * rank))]
    pads: list[Side] = list(zip(said[:rank], said[rank:], strict=True))
    auto = step.attribute("auto_pad", "NOTSET")
    windows = list(zip(view.axes[2:], size, strides, dilations, strict=True))
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = [_compute_same_padding(*window) for window in windows]
        pads = [pair[::-1] for pair in pads] if auto == "SAME_LOWER" else pads
    if auto == "VALID":
        pads = [(0, 0)] * rank
    if any(side < 0 for pair in pads for side in pair):
        raise Unsupported("has pads below zero", "pads")
    # Padding by the previous operation becomes part of the window's, if the fill value is the same.
    if (
        view.pads is not None
        and not view.flat
        and (view.fill == fill or not any(map(any, view.pads)))
    ):
        before = view.pads
        if not any(map(any, before[:2])) and all(side >= 0 for pair in before for side in pair):
            pads = [(a + c, b + d) for (a, b), (c, d) in zip(pads, before[2:], strict=True)]
            view = replace(view, pads=None, fill=0.0)
    view = step.builder.apply_pending(view)
    if step.attribute("ceil_mode", 0):
        pads = [
            (before, after + _compute_ceil_padding(extent, k, s, d, before + after))
            for (before, after), (extent, k, s, d) in zip(
                pads, zip(view.shape[2:], size, strides, dilations, strict=True), strict=True
            )
        ]
    return view, strides, pads


def resolve_window(
    step: Step, view: View, size: Sizes, dilations: Sizes, fill: float, same: bool = True
) -> tuple[View, Sizes, str]:
    """Return the view with channels last, the strides, and the padding as layers name it."""
    view, strides, pads = _resolve_padding(step, view, size, dilations, fill)
    if not any(map(any, pads)):
        return step.builder.channels_last(view), strides, "valid"
    if same and _is_same_padding(view, size, strides, dilations, pads):
        return step.builder.channels_last(view), strides, "same"
    if fill:
        raise Unsupported(f"pads by {pads}, which no pool does", "pads")
    padded = replace(view, pads=((0, 0), (0, 0), *pads))
    return step.builder.channels_last(padded), strides, "valid"


def _is_same_padding(
    view: View, size: Sizes, strides: Sizes, dilations: Sizes, pads: list[Side]
) -> bool:
    windows = list(zip(view.shape[2:], size, strides, dilations, strict=True))
    known = all(extent is not None or stride == 1 for extent, _, stride, _ in windows)
    return known and pads == [_compute_same_padding(*window) for window in windows]


def read_sizes(step: Step, name: str, rank: int) -> Sizes:
    """Return an attribute with one number per axis, 1 by default."""
    return tuple(int(extent) for extent in step.attribute(name, (1,) * rank))


def _compute_same_padding(
    extent: int | None, size: int, stride: int, dilation: int
) -> tuple[int, int]:
    if extent is None and stride != 1:
        raise Unsupported("pads an axis of free length", "auto_pad", "shape")
    return compute_padding(extent or 0, size, stride, dilation, "same")


def _compute_ceil_padding(
    extent: int | None, size: int, stride: int, dilation: int, added: int
) -> int:
    """Return the padding that the last window needs if it begins within the axis."""
    if extent is None:
        raise Unsupported("rounds the length of a free axis up", "ceil_mode", "shape")
    over = (extent + added - (size - 1) * dilation - 1) % stride
    return stride - over if over else 0


def _handle_pool(step: Step) -> View:
    size = tuple(int(extent) for extent in step.attribute("kernel_shape"))
    rank = len(size)
    if rank not in _MAX or len(step.node.outputs) > 1:
        raise Unsupported("gives places, too, or has a window of too many axes", "kernel_shape")
    step.only("dilations", (1,) * rank)
    step.only("storage_order", 0)
    step.only("divisor_override")  # which only PyTorch has
    if step.node.kind == "MaxPool":
        return _add_max_pool(step, size)
    if step.attribute("count_include_pad", 0):
        step.only("ceil_mode", 0)
        view, strides, padding = resolve_window(
            step, step.view(), size, (1,) * rank, 0.0, same=False
        )
    else:
        view, strides, padding = resolve_window(step, step.view(), size, (1,) * rank, np.nan)
    return step.builder.put(
        view, _AVERAGE[rank](view.tensor, size, strides, padding, name=step.name())
    )


def _add_max_pool(step: Step, size: Sizes) -> View:
    rank = len(size)
    ones = (1,) * rank
    view, strides, pads = _resolve_padding(step, step.get_pending_view(), size, ones, -np.inf)
    padding = "same" if any(map(any, pads)) else "valid"
    if padding == "valid" or _is_same_padding(view, size, strides, ones, pads):
        view = step.builder.channels_last(view)
        return step.builder.put(
            view, _MAX[rank](view.tensor, size, strides, padding, name=step.name())
        )
    if is_never_negative(view.tensor) and all(
        side < k for pair, k in zip(pads, size, strict=True) for side in pair
    ):
        # Each window contains a value of the input, and none is below the zeros of the padding.
        view = step.builder.channels_last(replace(view, pads=((0, 0), (0, 0), *pads)))
        return step.builder.put(view, _MAX[rank](view.tensor, size, strides, name=step.name()))
    # Axis by axis, each with its own padding; unusual padding by a stride of one, then every n-th
    # value.
    view = step.builder.channels_last(view)
    for axis, (extent, k, stride, pair) in enumerate(
        zip(view.shape[2:], size, strides, pads, strict=True)
    ):
        far = [stride]
        if any(pair) and (extent is None or pair != _compute_same_padding(extent, k, stride, 1)):
            if pair != _compute_same_padding(None, k, 1, 1):
                raise Unsupported(f"pads by {pads}, which no pool does", "pads")
            far = [1, stride]
        for number, step_size in enumerate(far):
            window = tuple(
                (k if not number else 1) if place == axis else 1 for place in range(rank)
            )
            apart = tuple(step_size if place == axis else 1 for place in range(rank))
            word = "same" if any(pair) and not number else "valid"
            view = step.builder.put(
                view, _MAX[rank](view.tensor, window, apart, word, name=step.name())
            )
    return view


def is_never_negative(tensor: Any) -> bool:
    """Return whether a tensor is known to have no negative values, from the layers before it."""
    waiting: list[Any] = [tensor]
    seen = 0
    while waiting:
        layer: Any = waiting.pop()
        seen += 1
        if isinstance(layer, Softmax) or (isinstance(layer, ReLU) and not layer.negative_slope):
            continue
        if isinstance(layer, Activation) and getattr(layer.activation, "name", "") in _POSITIVE:
            continue
        if not isinstance(layer, _KEEPING) or seen > _LOOKED_AT:
            return False
        waiting += as_tensors(layer.inputs)
    return True


def _make_global_pool_handler(reduction: str) -> Handler:
    def handle(step: Step) -> View:
        view = step.view()
        return _add_global_pool(step, view, list(range(2, len(view.order))), reduction, True)

    return handle


def _make_reduce_handler(reduction: str) -> Handler:
    def handle(step: Step) -> View:
        view = step.view()
        count = len(view.order)
        axes = sorted(axis % count for axis in step.read_integers("axes", 1)) or list(range(count))
        return _add_global_pool(step, view, axes, reduction, bool(step.attribute("keepdims", 1)))

    return handle


def _add_global_pool(step: Step, view: View, axes: list[int], reduction: str, kept: bool) -> View:
    rest = [axis for axis in range(1, len(view.order)) if axis not in axes]
    if 0 in axes or len(rest) != 1 or len(axes) not in _MAX:
        raise Unsupported("goes over other axes than all places of a channel", "axes")
    view = step.builder.permute_axes(view, (0, *axes, *rest))
    layer = _GLOBAL[reduction][len(axes)](view.tensor, keepdims=kept, name=step.name())
    found = step.builder.add(layer, step.builder.own(view))
    return replace(view, tensor=layer, own=found) if kept else View(layer, found, (0, 1))


def _handle_resize(step: Step) -> View:
    step.only("antialias", 0)
    view = step.view()
    old = step.node.kind == "Upsample" or step.opset < 11
    place = 1 if old else 2
    if step.has(place):
        factors = step.constant(place, "scales").reshape(-1)
    elif step.has(3) and not old:
        wanted = step.constant(3, "sizes").reshape(-1)
        factors = np.array(
            [n / (e or np.nan) for n, e in zip(wanted[1:], view.shape[1:], strict=True)]
        )
        factors = np.concatenate([[1.0], factors])
    else:
        factors = np.array(step.attribute("scales", ()))
    rank = len(view.order) - 2
    if (
        len(factors) != rank + 2
        or rank not in _UPSAMPLES
        or any(factors[:2] != 1)
        or any(factors % 1)
    ):
        raise Unsupported("makes no whole number of values of one", "scales")
    usual = "asymmetric" if old else "half_pixel"
    mode, place_of = (
        step.attribute("mode", "nearest"),
        step.attribute("coordinate_transformation_mode", usual),
    )
    view = step.builder.channels_last(view)
    more: dict[str, Any] = {}
    if mode == "nearest":
        rounded = step.attribute("nearest_mode", "floor" if old else "round_prefer_floor")
        plain = (place_of, rounded) in (
            ("asymmetric", "floor"),
            ("half_pixel", "round_prefer_floor"),
            ("pytorch_half_pixel", "round_prefer_floor"),
        )
        if not plain:
            raise Unsupported(f"takes the nearest value by {place_of}, {rounded}", "nearest_mode")
    elif mode == "linear" and rank == 2 and place_of in ("half_pixel", "pytorch_half_pixel"):
        more["interpolation"] = "bilinear"
    else:
        raise Unsupported(f"interpolates by {mode}, {place_of}", "mode")
    sizes = tuple(int(factor) for factor in factors[2:])
    return step.builder.put(view, _UPSAMPLES[rank](view.tensor, sizes, name=step.name(), **more))


WINDOWS: dict[str, Handler] = {
    "MaxPool": _handle_pool,
    "AveragePool": _handle_pool,
    "GlobalAveragePool": _make_global_pool_handler("mean"),
    "GlobalMaxPool": _make_global_pool_handler("max"),
    "ReduceMean": _make_reduce_handler("mean"),
    "ReduceMax": _make_reduce_handler("max"),
    "Resize": _handle_resize,
    "Upsample": _handle_resize,
}

_CROPS = {1: Crop1d, 2: Crop2d, 3: Crop3d}
_TRANSPOSES = {
    1: convolutions.Conv1dTranspose,
    2: convolutions.Conv2dTranspose,
    3: convolutions.Conv3dTranspose,
}
_DEPTHWISE = {1: convolutions.DepthwiseConv1d, 2: convolutions.DepthwiseConv2d}
_CONVS = {1: convolutions.Conv1d, 2: convolutions.Conv2d, 3: convolutions.Conv3d}


def _handle_conv(step: Step) -> View:
    kernel = step.constant(1, "W")
    rank = kernel.ndim - 2
    if rank not in _CONVS:
        raise Unsupported(f"has a window of {rank} axes", "kernel_shape")
    size = tuple(map(int, kernel.shape[2:]))
    if tuple(step.attribute("kernel_shape", size)) != size:
        raise Unsupported("says another window than its weights have", "kernel_shape", "weights")
    dilations = read_sizes(step, "dilations", rank)
    view, strides, padding = resolve_window(step, step.get_pending_view(), size, dilations, 0.0)
    groups, into, out = int(step.attribute("group", 1)), view.shape[1], kernel.shape[0]
    biased = step.has(2)
    weights = {"bias": step.constant(2, "B")} if biased else {}
    given: dict[str, Any] = {"use_bias": biased, "name": step.name(1), "dilation_rate": dilations}
    if (
        groups == into
        and kernel.shape[1] == 1
        and groups > 1
        and rank in _DEPTHWISE
        and out % groups == 0
    ):
        # The kernels of each channel are adjacent: (channel x multiplier, 1, window).
        apart = kernel[:, 0].reshape(groups, out // groups, *size)
        weights["kernel"] = apart.transpose(*range(2, rank + 2), 0, 1)
        layer: Any = _DEPTHWISE[rank](view.tensor, size, strides, padding, out // groups, **given)
    else:
        weights["kernel"] = kernel.transpose(*range(2, rank + 2), 1, 0)
        layer = _CONVS[rank](view.tensor, out, size, strides, padding, groups=groups, **given)
    return step.builder.put(view, layer, weights)


def _handle_conv_transpose(step: Step) -> View:
    kernel = step.constant(1, "W")
    rank = kernel.ndim - 2
    step.only("group", 1)
    step.only("auto_pad", "NOTSET", "VALID")
    if rank not in _TRANSPOSES or step.attribute("output_shape"):
        raise Unsupported("gives a shape that is said and not computed", "output_shape")
    size = tuple(map(int, kernel.shape[2:]))
    strides = read_sizes(step, "strides", rank)
    dilations = read_sizes(step, "dilations", rank)
    extra = tuple(int(pad) for pad in step.attribute("output_padding", (0,) * rank))
    said = [int(pad) for pad in step.attribute("pads", (0,) * (2 * rank))]
    view = step.builder.channels_last(step.view())
    biased = step.has(2)
    weights = {"kernel": kernel.transpose(*range(2, rank + 2), 1, 0)}
    if biased:
        weights["bias"] = step.constant(2, "B")
    layer = _TRANSPOSES[rank](
        view.tensor,
        kernel.shape[1],
        size,
        strides,
        "valid",
        extra,
        dilation_rate=dilations,
        use_bias=biased,
        name=step.name(1),
    )
    view = step.builder.put(view, layer, weights)
    crop = tuple(zip(said[:rank], said[rank:], strict=True))
    if any(map(any, crop)):
        view = step.builder.put(
            view, _CROPS[rank](view.tensor, crop, name=step.builder.name("crop"))
        )
    return view


CONVOLUTIONS: dict[str, Handler] = {"Conv": _handle_conv, "ConvTranspose": _handle_conv_transpose}
