"""Operators that arrange elements anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnpipe.compilers._onnx_torch.call import LateFunctions, OperatorCall, require_fixed_length

Operator = Callable[[OperatorCall], Any]


def build_operators() -> Mapping[str, Operator]:
    """Return the operators by their names in ONNX."""
    torch = LateFunctions("torch")

    return {
        "Reshape": _apply_reshape,
        "Flatten": _apply_flatten,
        "Transpose": lambda call: _apply_transpose(call.tensor(0), call.attribute("perm")),
        "Squeeze": _apply_squeeze,
        "Unsqueeze": _apply_unsqueeze,
        "Concat": lambda call: torch.cat(call.tensors(), call.attribute("axis")),
        "Split": _apply_split,
        "Slice": _apply_slice,
        "Expand": _apply_expand,
        "Tile": lambda call: call.tensor(0).repeat(*(call.numbers(1) or [])),
        "Pad": _apply_pad,
        "DepthToSpace": _apply_depth_to_space,
        "SpaceToDepth": _apply_space_to_depth,
        "Trilu": _apply_trilu,
    }


def _apply_transpose(x: Any, order: Any) -> Any:
    return x.permute(*(range(x.ndim - 1, -1, -1) if order is None else order))


def _apply_reshape(call: OperatorCall) -> Any:
    x, target = call.tensor(0), call.numbers(1, "shape") or []
    if not call.attribute("allowzero", 0):
        target = [
            x.shape[at] if isinstance(n, int) and n == 0 else n for at, n in enumerate(target)
        ]
    return x.reshape(target)


def _apply_flatten(call: OperatorCall) -> Any:
    x, axis = call.tensor(0), call.attribute("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return (
        x.flatten(1)
        if axis == 1 and x.ndim > 1
        else x.reshape(int(np.prod(x.shape[:axis])) if axis else 1, -1)
    )


def _apply_squeeze(call: OperatorCall) -> Any:
    x, axes = call.tensor(0), call.numbers(1, "axes")
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _apply_unsqueeze(call: OperatorCall) -> Any:
    x, axes = call.tensor(0), call.numbers(1, "axes") or []
    rank = x.ndim + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _apply_split(call: OperatorCall) -> Any:
    x, axis, count = call.tensor(0), call.attribute("axis", 0), len(call.node.outputs)
    sizes = call.numbers(1, "split")
    if sizes is None:
        length = require_fixed_length(x.shape[axis], "an axis to split")
        size = -(-length // count)
        sizes = [min(size, length - size * at) for at in range(count)]
    return tuple(x.split(sizes, axis))


def _apply_slice(call: OperatorCall) -> Any:
    x = call.tensor(0)
    starts, ends = call.numbers(1, "starts") or [], call.numbers(2, "ends") or []
    axes = call.numbers(3, "axes") or list(range(len(starts)))
    steps = call.numbers(4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 0:
            x = _slice_backwards(x, axis, slice(start, end, step))
        else:
            x = x[(slice(None),) * (axis % x.ndim) + (slice(start, end, step),)]
    return x


def _slice_backwards(x: Any, axis: int, part: slice) -> Any:
    import torch

    length = require_fixed_length(x.shape[axis], "an axis to reverse")
    return x.index_select(axis, torch.tensor(list(range(length))[part]))


def _apply_expand(call: OperatorCall) -> Any:
    x, target = call.tensor(0), list(call.numbers(1) or [])
    missing = x.ndim - len(target)
    target = [1] * missing + target
    own = [1] * -missing + list(x.shape)
    return x.expand(*(have if want == 1 else want for have, want in zip(own, target, strict=True)))


def _apply_pad(call: OperatorCall) -> Any:
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
            raise call.make_refusal(f"it pads the axes of samples or channels with {mode}")
        first = 2  # PyTorch pads all axes of space with these
    flat = [side for axis in range(x.ndim - 1, first - 1, -1) for side in sides.get(axis, (0, 0))]
    value = call.numbers(2, "value") if mode == "constant" else None
    return F.pad(x, flat, mode, value[0] if value else None)


def _apply_depth_to_space(call: OperatorCall) -> Any:
    x, size = call.tensor(0), call.attribute("blocksize")
    n, depth, height, width = x.shape
    inner = depth // size**2
    if call.attribute("mode", "DCR") == "CRD":
        parts = x.reshape(n, inner, size, size, height, width).permute(0, 1, 4, 2, 5, 3)
    else:
        parts = x.reshape(n, size, size, inner, height, width).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(n, inner, height * size, width * size)


def _apply_space_to_depth(call: OperatorCall) -> Any:
    x, size = call.tensor(0), call.attribute("blocksize")
    n, depth, height, width = x.shape
    parts = x.reshape(n, depth, height // size, size, width // size, size).permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(n, depth * size**2, height // size, width // size)


def _apply_trilu(call: OperatorCall) -> Any:
    import torch

    diagonal = int((call.numbers(1) or [0])[0])
    return (torch.triu if call.attribute("upper", 1) else torch.tril)(call.tensor(0), diagonal)


def build_indexing_operators() -> Mapping[str, Operator]:
    """Return the operators by their names in ONNX."""
    return {
        "Gather": _apply_gather,
        "GatherElements": _apply_gather_elements,
        "GatherND": _apply_gather_nd,
        "ScatterND": _apply_scatter_nd,
        "ScatterElements": _apply_scatter_elements,
        "Range": _apply_range,
        "ConstantOfShape": _apply_constant_of_shape,
        "OneHot": _apply_one_hot,
    }


def _apply_gather(call: OperatorCall) -> Any:
    from torch.nn import functional as F

    axis, known = call.attribute("axis", 0), call.get_known(1)
    table = call.tensor(0)
    axis = axis % table.ndim
    if known is not None and known.ndim == 0 and known.dtype != object:
        return table.select(axis, int(known))
    places = call.tensor(1)
    if (
        axis == 0
        and table.ndim == 2
        and table.is_floating_point()
        and call.get_known(0) is not None
    ):
        return F.embedding(places, table)  # as PyTorch's exporter reads a table of vectors
    places = _normalize_indices(places, table.shape[axis], known)
    flat = table.index_select(axis, places.reshape(-1))
    return flat.reshape(*table.shape[:axis], *places.shape, *table.shape[axis + 1 :])


def _normalize_indices(places: Any, length: Any, known: np.ndarray | None) -> Any:
    """Return places that count from the start; ONNX also counts from the end."""
    import torch

    if known is not None and known.dtype != object and (known >= 0).all():
        return places
    return torch.where(places < 0, places + length, places)


def _apply_gather_elements(call: OperatorCall) -> Any:
    x, axis = call.tensor(0), call.attribute("axis", 0)
    return x.gather(
        axis, _normalize_indices(call.tensor(1).long(), x.shape[axis], call.get_known(1))
    )


def _apply_gather_nd(call: OperatorCall) -> Any:
    x, places, same = call.tensor(0), call.tensor(1).long(), call.attribute("batch_dims", 0)
    if not same:
        return x[places.unbind(-1)]
    if same != 1:
        raise call.make_refusal(f"it has {same} axes of samples")
    import torch

    own = torch.arange(x.shape[0]).reshape(-1, *[1] * (places.ndim - 2))
    index = (own, *places.unbind(-1))
    return x[index]


def _apply_scatter_nd(call: OperatorCall) -> Any:
    if call.attribute("reduction", "none") not in ("none", "add"):
        raise call.make_refusal(f"its reduction is {call.attribute('reduction')!r}")
    x, places, values = call.tensors()
    return x.index_put(
        places.long().unbind(-1), values, accumulate=call.attribute("reduction", "none") == "add"
    )


def _apply_scatter_elements(call: OperatorCall) -> Any:
    if call.attribute("reduction", "none") != "none":
        raise call.make_refusal(f"its reduction is {call.attribute('reduction')!r}")
    x, places, values = call.tensors()
    axis = call.attribute("axis", 0)
    return x.scatter(
        axis, _normalize_indices(places.long(), x.shape[axis], call.get_known(1)), values
    )


def _apply_range(call: OperatorCall) -> Any:
    import torch

    known = [call.get_known(place) for place in range(3)]
    if any(value is None for value in known):
        raise call.make_refusal("its length depends on the values of the model's inputs")
    limits = [value.reshape(-1).tolist()[0] for value in known if value is not None]
    return torch.arange(
        *limits, dtype=torch.float32 if any(isinstance(n, float) for n in limits) else torch.int64
    )


def _apply_constant_of_shape(call: OperatorCall) -> Any:
    import torch

    value = call.attribute("value")
    value = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    return torch.full(
        call.numbers(0) or [], value[0].item(), dtype=getattr(torch, value.dtype.name)
    )


def _apply_one_hot(call: OperatorCall) -> Any:
    import torch

    depth = int((call.numbers(1) or [0])[0])
    places, (off, on) = call.tensor(0), call.tensor(2).unbind(0)
    places = torch.where(places < 0, places + depth, places)
    axis = call.attribute("axis", -1)
    axis = axis if axis >= 0 else axis + places.ndim + 1
    shape = [1] * (places.ndim + 1)
    shape[axis] = depth
    return torch.where(places.unsqueeze(axis) == torch.arange(depth).reshape(shape), on, off)
