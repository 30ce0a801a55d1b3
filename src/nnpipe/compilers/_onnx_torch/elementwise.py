"""Elementwise operators: arithmetic, comparisons, activations and types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from nnpipe.compilers._onnx_torch.call import TYPES, LateFunctions, OperatorCall

Operator = Callable[[OperatorCall], Any]


def operators() -> Mapping[str, Operator]:
    """Return the operators by their names in ONNX."""
    torch = LateFunctions("torch")
    F = LateFunctions("torch.nn.functional")  # its usual name

    def of_one(function: Callable[[Any], Any]) -> Operator:
        return lambda call: function(call.tensor(0))

    def of_two(function: Callable[[Any, Any], Any]) -> Operator:
        return lambda call: function(call.tensor(0), call.tensor(1))

    def of_many(function: Callable[[Any, Any], Any]) -> Operator:
        return lambda call: reduce(function, call.tensors())

    def activation(function: Callable[..., Any], **defaults: float) -> Operator:
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
        **{name.capitalize(): of_one(getattr(torch, name)) for name in same},
        "Not": of_one(torch.logical_not),
        "IsNaN": of_one(torch.isnan),
        "Identity": of_one(lambda x: x),
        "Dropout": of_one(lambda x: x),
        "Softplus": of_one(F.softplus),
        "Softsign": of_one(F.softsign),
        "HardSwish": of_one(F.hardswish),
        "Mish": of_one(F.mish),
        "Add": of_two(torch.add),
        "Sub": of_two(torch.sub),
        "Mul": of_two(torch.mul),
        "Div": of_two(_quotient),
        "Equal": of_two(torch.eq),
        "Greater": of_two(torch.gt),
        "Less": of_two(torch.lt),
        "GreaterOrEqual": of_two(torch.ge),
        "LessOrEqual": of_two(torch.le),
        "And": of_two(torch.logical_and),
        "Or": of_two(torch.logical_or),
        "Xor": of_two(torch.logical_xor),
        "BitwiseAnd": of_two(torch.bitwise_and),
        "BitwiseOr": of_two(torch.bitwise_or),
        "Max": of_many(torch.maximum),
        "Min": of_many(torch.minimum),
        "Sum": of_many(torch.add),
        "Mean": lambda call: reduce(torch.add, call.tensors()) / len(call),
        "Where": lambda call: torch.where(*call.tensors()),
        "PRelu": of_two(lambda x, slope: torch.where(x < 0, x * slope, x)),
        "Elu": activation(F.elu, alpha=1.0),
        "LeakyRelu": activation(F.leaky_relu, alpha=0.01),
        "Celu": activation(F.celu, alpha=1.0),
        "Pow": _power,
        "Mod": _remainder,
        "Clip": _clip,
        "Cast": _cast,
        "CastLike": _cast_like,
        "Gelu": _gelu,
        "HardSigmoid": _hard_sigmoid,
        "Selu": _selu,
    }


def _quotient(x: Any, y: Any) -> Any:
    import torch

    return torch.div(x, y) if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


def _power(call: OperatorCall) -> Any:
    import torch

    base, exponent = call.tensor(0), call.known(1)
    if exponent is not None and exponent.size == 1 and exponent.dtype != object:
        number = exponent.reshape(-1)[0].item()
        return torch.pow(base, number).to(base.dtype)
    return torch.pow(base, call.tensor(1)).to(base.dtype)


def _remainder(call: OperatorCall) -> Any:
    import torch

    function = torch.fmod if call.attribute("fmod", 0) else torch.remainder
    return function(call.tensor(0), call.tensor(1))


def _clip(call: OperatorCall) -> Any:
    import torch

    x = call.tensor(0)
    limits: list[Any] = []
    for place, name in ((1, "min"), (2, "max")):
        known = call.known(place)
        if call.has(place) and (known is None or known.dtype == object):
            raise call.refuse(f"its bound {name} is computed")
        limits.append(call.attribute(name) if known is None else known.reshape(-1)[0].item())
    return x if limits == [None, None] else torch.clamp(x, *limits)


def _cast(call: OperatorCall) -> Any:
    import torch

    to = call.attribute("to")
    if to not in TYPES:
        raise call.refuse(
            f"it casts to the type with number {to}, which PyTorch programs here do not have"
        )
    return call.tensor(0).to(getattr(torch, TYPES[to]))


def _cast_like(call: OperatorCall) -> Any:
    return call.tensor(0).to(call.tensor(1).dtype)


def _gelu(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    return F.gelu(call.tensor(0), approximate=call.attribute("approximate", "none"))


def _hard_sigmoid(call: OperatorCall) -> Any:
    import torch

    return torch.clamp(
        call.tensor(0) * call.attribute("alpha", 0.2) + call.attribute("beta", 0.5), 0.0, 1.0
    )


def _selu(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    if any(name in call.node.attributes for name in ("alpha", "gamma")):
        raise call.refuse("it has factors of its own")
    return F.selu(call.tensor(0))


def reduction_operators() -> Mapping[str, Operator]:
    """Return the operators by their names in ONNX."""
    torch = LateFunctions("torch")

    def reducing(function: Callable[[Any, list[int], bool], Any]) -> Operator:
        def operator(call: OperatorCall) -> Any:
            x, axes = call.tensor(0), call.numbers(1, "axes")
            if not axes:
                if call.attribute("noop_with_empty_axes", 0):
                    return x
                axes = list(range(x.ndim))
            return function(x, axes, bool(call.attribute("keepdims", 1))) if x.ndim else x

        return operator

    def product(x: Any, axes: list[int], keep: bool) -> Any:
        for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
            x = torch.prod(x, axis, keepdim=keep)
        return x

    return {
        "ReduceSum": reducing(
            lambda x, axes, keep: torch.sum(x, axes, keepdim=keep, dtype=x.dtype)
        ),
        "ReduceMean": reducing(lambda x, axes, keep: torch.mean(x, axes, keepdim=keep)),
        "ReduceMax": reducing(lambda x, axes, keep: torch.amax(x, axes, keepdim=keep)),
        "ReduceMin": reducing(lambda x, axes, keep: torch.amin(x, axes, keepdim=keep)),
        "ReduceProd": reducing(product),
        "ReduceL1": reducing(lambda x, axes, keep: torch.sum(torch.abs(x), axes, keepdim=keep)),
        "ReduceL2": reducing(
            lambda x, axes, keep: torch.sqrt(torch.sum(x * x, axes, keepdim=keep))
        ),
        "ReduceSumSquare": reducing(lambda x, axes, keep: torch.sum(x * x, axes, keepdim=keep)),
        "ReduceLogSum": reducing(lambda x, axes, keep: torch.log(torch.sum(x, axes, keepdim=keep))),
        "ReduceLogSumExp": reducing(lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep)),
        "Softmax": lambda call: _along(call, torch.softmax),
        "LogSoftmax": lambda call: _along(call, torch.log_softmax),
        "ArgMax": lambda call: _place(call, torch.argmax),
        "ArgMin": lambda call: _place(call, torch.argmin),
        "CumSum": _cumulated,
        "TopK": _greatest,
    }


def _along(call: OperatorCall, function: Callable[..., Any]) -> Any:
    x = call.tensor(0)
    if call.opset >= 13:
        return function(x, dim=call.attribute("axis", -1))
    # older versions take all axes from this one on as one
    axis = call.attribute("axis", 1) % x.ndim
    if axis == x.ndim - 1:
        return function(x, dim=-1)
    return function(x.flatten(axis), dim=-1).reshape(x.shape)


def _place(call: OperatorCall, function: Callable[..., Any]) -> Any:
    if call.attribute("select_last_index", 0):
        raise call.refuse("it asks for the last of equal values")
    return function(
        call.tensor(0), call.attribute("axis", 0), keepdim=bool(call.attribute("keepdims", 1))
    )


def _cumulated(call: OperatorCall) -> Any:
    import torch

    x, axis = call.tensor(0), int((call.numbers(1) or [0])[0])
    if call.attribute("reverse", 0):
        x = x.flip(axis)
    found = torch.cumsum(x, axis, dtype=x.dtype)
    if call.attribute("exclusive", 0):
        found = found - x
    return found.flip(axis) if call.attribute("reverse", 0) else found


def _greatest(call: OperatorCall) -> Any:
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
