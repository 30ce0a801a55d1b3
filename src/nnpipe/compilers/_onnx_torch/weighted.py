"""Operators with weights: products of matrices, convolutions and normalisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnpipe.compilers._onnx_torch.call import OperatorCall
from nnpipe.compilers._onnx_torch.late_functions import LateFunctions
from nnpipe.compilers._onnx_torch.windows import padding

Operator = Callable[[OperatorCall], Any]


def operators() -> Mapping[str, Operator]:
    """Return the operators by their names in ONNX."""
    torch = LateFunctions("torch")

    return {
        "MatMul": _product,
        "Gemm": _product_and_sum,
        "Einsum": lambda call: torch.einsum(call.attribute("equation"), *call.tensors()),
        "Conv": _convolution,
        "ConvTranspose": _transposed_convolution,
        "BatchNormalization": _batch_normalisation,
        "InstanceNormalization": _instance_normalisation,
        "LayerNormalization": _layer_normalisation,
        "GroupNormalization": _group_normalisation,
        "RMSNormalization": _rms_normalisation,
    }


def _product(call: OperatorCall) -> Any:
    """Return a product, and the sum with a bias that follows it."""
    import torch
    from torch.nn import functional as F

    weight = call.matrix(1)
    if weight is not None:
        return F.linear(call.tensor(0), weight, call.tensor(2) if len(call) > 2 else None)
    return torch.matmul(call.tensor(0), call.tensor(1))


def _product_and_sum(call: OperatorCall) -> Any:
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


def _by_rank(name: str, rank: int) -> Any:
    from torch.nn import functional as F

    return getattr(F, f"{name}{rank}d")


def _convolution(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    x, weight = call.tensor(0), call.tensor(1)
    rank = x.ndim - 2
    strides, dilations = (list(call.attribute(name, [1] * rank)) for name in ("strides", "dilations"))
    before, after = padding(call, x, list(weight.shape[2:]), strides, dilations)
    if before != after:
        x = F.pad(x, _around(before, after))
        before = [0] * rank
    return _by_rank("conv", rank)(x, weight, call.tensor(2), strides, before, dilations, call.attribute("group", 1))


def _around(before: Sequence[int], after: Sequence[int]) -> list[int]:
    return [side for pair in zip(reversed(before), reversed(after), strict=True) for side in pair]


def _transposed_convolution(call: OperatorCall) -> Any:
    x, weight = call.tensor(0), call.tensor(1)
    rank = x.ndim - 2
    if call.attribute("auto_pad", "NOTSET") != "NOTSET" or call.attribute("output_shape"):
        raise call.refuse("its size is given by auto_pad or output_shape")
    strides, dilations = (list(call.attribute(name, [1] * rank)) for name in ("strides", "dilations"))
    pads, more = list(call.attribute("pads", [0] * 2 * rank)), list(call.attribute("output_padding", [0] * rank))
    # What is cut off less at the end is output that is longer there.
    more = [extra + start - end for extra, start, end in zip(more, pads[:rank], pads[rank:], strict=True)]
    if any(extra < 0 or extra >= max(*pair) for extra, *pair in zip(more, strides, dilations, strict=True)):
        raise call.refuse("its padding differs too much between start and end")
    group = call.attribute("group", 1)
    return _by_rank("conv_transpose", rank)(
        x, weight, call.tensor(2), strides, pads[:rank], more, group, dilations
    )  # fmt: skip


def _batch_normalisation(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    if call.attribute("training_mode", 0):
        raise call.refuse("it is for training")
    x, scale, bias, mean, variance = (call.tensor(place) for place in range(5))
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, call.attribute("epsilon", 1e-5))


def _instance_normalisation(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    x, scale, bias = call.tensors()
    return F.instance_norm(x, None, None, scale, bias, True, 0.0, call.attribute("epsilon", 1e-5))


def _layer_normalisation(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    x, scale, bias = call.tensor(0), call.tensor(1), call.tensor(2)
    shape = list(x.shape[call.attribute("axis", -1) % x.ndim :])
    eps = call.attribute("epsilon", 1e-5)
    if list(scale.shape) == shape and (bias is None or list(bias.shape) == shape):
        return F.layer_norm(x, shape, scale, bias, eps)
    found = F.layer_norm(x, shape, None, None, eps) * scale
    return found if bias is None else found + bias


def _group_normalisation(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    x, scale, bias = call.tensors()
    groups = call.attribute("num_groups")
    if scale.shape[0] != x.shape[1]:  # up to version 20 there is one factor for each group
        scale, bias = (each.repeat_interleave(x.shape[1] // groups) for each in (scale, bias))
    return F.group_norm(x, groups, scale, bias, call.attribute("epsilon", 1e-5))


def _rms_normalisation(call: OperatorCall) -> Any:
    import torch

    x = call.tensor(0)
    axes = list(range(call.attribute("axis", -1) % x.ndim, x.ndim))
    mean = torch.mean(x * x, axes, keepdim=True)
    return x * torch.rsqrt(mean + call.attribute("epsilon", 1e-5)) * call.tensor(1)
