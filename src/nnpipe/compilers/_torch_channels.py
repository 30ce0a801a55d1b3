"""Find the channels of a network that can be removed, and remove them.

A channel is the output of one filter of a convolution or of one row of a dense
layer.  It can be removed if all its uses are known: from its producer, through
operators that treat each channel separately, to its consumers.  Layers are left
unchanged if their channels are combined with others (sums, concatenations), are
outputs of the network, or reach an operator that is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_LAYERS = ("conv1d", "conv2d", "linear")
_CHANNELWISE = frozenset(
    "relu relu_ relu6 relu6_ hardtanh hardtanh_ hardswish hardswish_ hardsigmoid silu silu_ gelu leaky_relu "
    "leaky_relu_ elu elu_ sigmoid tanh clamp clamp_ dropout dropout_ max_pool1d max_pool2d avg_pool1d avg_pool2d "
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d contiguous clone detach to alias".split()
)
_FLAT_RANK = 2


@dataclass(frozen=True)
class Group:
    """The channels of one layer and their consumers.

    Attributes
    ----------
    maker
        The node of the layer in the graph.
    along
        Depthwise convolutions and normalisations in between.
    takers
        Layers that consume the channels, with the number of their inputs per
        channel: more than one after a flattening.
    """

    maker: Any
    along: list[Any] = field(default_factory=list)
    takers: list[tuple[Any, int]] = field(default_factory=list)


def groups(graph: Any) -> Iterator[Group]:
    """Yield the groups of channels that can be pruned, in the order of the graph."""
    shared = _shared_weights(graph)
    for node in graph.nodes:
        if name_of(node) in _LAYERS and not _depthwise(node) and _plain(node, shared):
            group = Group(node)
            if _followed(node, group, shared):
                yield group


def name_of(node: Any) -> str:
    """Return the name of a node's operator without its overload; empty for other nodes."""
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    return str(schema.name).removeprefix("aten::") if schema is not None else ""


def _followed(maker: Any, group: Group, shared: set[str]) -> bool:
    """Follow the channels to their consumers; return whether all of them are known."""
    pending = [(maker, 1)]
    while pending:
        node, repeats = pending.pop()
        if not node.users:
            return False
        for user in node.users:
            name = name_of(user)
            if user.args[:1] != (node,) or any(arg is node for arg in user.args[1:]):
                return False
            if name in _LAYERS and _plain(user, shared):
                if not _depthwise(user):
                    group.takers.append((user, repeats))
                    continue
                group.along.append(user)
            elif name == "batch_norm":
                group.along.append(user)
            elif name == "flatten" and len(_shape(node)) > _FLAT_RANK:
                if user.args[1:] not in ((1,), (1, -1), (1, len(_shape(node)) - 1)):
                    return False
                spatial = _shape(node)[2:]
                if not all(isinstance(length, int) for length in spatial):
                    return False
                repeats *= math.prod(spatial)
            elif name not in _CHANNELWISE or len(_shape(node)) <= 1:
                return False
            pending.append((user, repeats))
    return bool(group.takers)


def _shape(node: Any) -> tuple[Any, ...]:
    value = node.meta.get("val")
    return () if value is None else tuple(value.shape)


def _plain(node: Any, shared: set[str]) -> bool:
    """Return whether a layer's weight is a parameter, is not shared, and the channels are in their usual axis."""
    weights = [arg for arg in node.args[1:3] if arg is not None]
    if not all(getattr(arg, "op", "") == "get_attr" and arg.target not in shared for arg in weights):
        return False
    if name_of(node) == "linear":
        return len(_shape(node)) == _FLAT_RANK
    return _groups(node) == 1 or _depthwise(node)


def _groups(node: Any) -> int:
    return int(node.args[6]) if len(node.args) > 6 else int(node.kwargs.get("groups", 1))


def _depthwise(node: Any) -> bool:
    if name_of(node) == "linear":
        return False
    count, weight = _groups(node), _shape(node.args[1])
    return count > 1 and weight[:2] == (count, 1)


def _shared_weights(graph: Any) -> set[str]:
    """Return the names of the weights that more than one operator uses."""
    users: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            users[node.target] = users.get(node.target, 0) + len(node.users)
    return {name for name, count in users.items() if count > 1}


def thin_out(module: Any, group: Group, kept: Any) -> None:
    """Remove all channels of a group except those with the indices ``kept``, an ascending vector."""
    _cut(module, group.maker.args[1], 0, kept)
    _cut(module, _optional(group.maker, 2), 0, kept)
    for node in group.along:
        _cut(module, node.args[1], 0, kept)
        _cut(module, node.args[2] if len(node.args) > 2 else None, 0, kept)
        if name_of(node) == "batch_norm":
            _cut(module, node.args[3], 0, kept)
            _cut(module, node.args[4], 0, kept)
        else:
            _set_groups(node, len(kept))
    for node, repeats in group.takers:
        places = kept
        if repeats > 1:
            import torch

            places = (kept[:, None] * repeats + torch.arange(repeats)).flatten()
        _cut(module, node.args[1], 1, places)


def _optional(node: Any, place: int) -> Any:
    return node.args[place] if len(node.args) > place else None


def _set_groups(node: Any, count: int) -> None:
    if len(node.args) > 6:
        node.args = (*node.args[:6], count, *node.args[7:])
    else:
        node.kwargs = {**node.kwargs, "groups": count}


def _cut(module: Any, reference: Any, axis: int, kept: Any) -> None:
    """Keep the chosen entries along an axis of a weight."""
    import torch

    if reference is None:
        return
    owner, _, last = reference.target.rpartition(".")
    holder = module.get_submodule(owner)
    old = getattr(holder, last)
    new = old.detach().index_select(axis, kept)
    setattr(holder, last, torch.nn.Parameter(new, requires_grad=False) if isinstance(old, torch.nn.Parameter) else new)
