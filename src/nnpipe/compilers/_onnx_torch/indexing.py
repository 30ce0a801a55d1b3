"""Operators that read and write elements by their place, and tensors made from lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnpipe.compilers._onnx_torch.call import OperatorCall

Operator = Callable[[OperatorCall], Any]


def operators() -> Mapping[str, Operator]:
    """Return the operators by their names in ONNX."""
    return {
        "Gather": _gather,
        "GatherElements": _gather_elements,
        "GatherND": _gather_nd,
        "ScatterND": _scatter_nd,
        "ScatterElements": _scatter_elements,
        "Range": _range,
        "ConstantOfShape": _filled,
        "OneHot": _one_hot,
    }


def _gather(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    axis, known = call.attribute("axis", 0), call.known(1)
    table = call.tensor(0)
    axis = axis % table.ndim
    if known is not None and known.ndim == 0 and known.dtype != object:
        return table.select(axis, int(known))
    places = call.tensor(1)
    if axis == 0 and table.ndim == 2 and table.is_floating_point() and call.known(0) is not None:
        return F.embedding(places, table)  # as PyTorch's exporter reads a table of vectors
    places = _counted(places, table.shape[axis], known)
    flat = table.index_select(axis, places.reshape(-1))
    return flat.reshape(*table.shape[:axis], *places.shape, *table.shape[axis + 1 :])


def _counted(places: Any, length: Any, known: np.ndarray | None) -> Any:
    """Return places that count from the start; ONNX also counts from the end."""
    import torch

    if known is not None and known.dtype != object and (known >= 0).all():
        return places
    return torch.where(places < 0, places + length, places)


def _gather_elements(call: OperatorCall) -> Any:
    x, axis = call.tensor(0), call.attribute("axis", 0)
    return x.gather(axis, _counted(call.tensor(1).long(), x.shape[axis], call.known(1)))


def _gather_nd(call: OperatorCall) -> Any:
    x, places, same = call.tensor(0), call.tensor(1).long(), call.attribute("batch_dims", 0)
    if not same:
        return x[places.unbind(-1)]
    if same != 1:
        raise call.refuse(f"it has {same} axes of samples")
    import torch

    own = torch.arange(x.shape[0]).reshape(-1, *[1] * (places.ndim - 2))
    index = (own, *places.unbind(-1))
    return x[index]


def _scatter_nd(call: OperatorCall) -> Any:
    if call.attribute("reduction", "none") not in ("none", "add"):
        raise call.refuse(f"its reduction is {call.attribute('reduction')!r}")
    x, places, values = call.tensors()
    return x.index_put(places.long().unbind(-1), values, accumulate=call.attribute("reduction", "none") == "add")


def _scatter_elements(call: OperatorCall) -> Any:
    if call.attribute("reduction", "none") != "none":
        raise call.refuse(f"its reduction is {call.attribute('reduction')!r}")
    x, places, values = call.tensors()
    axis = call.attribute("axis", 0)
    return x.scatter(axis, _counted(places.long(), x.shape[axis], call.known(1)), values)


def _range(call: OperatorCall) -> Any:
    import torch

    known = [call.known(place) for place in range(3)]
    if any(value is None for value in known):
        raise call.refuse("its length depends on the values of the model's inputs")
    limits = [value.reshape(-1).tolist()[0] for value in known if value is not None]
    return torch.arange(*limits, dtype=torch.float32 if any(isinstance(n, float) for n in limits) else torch.int64)


def _filled(call: OperatorCall) -> Any:
    import torch

    value = call.attribute("value")
    value = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    return torch.full(call.numbers(0) or [], value[0].item(), dtype=getattr(torch, value.dtype.name))


def _one_hot(call: OperatorCall) -> Any:
    import torch

    depth = int((call.numbers(1) or [0])[0])
    places, (off, on) = call.tensor(0), call.tensor(2).unbind(0)
    places = torch.where(places < 0, places + depth, places)
    axis = call.attribute("axis", -1)
    axis = axis if axis >= 0 else axis + places.ndim + 1
    shape = [1] * (places.ndim + 1)
    shape[axis] = depth
    return torch.where(places.unsqueeze(axis) == torch.arange(depth).reshape(shape), on, off)
