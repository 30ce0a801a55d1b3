"""Operators with weights: products of matrices, convolutions and normalisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnpipe.compilers._onnx_torch.call import LateFunctions, OperatorCall, require_fixed_length

Operator = Callable[[OperatorCall], Any]


def build_window_operators() -> Mapping[str, Operator]:
    """Return the operators by their names in ONNX."""
    return {
        "MaxPool": _apply_max_pool,
        "AveragePool": _apply_average_pool,
        "GlobalAveragePool": lambda call: _get_image(call).mean(
            _list_spatial_axes(call), keepdim=True
        ),
        "GlobalMaxPool": lambda call: _get_image(call).amax(_list_spatial_axes(call), keepdim=True),
        "Resize": _apply_resize,
        "Upsample": _apply_resize,
    }


def compute_padding(
    call: OperatorCall,
    x: Any,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Return the padding at the start and at the end of each axis of space."""
    rank, kind = len(kernel), call.attribute("auto_pad", "NOTSET")
    if kind in ("NOTSET", "VALID"):
        pads = list(call.attribute("pads", [0] * 2 * rank)) if kind == "NOTSET" else [0] * 2 * rank
        return pads[:rank], pads[rank:]
    before, after = [], []
    for length, size, stride, dilation in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        length = require_fixed_length(length, "an axis of space")
        whole = max((-(-length // stride) - 1) * stride + (size - 1) * dilation + 1 - length, 0)
        small, great = whole // 2, whole - whole // 2
        before.append(small if kind == "SAME_UPPER" else great)
        after.append(great if kind == "SAME_UPPER" else small)
    return before, after


def _get_image(call: OperatorCall) -> Any:
    return call.tensor(0)


def _list_spatial_axes(call: OperatorCall) -> list[int]:
    return list(range(2, call.tensor(0).ndim))


def _read_pooling(
    call: OperatorCall,
) -> tuple[Any, list[int], list[int], list[int], list[int], list[int]]:
    x, kernel = call.tensor(0), list(call.attribute("kernel_shape"))
    strides, dilations = (
        list(call.attribute(name, [1] * len(kernel))) for name in ("strides", "dilations")
    )
    return x, kernel, strides, dilations, *compute_padding(call, x, kernel, strides, dilations)


def _pad_sides(x: Any, before: Sequence[int], after: Sequence[int], value: float) -> Any:
    from torch.nn import functional as F

    sides = [side for pair in zip(reversed(before), reversed(after), strict=True) for side in pair]
    return F.pad(x, sides, value=value)


def _apply_max_pool(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    if len(call.node.outputs) > 1 and call.node.outputs[1]:
        raise call.make_refusal("its places of the greatest values are used")
    x, kernel, strides, dilations, before, after = _read_pooling(call)
    if before != after or any(2 * pad > size for pad, size in zip(before, kernel, strict=True)):
        x, before = _pad_sides(x, before, after, float("-inf")), [0] * len(kernel)
    pool = getattr(F, f"max_pool{len(kernel)}d")
    return pool(x, kernel, strides, before, dilations, bool(call.attribute("ceil_mode", 0)))


def _apply_average_pool(call: OperatorCall) -> Any:
    import torch
    from torch.nn import functional as F

    x, kernel, strides, dilations, before, after = _read_pooling(call)
    if set(dilations) != {1}:
        raise call.make_refusal("its window has gaps")
    pool, ceil = getattr(F, f"avg_pool{len(kernel)}d"), bool(call.attribute("ceil_mode", 0))
    whole = bool(call.attribute("count_include_pad", 0))
    if before == after and all(2 * pad <= size for pad, size in zip(before, kernel, strict=True)):
        return pool(x, kernel, strides, before, ceil, whole)
    found = pool(_pad_sides(x, before, after, 0.0), kernel, strides, 0, ceil)
    if whole:
        return found
    ones = torch.ones(
        [1, 1, *(require_fixed_length(length, "an axis of space") for length in x.shape[2:])]
    )
    return found / pool(_pad_sides(ones, before, after, 0.0), kernel, strides, 0, ceil)


def _apply_resize(call: OperatorCall) -> Any:
    """Resize all axes of space, in the ways that PyTorch has too."""
    from torch.nn import functional as F

    x = call.tensor(0)
    # their only input after the tensor is the scales
    old = call.node.kind == "Upsample" or call.opset < 11
    mode = call.attribute("mode", "nearest")
    where = "asymmetric" if old else call.attribute("coordinate_transformation_mode", "half_pixel")
    sizes = None if old else call.numbers(3)
    scales = call.numbers(1 if old else 2, "scales")
    if call.attribute("axes") or call.attribute("antialias", 0):
        raise call.make_refusal("it has axes or antialias")
    if sizes:
        target = sizes[2:]
    elif scales and scales[:2] == [1, 1]:
        target = [
            int(require_fixed_length(length, "an axis of space") * scale)
            for length, scale in zip(x.shape[2:], scales[2:], strict=True)
        ]
    else:
        raise call.make_refusal("it resizes samples or channels")
    whole = all(n % have == 0 for n, have in zip(target, x.shape[2:], strict=True))
    if mode == "nearest":
        floor = where == "asymmetric" and (
            old or call.attribute("nearest_mode", "round_prefer_floor") == "floor"
        )
        if not (floor or (whole and where in ("half_pixel", "asymmetric", "pytorch_half_pixel"))):
            raise call.make_refusal(f"it takes the nearest values by {where}")
        if not floor and where == "asymmetric":
            raise call.make_refusal("it rounds places of nearest values")
        return F.interpolate(x, target, mode="nearest")
    if where not in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        raise call.make_refusal(f"it interpolates by {where}")
    if mode == "cubic" and abs(call.attribute("cubic_coeff_a", -0.75) + 0.75) > 1e-6:
        raise call.make_refusal("its cubic function is not PyTorch's")
    name = {"linear": {1: "linear", 2: "bilinear", 3: "trilinear"}[x.ndim - 2], "cubic": "bicubic"}[
        mode
    ]
    return F.interpolate(x, target, mode=name, align_corners=where == "align_corners")


def build_operators() -> Mapping[str, Operator]:
    """Return the operators by their names in ONNX."""
    torch = LateFunctions("torch")

    return {
        "MatMul": _apply_matmul,
        "Gemm": _apply_gemm,
        "Einsum": lambda call: torch.einsum(call.attribute("equation"), *call.tensors()),
        "Conv": _apply_convolution,
        "ConvTranspose": _apply_transposed_convolution,
        "BatchNormalization": _apply_batch_normalization,
        "InstanceNormalization": _apply_instance_normalization,
        "LayerNormalization": _apply_layer_normalization,
        "GroupNormalization": _apply_group_normalization,
        "RMSNormalization": _apply_rms_normalization,
    }


def _apply_matmul(call: OperatorCall) -> Any:
    """Return a product, and the sum with a bias that follows it."""
    import torch
    from torch.nn import functional as F

    weight = call.matrix(1)
    if weight is not None:
        return F.linear(call.tensor(0), weight, call.tensor(2) if len(call) > 2 else None)
    return torch.matmul(call.tensor(0), call.tensor(1))


def _apply_gemm(call: OperatorCall) -> Any:
    import torch
    from torch.nn import functional as F

    x = call.tensor(0)
    x = x.t() if call.attribute("transA", 0) else x
    alpha, beta, bias = call.attribute("alpha", 1.0), call.attribute("beta", 1.0), call.tensor(2)
    weight = call.tensor(1) if call.attribute("transB", 0) else call.matrix(1)
    if weight is not None and alpha == 1 and (bias is None or (beta == 1 and bias.ndim == 1)):
        return F.linear(x, weight, bias)
    other = call.tensor(1)
    found = torch.matmul(x, other.t() if call.attribute("transB", 0) else other)
    found = found if alpha == 1 else found * alpha
    return found if bias is None else found + (bias if beta == 1 else bias * beta)


def _get_function_of_rank(name: str, rank: int) -> Any:
    from torch.nn import functional as F

    return getattr(F, f"{name}{rank}d")


def _apply_convolution(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    x, weight = call.tensor(0), call.tensor(1)
    rank = x.ndim - 2
    strides, dilations = (
        list(call.attribute(name, [1] * rank)) for name in ("strides", "dilations")
    )
    before, after = compute_padding(call, x, list(weight.shape[2:]), strides, dilations)
    if before != after:
        x = F.pad(x, _interleave_padding(before, after))
        before = [0] * rank
    return _get_function_of_rank("conv", rank)(
        x, weight, call.tensor(2), strides, before, dilations, call.attribute("group", 1)
    )


def _interleave_padding(before: Sequence[int], after: Sequence[int]) -> list[int]:
    return [side for pair in zip(reversed(before), reversed(after), strict=True) for side in pair]


def _apply_transposed_convolution(call: OperatorCall) -> Any:
    x, weight = call.tensor(0), call.tensor(1)
    rank = x.ndim - 2
    if call.attribute("auto_pad", "NOTSET") != "NOTSET" or call.attribute("output_shape"):
        raise call.make_refusal("its size is given by auto_pad or output_shape")
    strides, dilations = (
        list(call.attribute(name, [1] * rank)) for name in ("strides", "dilations")
    )
    pads, more = (
        list(call.attribute("pads", [0] * 2 * rank)),
        list(call.attribute("output_padding", [0] * rank)),
    )
    # What is cut off less at the end is output that is longer there.
    more = [
        extra + start - end
        for extra, start, end in zip(more, pads[:rank], pads[rank:], strict=True)
    ]
    if any(
        extra < 0 or extra >= max(*pair)
        for extra, *pair in zip(more, strides, dilations, strict=True)
    ):
        raise call.make_refusal("its padding differs too much between start and end")
    group = call.attribute("group", 1)
    return _get_function_of_rank("conv_transpose", rank)(
        x, weight, call.tensor(2), strides, pads[:rank], more, group, dilations
    )


def _apply_batch_normalization(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    if call.attribute("training_mode", 0):
        raise call.make_refusal("it is for training")
    x, scale, bias, mean, variance = (call.tensor(place) for place in range(5))
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, call.attribute("epsilon", 1e-5))


def _apply_instance_normalization(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    x, scale, bias = call.tensors()
    return F.instance_norm(x, None, None, scale, bias, True, 0.0, call.attribute("epsilon", 1e-5))


def _apply_layer_normalization(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    x, scale, bias = call.tensor(0), call.tensor(1), call.tensor(2)
    shape = list(x.shape[call.attribute("axis", -1) % x.ndim :])
    eps = call.attribute("epsilon", 1e-5)
    if list(scale.shape) == shape and (bias is None or list(bias.shape) == shape):
        return F.layer_norm(x, shape, scale, bias, eps)
    found = F.layer_norm(x, shape, None, None, eps) * scale
    return found if bias is None else found + bias


def _apply_group_normalization(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    x, scale, bias = call.tensors()
    groups = call.attribute("num_groups")
    if scale.shape[0] != x.shape[1]:  # up to version 20 there is one factor for each group
        scale, bias = (each.repeat_interleave(x.shape[1] // groups) for each in (scale, bias))
    return F.group_norm(x, groups, scale, bias, call.attribute("epsilon", 1e-5))


def _apply_rms_normalization(call: OperatorCall) -> Any:
    import torch

    x = call.tensor(0)
    axes = list(range(call.attribute("axis", -1) % x.ndim, x.ndim))
    mean = torch.mean(x * x, axes, keepdim=True)
    return x * torch.rsqrt(mean + call.attribute("epsilon", 1e-5)) * call.tensor(1)
