"""Scales of activations in quantised PyTorch programs that XNNPACK, by which ExecuTorch computes, can load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnpipe.compilers._requantisation import widening
from nnpipe.compilers._torch_float_tensors import operator_kind

_WEIGHTED = ("linear", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")
_LIMITS = ("relu", "relu6", "hardtanh", "clamp")  # computed together with the operation before them


def widen_results(prepared: Any) -> None:
    """Increase the scales of results that are too small for XNNPACK, in a module that has seen its samples.

    Tensors that share an observer, such as those that a concatenation joins, keep sharing their scale.

    Parameters
    ----------
    prepared
        What ``prepare_pt2e`` returned.
    """
    modules = dict(prepared.named_modules())
    for node in prepared.graph.nodes:
        if operator_kind(node) not in _WEIGHTED:
            continue
        observers = [_observer(each, modules) for each in node.args[:2]] + [_of_result(node, modules)]
        if any(each is None for each in observers):
            continue
        taken, weight, given = map(_scale, observers)
        factor = widening(taken, weight, given)
        if factor > 1:
            scale, zero_point = observers[2].calculate_qparams()
            _fix(observers[2], (scale * factor, zero_point))


def _observer(node: Any, modules: Mapping[str, Any]) -> Any:
    """Return the observer whose result a node is, or none."""
    found = modules.get(str(node.target)) if getattr(node, "op", "") == "call_module" else None
    return found if hasattr(found, "calculate_qparams") else None


def _of_result(node: Any, modules: Mapping[str, Any]) -> Any:
    """Return the observer of an operation's result, or of the limits that are computed together with it."""
    for user in node.users:
        if (found := _observer(user, modules)) is not None:
            return found
        if operator_kind(user) in _LIMITS:
            return _of_result(user, modules)
    return None


def _scale(observer: Any) -> float:
    """Return the greatest scale of an observer, which then keeps it: a search in a histogram takes time."""
    found = observer.calculate_qparams()
    _fix(observer, found)
    return float(found[0].max())


def _fix(observer: Any, found: Any) -> None:
    observer.calculate_qparams = lambda: found
