"""Elementwise operators: arithmetic, comparisons, activations and types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from nnpipe.compilers._onnx_torch.call import TYPES, LateFunctions, OperatorCall

Operator = Callable[[OperatorCall], Any]


def build_operators() -> Mapping[str, Operator]:
    """Return the operators by their names in ONNX."""
    torch = LateFunctions("torch")
    F = LateFunctions("torch.nn.functional")  # its usual name

    def wrap_unary(function: Callable[[Any], Any]) -> Operator:
        return lambda call: function(call.tensor(0))

    def wrap_binary(function: Callable[[Any, Any], Any]) -> Operator:
        return lambda call: function(call.tensor(0), call.tensor(1))

    def wrap_variadic(function: Callable[[Any, Any], Any]) -> Operator:
        return lambda call: reduce(function, call.tensors())

    def wrap_activation(function: Callable[..., Any], **defaults: float) -> Operator:
        """Return an activation whose factors are attributes, in their order."""
        return lambda call: function(
            call.tensor(0), *(call.attribute(*named) for named in defaults.items())
        )

    same = (
        "abs",
        "neg",
        "exp",
        "log",
        "sqrt",
        "reciprocal",
        "floor",
        "ceil",
        "round",
        "sign",
        "erf",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "asinh",
        "acosh",
        "atanh",
        "tanh",
        "sigmoid",
        "relu",
    )
    return {
        **{name.capitalize(): wrap_unary(getattr(torch, name)) for name in same},
        "Not": wrap_unary(torch.logical_not),
        "IsNaN": wrap_unary(torch.isnan),
        "Identity": wrap_unary(lambda x: x),
        "Dropout": wrap_unary(lambda x: x),
        "Softplus": wrap_unary(F.softplus),
        "Softsign": wrap_unary(F.softsign),
        "HardSwish": wrap_unary(F.hardswish),
        "Mish": wrap_unary(F.mish),
        "Add": wrap_binary(torch.add),
        "Sub": wrap_binary(torch.sub),
        "Mul": wrap_binary(torch.mul),
        "Div": wrap_binary(_compute_quotient),
        "Equal": wrap_binary(torch.eq),
        "Greater": wrap_binary(torch.gt),
        "Less": wrap_binary(torch.lt),
        "GreaterOrEqual": wrap_binary(torch.ge),
        "LessOrEqual": wrap_binary(torch.le),
        "And": wrap_binary(torch.logical_and),
        "Or": wrap_binary(torch.logical_or),
        "Xor": wrap_binary(torch.logical_xor),
        "BitwiseAnd": wrap_binary(torch.bitwise_and),
        "BitwiseOr": wrap_binary(torch.bitwise_or),
        "Max": wrap_variadic(torch.maximum),
        "Min": wrap_variadic(torch.minimum),
        "Sum": wrap_variadic(torch.add),
        "Mean": lambda call: reduce(torch.add, call.tensors()) / len(call),
        "Where": lambda call: torch.where(*call.tensors()),
        "PRelu": wrap_binary(lambda x, slope: torch.where(x < 0, x * slope, x)),
        "Elu": wrap_activation(F.elu, alpha=1.0),
        "LeakyRelu": wrap_activation(F.leaky_relu, alpha=0.01),
        "Celu": wrap_activation(F.celu, alpha=1.0),
        "Pow": _apply_power,
        "Mod": _apply_mod,
        "Clip": _apply_clip,
        "Cast": _apply_cast,
        "CastLike": _apply_cast_like,
        "Gelu": _apply_gelu,
        "HardSigmoid": _apply_hard_sigmoid,
        "Selu": _apply_selu,
    }


def _compute_quotient(x: Any, y: Any) -> Any:
    import torch

    return torch.div(x, y) if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


def _apply_power(call: OperatorCall) -> Any:
    import torch

    base, exponent = call.tensor(0), call.get_known(1)
    if exponent is not None and exponent.size == 1 and exponent.dtype != object:
        number = exponent.reshape(-1)[0].item()
        return torch.pow(base, number).to(base.dtype)
    return torch.pow(base, call.tensor(1)).to(base.dtype)


def _apply_mod(call: OperatorCall) -> Any:
    import torch

    function = torch.fmod if call.attribute("fmod", 0) else torch.remainder
    return function(call.tensor(0), call.tensor(1))


def _apply_clip(call: OperatorCall) -> Any:
    import torch

    x = call.tensor(0)
    limits: list[Any] = []
    for place, name in ((1, "min"), (2, "max")):
        known = call.get_known(place)
        if call.has(place) and (known is None or known.dtype == object):
            raise call.make_refusal(f"its bound {name} is computed")
        limits.append(call.attribute(name) if known is None else known.reshape(-1)[0].item())
    return x if limits == [None, None] else torch.clamp(x, *limits)


def _apply_cast(call: OperatorCall) -> Any:
    import torch

    to = call.attribute("to")
    if to not in TYPES:
        raise call.make_refusal(
            f"it casts to the type with number {to}, which PyTorch programs here do not have"
        )
    return call.tensor(0).to(getattr(torch, TYPES[to]))


def _apply_cast_like(call: OperatorCall) -> Any:
    return call.tensor(0).to(call.tensor(1).dtype)


def _apply_gelu(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    return F.gelu(call.tensor(0), approximate=call.attribute("approximate", "none"))


def _apply_hard_sigmoid(call: OperatorCall) -> Any:
    import torch

    return torch.clamp(
        call.tensor(0) * call.attribute("alpha", 0.2) + call.attribute("beta", 0.5), 0.0, 1.0
    )


def _apply_selu(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    if any(name in call.node.attributes for name in ("alpha", "gamma")):
        raise call.make_refusal("it has factors of its own")
    return F.selu(call.tensor(0))


def build_reduction_operators() -> Mapping[str, Operator]:
    """Return the operators by their names in ONNX."""
    torch = LateFunctions("torch")

    def make_reduction(function: Callable[[Any, list[int], bool], Any]) -> Operator:
        def apply(call: OperatorCall) -> Any:
            x, axes = call.tensor(0), call.numbers(1, "axes")
            if not axes:
                if call.attribute("noop_with_empty_axes", 0):
                    return x
                axes = list(range(x.ndim))
            return function(x, axes, bool(call.attribute("keepdims", 1))) if x.ndim else x

        return apply

    def reduce_product(x: Any, axes: list[int], keep: bool) -> Any:
        for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
            x = torch.prod(x, axis, keepdim=keep)
        return x

    return {
        "ReduceSum": make_reduction(
            lambda x, axes, keep: torch.sum(x, axes, keepdim=keep, dtype=x.dtype)
        ),
        "ReduceMean": make_reduction(lambda x, axes, keep: torch.mean(x, axes, keepdim=keep)),
        "ReduceMax": make_reduction(lambda x, axes, keep: torch.amax(x, axes, keepdim=keep)),
        "ReduceMin": make_reduction(lambda x, axes, keep: torch.amin(x, axes, keepdim=keep)),
        "ReduceProd": make_reduction(reduce_product),
        "ReduceL1": make_reduction(
            lambda x, axes, keep: torch.sum(torch.abs(x), axes, keepdim=keep)
        ),
        "ReduceL2": make_reduction(
            lambda x, axes, keep: torch.sqrt(torch.sum(x * x, axes, keepdim=keep))
        ),
        "ReduceSumSquare": make_reduction(
            lambda x, axes, keep: torch.sum(x * x, axes, keepdim=keep)
        ),
        "ReduceLogSum": make_reduction(
            lambda x, axes, keep: torch.log(torch.sum(x, axes, keepdim=keep))
        ),
        "ReduceLogSumExp": make_reduction(
            lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep)
        ),
        "Softmax": lambda call: _apply_along_axis(call, torch.softmax),
        "LogSoftmax": lambda call: _apply_along_axis(call, torch.log_softmax),
        "ArgMax": lambda call: _apply_arg_extremum(call, torch.argmax),
        "ArgMin": lambda call: _apply_arg_extremum(call, torch.argmin),
        "CumSum": _apply_cumsum,
        "TopK": _apply_top_k,
    }


def _apply_along_axis(call: OperatorCall, function: Callable[..., Any]) -> Any:
    x = call.tensor(0)
    if call.opset >= 13:
        return function(x, dim=call.attribute("axis", -1))
    # older versions take all axes from this one on as one
    axis = call.attribute("axis", 1) % x.ndim
    if axis == x.ndim - 1:
        return function(x, dim=-1)
    return function(x.flatten(axis), dim=-1).reshape(x.shape)


def _apply_arg_extremum(call: OperatorCall, function: Callable[..., Any]) -> Any:
    if call.attribute("select_last_index", 0):
        raise call.make_refusal("it asks for the last of equal values")
    return function(
        call.tensor(0), call.attribute("axis", 0), keepdim=bool(call.attribute("keepdims", 1))
    )


def _apply_cumsum(call: OperatorCall) -> Any:
    import torch

    x, axis = call.tensor(0), int((call.numbers(1) or [0])[0])
    if call.attribute("reverse", 0):
        x = x.flip(axis)
    found = torch.cumsum(x, axis, dtype=x.dtype)
    if call.attribute("exclusive", 0):
        found = found - x
    return found.flip(axis) if call.attribute("reverse", 0) else found


def _apply_top_k(call: OperatorCall) -> Any:
    import torch

    count = (call.numbers(1, "k") or [1])[0]
    return tuple(
        torch.topk(
            call.tensor(0),
            count,
            call.attribute("axis", -1),
            bool(call.attribute("largest", 1)),
            bool(call.attribute("sorted", 1)),
        )
    )
