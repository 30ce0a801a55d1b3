"""Sliding windows over spatial axes: their extents, and padding as in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nnpipe.layers.problems import Misfit
from nnpipe.layers.vocabulary.layer import Shape, TorchParts, require_static
from nnpipe.layers.vocabulary.weighted_layer import get_activation


def check_rank(shape: Shape, rank: int) -> None:
    """Raise ``Misfit`` unless a shape has a batch axis, ``rank`` spatial axes and an axis of
    channels.
    """
    if len(shape) != rank + 2:
        raise Misfit(f"takes {rank + 2} axes (samples, channels, {rank} spatial), not {shape}")


def get_spatial_extents(shape: Shape, data_format: str) -> tuple[int | None, ...]:
    """Return the spatial extents of a shape."""
    return shape[1:-1] if data_format == "channels_last" else shape[2:]


def get_channels(shape: Shape, data_format: str) -> int | None:
    """Return the number of channels of a shape."""
    return shape[-1] if data_format == "channels_last" else shape[1]


def join_shape(
    samples: int | None, extents: Sequence[int | None], count: int | None, data_format: str
) -> Shape:
    """Return the shape with this batch size, these extents and channels."""
    return (
        (samples, *extents, count) if data_format == "channels_last" else (samples, count, *extents)
    )


def count_window_positions(
    extent: int | None, size: int, stride: int, dilation: int, padding: str
) -> int | None:
    """Return the number of positions of a window; raise ``Misfit`` if it is longer than the
    axis.
    """
    if extent is None:
        return None
    reach = (size - 1) * dilation + 1
    if padding in ("same", "causal"):
        return -(-extent // stride)
    if extent < reach:
        raise Misfit(f"has a window of {reach}, longer than the axis of {extent}")
    return (extent - reach) // stride + 1


def compute_padding(
    extent: int, size: int, stride: int, dilation: int, padding: str
) -> tuple[int, int]:
    """Return the padding before and after an axis; of an odd number, TensorFlow puts more after
    it.
    """
    reach = (size - 1) * dilation + 1
    if padding == "valid":
        return 0, 0
    if padding == "causal":
        return reach - 1, 0
    # With a stride of 1 the padding does not depend on the extent, which may then be free.
    total = (
        reach - 1 if stride == 1 else max((-(-extent // stride) - 1) * stride + reach - extent, 0)
    )
    return total // 2, total - total // 2


def make_padder(
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    padding: str,
    fill: float = 0.0,
) -> Callable[[Any], Any]:
    """Return the function that pads a ``torch.Tensor`` with channels first for a window."""
    if padding == "valid":
        return lambda x: x

    def pad(x: Any) -> Any:
        import torch.nn.functional as F

        windows = zip(x.shape[2:], sizes, strides, dilations, strict=True)
        pads = [compute_padding(*window, padding) for window in windows]
        flat = [side for pair in reversed(pads) for side in pair]
        return F.pad(x, flat, value=fill) if any(flat) else x

    return pad


def move_channels_first(x: Any) -> Any:
    """Return a view of a ``torch.Tensor`` with the last axis moved to the second place."""
    return x.permute(0, x.ndim - 1, *range(1, x.ndim - 1))


def move_channels_last(x: Any) -> Any:
    """Return a view of a ``torch.Tensor`` with the second axis moved to the end."""
    return x.permute(0, *range(2, x.ndim), 1)


def with_channels_first(call: Callable[..., Any], data_format: str) -> Callable[..., Any]:
    """Return a function that applies ``call`` with channels first to tensors of either format.

    PyTorch's convolutions treat the moved tensors as its channels-last memory
    format, so that moving the axes between them costs nothing.
    """
    if data_format == "channels_first":
        return call
    return lambda module, x: move_channels_last(call(module, move_channels_first(x)))


def get_window_sizes(layer: Any) -> tuple[int, ...]:
    """Return the sizes of a layer's window."""
    return tuple(layer.kernel_size)


def compute_output_extents(layer: Any, shape: Shape) -> list[int | None]:
    """Return the spatial extents of a layer's output."""
    windows = zip(
        get_spatial_extents(shape, layer.data_format),
        layer.kernel_size,
        layer.strides,
        layer.dilation_rate,
        strict=True,
    )
    return [count_window_positions(*window, layer.padding) for window in windows]


def count_input_channels(layer: Any, shape: Shape) -> int:
    """Return the number of a layer's input channels; raise ``Misfit`` if the shape does not fit
    the layer.
    """
    check_rank(shape, layer.rank)
    return require_static(get_channels(shape, layer.data_format), "its input's channels")


def build_window_parts(layer: Any, core: Any, compute: Callable[[Any, Any], Any]) -> TorchParts:
    """Return the parts of a layer that pads, computes with its core (channels first), and
    applies its activation.
    """
    pad = make_padder(layer.kernel_size, layer.strides, layer.dilation_rate, layer.padding)
    activation = get_activation(layer)
    # After the axes are moved back, so that a softmax runs along the last axis, as in Keras.
    inner = with_channels_first(lambda module, x: compute(module.core, pad(x)), layer.data_format)
    return TorchParts(lambda module, x: activation(inner(module, x)), core)


def check_strides(layer: Any) -> Iterable[tuple[str, str]]:
    """Yield a fault if both strides and dilations are greater than 1, which Keras rejects."""
    if any(stride > 1 for stride in layer.strides) and any(
        rate > 1 for rate in layer.dilation_rate
    ):
        yield (
            "dilation_rate",
            f"{layer.dilation_rate} does not go together with strides of {layer.strides}",
        )


def get_torch_axes(rank: int) -> tuple[int, ...]:
    """Return the order of a kernel's axes in PyTorch."""
    # Keras stores the window first, then input and output channels; PyTorch stores output, input,
    # window. In transposed convolutions, both swap input and output.
    return (rank + 1, rank, *range(rank))
