"""Pooling, resizing, and the padding of windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnpipe.compilers._onnx_torch.call import OperatorCall, fixed

Operator = Callable[[OperatorCall], Any]


def operators() -> Mapping[str, Operator]:
    """Return the operators by their names in ONNX."""
    return {
        "MaxPool": _max_pool,
        "AveragePool": _average_pool,
        "GlobalAveragePool": lambda call: _over_space(call).mean(_axes(call), keepdim=True),
        "GlobalMaxPool": lambda call: _over_space(call).amax(_axes(call), keepdim=True),
        "Resize": _resize,
        "Upsample": _resize,
    }


def padding(
    call: OperatorCall, x: Any, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the padding at the start and at the end of each axis of space."""
    rank, kind = len(kernel), call.attribute("auto_pad", "NOTSET")
    if kind in ("NOTSET", "VALID"):
        pads = list(call.attribute("pads", [0] * 2 * rank)) if kind == "NOTSET" else [0] * 2 * rank
        return pads[:rank], pads[rank:]
    before, after = [], []
    for length, size, stride, dilation in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        length = fixed(length, "an axis of space")
        whole = max((-(-length // stride) - 1) * stride + (size - 1) * dilation + 1 - length, 0)
        small, great = whole // 2, whole - whole // 2
        before.append(small if kind == "SAME_UPPER" else great)
        after.append(great if kind == "SAME_UPPER" else small)
    return before, after


def _over_space(call: OperatorCall) -> Any:
    return call.tensor(0)


def _axes(call: OperatorCall) -> list[int]:
    return list(range(2, call.tensor(0).ndim))


def _pooling(call: OperatorCall) -> tuple[Any, list[int], list[int], list[int], list[int], list[int]]:
    x, kernel = call.tensor(0), list(call.attribute("kernel_shape"))
    strides, dilations = (list(call.attribute(name, [1] * len(kernel))) for name in ("strides", "dilations"))
    return x, kernel, strides, dilations, *padding(call, x, kernel, strides, dilations)


def _padded(x: Any, before: Sequence[int], after: Sequence[int], value: float) -> Any:
    from torch.nn import functional as F

    sides = [side for pair in zip(reversed(before), reversed(after), strict=True) for side in pair]
    return F.pad(x, sides, value=value)


def _max_pool(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    if len(call.node.outputs) > 1 and call.node.outputs[1]:
        raise call.refuse("its places of the greatest values are used")
    x, kernel, strides, dilations, before, after = _pooling(call)
    if before != after or any(2 * pad > size for pad, size in zip(before, kernel, strict=True)):
        x, before = _padded(x, before, after, float("-inf")), [0] * len(kernel)
    pool = getattr(F, f"max_pool{len(kernel)}d")
    return pool(x, kernel, strides, before, dilations, bool(call.attribute("ceil_mode", 0)))


def _average_pool(call: OperatorCall) -> Any:
    import torch
    from torch.nn import functional as F

    x, kernel, strides, dilations, before, after = _pooling(call)
    if set(dilations) != {1}:
        raise call.refuse("its window has gaps")
    pool, ceil = getattr(F, f"avg_pool{len(kernel)}d"), bool(call.attribute("ceil_mode", 0))
    whole = bool(call.attribute("count_include_pad", 0))
    if before == after and all(2 * pad <= size for pad, size in zip(before, kernel, strict=True)):
        return pool(x, kernel, strides, before, ceil, whole)
    found = pool(_padded(x, before, after, 0.0), kernel, strides, 0, ceil)
    if whole:
        return found
    ones = torch.ones([1, 1, *(fixed(length, "an axis of space") for length in x.shape[2:])])
    return found / pool(_padded(ones, before, after, 0.0), kernel, strides, 0, ceil)


def _resize(call: OperatorCall) -> Any:
    """Resize all axes of space, in the ways that PyTorch has too."""
    from torch.nn import functional as F

    x = call.tensor(0)
    old = call.node.kind == "Upsample" or call.opset < 11  # their only input after the tensor is the scales
    mode = call.attribute("mode", "nearest")
    where = "asymmetric" if old else call.attribute("coordinate_transformation_mode", "half_pixel")
    sizes = None if old else call.numbers(3)
    scales = call.numbers(1 if old else 2, "scales")
    if call.attribute("axes") or call.attribute("antialias", 0):
        raise call.refuse("it has axes or antialias")
    if sizes:
        target = sizes[2:]
    elif scales and scales[:2] == [1, 1]:
        target = [
            int(fixed(length, "an axis of space") * scale)
            for length, scale in zip(x.shape[2:], scales[2:], strict=True)
        ]
    else:
        raise call.refuse("it resizes samples or channels")
    whole = all(n % have == 0 for n, have in zip(target, x.shape[2:], strict=True))
    if mode == "nearest":
        floor = where == "asymmetric" and (old or call.attribute("nearest_mode", "round_prefer_floor") == "floor")
        if not (floor or (whole and where in ("half_pixel", "asymmetric", "pytorch_half_pixel"))):
            raise call.refuse(f"it takes the nearest values by {where}")
        if not floor and where == "asymmetric":
            raise call.refuse("it rounds places of nearest values")
        return F.interpolate(x, target, mode="nearest")
    if where not in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        raise call.refuse(f"it interpolates by {where}")
    if mode == "cubic" and abs(call.attribute("cubic_coeff_a", -0.75) + 0.75) > 1e-6:
        raise call.refuse("its cubic function is not PyTorch's")
    name = {"linear": {1: "linear", 2: "bilinear", 3: "trilinear"}[x.ndim - 2], "cubic": "bicubic"}[mode]
    return F.interpolate(x, target, mode=name, align_corners=where == "align_corners")
