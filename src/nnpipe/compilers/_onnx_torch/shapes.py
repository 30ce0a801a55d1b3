"""Operators that arrange elements anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnpipe.compilers._onnx_torch.call import LateFunctions, OperatorCall, fixed

Operator = Callable[[OperatorCall], Any]


def operators() -> Mapping[str, Operator]:
    """Return the operators by their names in ONNX."""
    torch = LateFunctions("torch")

    return {
        "Reshape": _reshape,
        "Flatten": _flatten,
        "Transpose": lambda call: _transposed(call.tensor(0), call.attribute("perm")),
        "Squeeze": _squeeze,
        "Unsqueeze": _unsqueeze,
        "Concat": lambda call: torch.cat(call.tensors(), call.attribute("axis")),
        "Split": _split,
        "Slice": _slice,
        "Expand": _expand,
        "Tile": lambda call: call.tensor(0).repeat(*(call.numbers(1) or [])),
        "Pad": _pad,
        "DepthToSpace": _depth_to_space,
        "SpaceToDepth": _space_to_depth,
        "Trilu": _triangle,
    }


def _transposed(x: Any, order: Any) -> Any:
    return x.permute(*(range(x.ndim - 1, -1, -1) if order is None else order))


def _reshape(call: OperatorCall) -> Any:
    x, target = call.tensor(0), call.numbers(1, "shape") or []
    if not call.attribute("allowzero", 0):
        target = [
            x.shape[at] if isinstance(n, int) and n == 0 else n for at, n in enumerate(target)
        ]
    return x.reshape(target)


def _flatten(call: OperatorCall) -> Any:
    x, axis = call.tensor(0), call.attribute("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return (
        x.flatten(1)
        if axis == 1 and x.ndim > 1
        else x.reshape(int(np.prod(x.shape[:axis])) if axis else 1, -1)
    )


def _squeeze(call: OperatorCall) -> Any:
    x, axes = call.tensor(0), call.numbers(1, "axes")
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _unsqueeze(call: OperatorCall) -> Any:
    x, axes = call.tensor(0), call.numbers(1, "axes") or []
    rank = x.ndim + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _split(call: OperatorCall) -> Any:
    x, axis, count = call.tensor(0), call.attribute("axis", 0), len(call.node.outputs)
    sizes = call.numbers(1, "split")
    if sizes is None:
        length = fixed(x.shape[axis], "an axis to split")
        size = -(-length // count)
        sizes = [min(size, length - size * at) for at in range(count)]
    return tuple(x.split(sizes, axis))


def _slice(call: OperatorCall) -> Any:
    x = call.tensor(0)
    starts, ends = call.numbers(1, "starts") or [], call.numbers(2, "ends") or []
    axes = call.numbers(3, "axes") or list(range(len(starts)))
    steps = call.numbers(4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 0:
            x = _backwards(x, axis, slice(start, end, step))
        else:
            x = x[(slice(None),) * (axis % x.ndim) + (slice(start, end, step),)]
    return x


def _backwards(x: Any, axis: int, part: slice) -> Any:
    import torch

    length = fixed(x.shape[axis], "an axis to reverse")
    return x.index_select(axis, torch.tensor(list(range(length))[part]))


def _expand(call: OperatorCall) -> Any:
    x, target = call.tensor(0), list(call.numbers(1) or [])
    missing = x.ndim - len(target)
    target = [1] * missing + target
    own = [1] * -missing + list(x.shape)
    return x.expand(*(have if want == 1 else want for have, want in zip(own, target, strict=True)))


def _pad(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    x, pads = call.tensor(0), call.numbers(1, "pads") or []
    axes = [axis % x.ndim for axis in call.numbers(3) or range(x.ndim)]
    sides = {axis: (pads[at], pads[at + len(axes)]) for at, axis in enumerate(axes)}
    first = min((axis for axis, pair in sides.items() if any(pair)), default=None)
    if first is None:
        return x
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}[
        call.attribute("mode", "constant")
    ]
    if mode != "constant":
        first = max(first, 1)
        if x.ndim - first > 3 or first < 2:
            raise call.refuse(f"it pads the axes of samples or channels with {mode}")
        first = 2  # PyTorch pads all axes of space with these
    flat = [side for axis in range(x.ndim - 1, first - 1, -1) for side in sides.get(axis, (0, 0))]
    value = call.numbers(2, "value") if mode == "constant" else None
    return F.pad(x, flat, mode, value[0] if value else None)


def _depth_to_space(call: OperatorCall) -> Any:
    x, size = call.tensor(0), call.attribute("blocksize")
    n, depth, height, width = x.shape
    inner = depth // size**2
    if call.attribute("mode", "DCR") == "CRD":
        parts = x.reshape(n, inner, size, size, height, width).permute(0, 1, 4, 2, 5, 3)
    else:
        parts = x.reshape(n, size, size, inner, height, width).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(n, inner, height * size, width * size)


def _space_to_depth(call: OperatorCall) -> Any:
    x, size = call.tensor(0), call.attribute("blocksize")
    n, depth, height, width = x.shape
    parts = x.reshape(n, depth, height // size, size, width // size, size).permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(n, depth * size**2, height // size, width // size)


def _triangle(call: OperatorCall) -> Any:
    import torch

    diagonal = int((call.numbers(1) or [0])[0])
    return (torch.triu if call.attribute("upper", 1) else torch.tril)(call.tensor(0), diagonal)


def indexing_operators() -> Mapping[str, Operator]:
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
    return x.index_put(
        places.long().unbind(-1), values, accumulate=call.attribute("reduction", "none") == "add"
    )


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
    return torch.arange(
        *limits, dtype=torch.float32 if any(isinstance(n, float) for n in limits) else torch.int64
    )


def _filled(call: OperatorCall) -> Any:
    import torch

    value = call.attribute("value")
    value = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    return torch.full(
        call.numbers(0) or [], value[0].item(), dtype=getattr(torch, value.dtype.name)
    )


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
