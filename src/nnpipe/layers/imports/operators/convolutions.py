"""Convolutions and transposed convolutions."""

from __future__ import annotations

from typing import Any

from nnpipe.layers.imports.channels_first import Unsupported, View
from nnpipe.layers.imports.operators.windows import sizes_in, window
from nnpipe.layers.imports.step import Handler, Step
from nnpipe.layers.vocabulary import convolutions, depthwise
from nnpipe.layers.vocabulary.resizing import Crop1d, Crop2d, Crop3d

_CROPS = {1: Crop1d, 2: Crop2d, 3: Crop3d}
_TRANSPOSES = {1: convolutions.Conv1dTranspose, 2: convolutions.Conv2dTranspose, 3: convolutions.Conv3dTranspose}
_DEPTHWISE = {1: depthwise.DepthwiseConv1d, 2: depthwise.DepthwiseConv2d}
_CONVS = {1: convolutions.Conv1d, 2: convolutions.Conv2d, 3: convolutions.Conv3d}


def _conv(step: Step) -> View:
    kernel = step.constant(1, "W")
    rank = kernel.ndim - 2
    if rank not in _CONVS:
        raise Unsupported(f"has a window of {rank} axes", "kernel_shape")
    size = tuple(map(int, kernel.shape[2:]))
    if tuple(step.attribute("kernel_shape", size)) != size:
        raise Unsupported("says another window than its weights have", "kernel_shape", "weights")
    dilations = sizes_in(step, "dilations", rank)
    view, strides, padding = window(step, step.lazy(), size, dilations, 0.0)
    groups, into, out = int(step.attribute("group", 1)), view.shape[1], kernel.shape[0]
    biased = step.has(2)
    weights = {"bias": step.constant(2, "B")} if biased else {}
    given: dict[str, Any] = {"use_bias": biased, "name": step.name(1), "dilation_rate": dilations}
    if groups == into and kernel.shape[1] == 1 and groups > 1 and rank in _DEPTHWISE and out % groups == 0:
        # The kernels of each channel are adjacent: (channel x multiplier, 1, window).
        apart = kernel[:, 0].reshape(groups, out // groups, *size)
        weights["kernel"] = apart.transpose(*range(2, rank + 2), 0, 1)
        layer: Any = _DEPTHWISE[rank](view.tensor, size, strides, padding, out // groups, **given)
    else:
        weights["kernel"] = kernel.transpose(*range(2, rank + 2), 1, 0)
        layer = _CONVS[rank](view.tensor, out, size, strides, padding, groups=groups, **given)
    return step.builder.put(view, layer, weights)


def _conv_transpose(step: Step) -> View:
    kernel = step.constant(1, "W")
    rank = kernel.ndim - 2
    step.only("group", 1)
    step.only("auto_pad", "NOTSET", "VALID")
    if rank not in _TRANSPOSES or step.attribute("output_shape"):
        raise Unsupported("gives a shape that is said and not computed", "output_shape")
    size = tuple(map(int, kernel.shape[2:]))
    strides = sizes_in(step, "strides", rank)
    dilations = sizes_in(step, "dilations", rank)
    extra = tuple(int(pad) for pad in step.attribute("output_padding", (0,) * rank))
    said = [int(pad) for pad in step.attribute("pads", (0,) * (2 * rank))]
    view = step.builder.channels_last(step.view())
    biased = step.has(2)
    weights = {"kernel": kernel.transpose(*range(2, rank + 2), 1, 0)}
    if biased:
        weights["bias"] = step.constant(2, "B")
    layer = _TRANSPOSES[rank](
        view.tensor, kernel.shape[1], size, strides, "valid", extra, dilation_rate=dilations, use_bias=biased,
        name=step.name(1),
    )  # fmt: skip
    view = step.builder.put(view, layer, weights)
    crop = tuple(zip(said[:rank], said[rank:], strict=True))
    if any(map(any, crop)):
        view = step.builder.put(view, _CROPS[rank](view.tensor, crop, name=step.builder.name("crop")))
    return view


CONVOLUTIONS: dict[str, Handler] = {"Conv": _conv, "ConvTranspose": _conv_transpose}
