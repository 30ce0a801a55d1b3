"""Windows that move over spatial axes: how far they reach, and how TensorFlow pads for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.layer import Shape, TorchParts, known
from nnpipe.layers.vocabulary.weighted_layer import function_of


def check_rank(shape: Shape, rank: int) -> None:
    """Raise a misfit unless there are samples, channels and ``rank`` axes between."""
    if len(shape) != rank + 2:
        raise Misfit(f"takes {rank + 2} axes (samples, channels, {rank} spatial), not {shape}")


def spatial(shape: Shape, data_format: str) -> tuple[int | None, ...]:
    """Return the spatial extents of a shape."""
    return shape[1:-1] if data_format == "channels_last" else shape[2:]


def channels(shape: Shape, data_format: str) -> int | None:
    """Return the number of channels of a shape."""
    return shape[-1] if data_format == "channels_last" else shape[1]


def joined(samples: int | None, extents: Sequence[int | None], count: int | None, data_format: str) -> Shape:
    """Return the shape that has these extents and channels."""
    return (samples, *extents, count) if data_format == "channels_last" else (samples, count, *extents)


def slid(extent: int | None, size: int, stride: int, dilation: int, padding: str) -> int | None:
    """Return how many places a window takes; a misfit if it is longer than the axis."""
    if extent is None:
        return None
    reach = (size - 1) * dilation + 1
    if padding in ("same", "causal"):
        return -(-extent // stride)
    if extent < reach:
        raise Misfit(f"has a window of {reach}, longer than the axis of {extent}")
    return (extent - reach) // stride + 1


def margins(extent: int, size: int, stride: int, dilation: int, padding: str) -> tuple[int, int]:
    """Return what is padded before and after an axis; TensorFlow puts the odd one after it."""
    reach = (size - 1) * dilation + 1
    if padding == "valid":
        return 0, 0
    if padding == "causal":
        return reach - 1, 0
    # With a stride of one the padding does not depend on the extent, which may then be free.
    total = reach - 1 if stride == 1 else max((-(-extent // stride) - 1) * stride + reach - extent, 0)
    return total // 2, total - total // 2


def padder(
    sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: str, fill: float = 0.0
) -> Callable[[Any], Any]:
    """Return the function that pads a ``torch.Tensor`` with channels first for such a window."""
    if padding == "valid":
        return lambda x: x

    def pad(x: Any) -> Any:
        import torch.nn.functional as F

        windows = zip(x.shape[2:], sizes, strides, dilations, strict=True)
        pads = [margins(*window, padding) for window in windows]
        flat = [side for pair in reversed(pads) for side in pair]
        return F.pad(x, flat, value=fill) if any(flat) else x

    return pad


def channels_first(x: Any) -> Any:
    """Move the last axis of a ``torch.Tensor`` behind the first; nothing is copied."""
    return x.permute(0, x.ndim - 1, *range(1, x.ndim - 1))


def channels_last(x: Any) -> Any:
    """Move the second axis of a ``torch.Tensor`` to the end; nothing is copied."""
    return x.permute(0, *range(2, x.ndim), 1)


def with_channels_first(call: Callable[..., Any], data_format: str) -> Callable[..., Any]:
    """Return a call that computes on channels first for tensors of either format.

    Convolutions of PyTorch take what comes of the move as its channels-last
    memory format, so that it costs nothing between them.
    """
    if data_format == "channels_first":
        return call
    return lambda module, x: channels_last(call(module, channels_first(x)))


def sizes_of(layer: Any) -> tuple[int, ...]:
    """Return the window of a layer."""
    return tuple(layer.kernel_size)


def slid_extents(layer: Any, shape: Shape) -> list[int | None]:
    """Return the extents that a layer's window leaves."""
    windows = zip(spatial(shape, layer.data_format), layer.kernel_size, layer.strides, layer.dilation_rate, strict=True)
    return [slid(*window, layer.padding) for window in windows]


def channels_into(layer: Any, shape: Shape) -> int:
    """Return the channels that a layer gets, which its weights depend on; a misfit where the shape is none for it."""
    check_rank(shape, layer.rank)
    return known(channels(shape, layer.data_format), "its input's channels")


def sliding(layer: Any, core: Any, compute: Callable[[Any, Any], Any]) -> TorchParts:
    """Return a layer's parts that pads, computes with its core, channels first, and applies its activation."""
    pad = padder(layer.kernel_size, layer.strides, layer.dilation_rate, layer.padding)
    activation = function_of(layer)
    # Behind the move back, so that a softmax runs along the last axis as in Keras.
    inner = with_channels_first(lambda module, x: compute(module.core, pad(x)), layer.data_format)
    return TorchParts(lambda module, x: activation(inner(module, x)), core)


def stride_faults(layer: Any) -> Iterable[tuple[str, str]]:
    """Say where strides and dilations do not go together."""
    if any(stride > 1 for stride in layer.strides) and any(rate > 1 for rate in layer.dilation_rate):
        yield "dilation_rate", f"{layer.dilation_rate} does not go together with strides of {layer.strides}"


def torch_axes(rank: int) -> tuple[int, ...]:
    """Return the order of a kernel's axes in PyTorch."""
    # Keras has the window first, then channels in and out; PyTorch has out, in, window. Transposes swap in and out
    # in both.
    return (rank + 1, rank, *range(rank))
