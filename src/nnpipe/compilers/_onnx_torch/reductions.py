"""Operators that reduce axes, and those along one axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nnpipe.compilers._onnx_torch.call import OperatorCall
from nnpipe.compilers._onnx_torch.late_functions import LateFunctions

Operator = Callable[[OperatorCall], Any]


def operators() -> Mapping[str, Operator]:
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
        "ReduceSum": reducing(lambda x, axes, keep: torch.sum(x, axes, keepdim=keep, dtype=x.dtype)),
        "ReduceMean": reducing(lambda x, axes, keep: torch.mean(x, axes, keepdim=keep)),
        "ReduceMax": reducing(lambda x, axes, keep: torch.amax(x, axes, keepdim=keep)),
        "ReduceMin": reducing(lambda x, axes, keep: torch.amin(x, axes, keepdim=keep)),
        "ReduceProd": reducing(product),
        "ReduceL1": reducing(lambda x, axes, keep: torch.sum(torch.abs(x), axes, keepdim=keep)),
        "ReduceL2": reducing(lambda x, axes, keep: torch.sqrt(torch.sum(x * x, axes, keepdim=keep))),
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
    axis = call.attribute("axis", 1) % x.ndim  # older versions take all axes from this one on as one
    if axis == x.ndim - 1:
        return function(x, dim=-1)
    return function(x.flatten(axis), dim=-1).reshape(x.shape)


def _place(call: OperatorCall, function: Callable[..., Any]) -> Any:
    if call.attribute("select_last_index", 0):
        raise call.refuse("it asks for the last of equal values")
    return function(call.tensor(0), call.attribute("axis", 0), keepdim=bool(call.attribute("keepdims", 1)))


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
            call.tensor(0), count, call.attribute("axis", -1), bool(call.attribute("largest", 1)),
            bool(call.attribute("sorted", 1)),
        )
    )  # fmt: skip
