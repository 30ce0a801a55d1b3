"""Compilers that simplify exported PyTorch programs: pruning of weights and channels, and
clustering.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._torch_program_compiler import DistillingCompiler, TorchProgramCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.torch_program import (
    export_changed_module,
    list_matrices,
    load_program,
    replace_weights,
)


class TorchPruner(DistillingCompiler):
    """Sets the weights of least magnitude in exported PyTorch programs to 0, with optional
    fine-tuning.

    Kernels and matrices are pruned; biases and normalisations are not (Han et
    al. 2015, arXiv:1506.02626).  The file is only smaller once it is compressed,
    and only faster in a runtime that skips zeros; ``TorchChannelPruner`` makes a
    network smaller and faster everywhere.
    """

    sparsity: float = argument(
        0.5, help="fraction of the weights set to 0", minimum=0.0, maximum=0.999
    )
    scope: Literal["layer", "global"] = argument(
        "layer",
        help=(
            "prune this fraction of each layer, or of all layers together, which spares small "
            "layers"
        ),
    )

    def claims(self) -> tuple[Claim, ...]:
        """Return that weights are pruned and number formats are kept."""
        return ("pruned", "fine-tuned") if self.fine_tuning_steps else ("pruned",)

    def variant(self) -> str:
        """Return the sparsity."""
        return f"pruned-{round(self.sparsity * 1000) / 10:g}"

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        loaded = load_program(artifact.path)
        names = list_matrices(loaded.native)
        if not names:
            raise CompileError(
                "it has no floating-point weights to prune; prune a model before it is quantised"
            )
        masks = self._compute_masks(
            {name: loaded.native.state_dict[name].detach() for name in names}
        )
        state = {
            name: loaded.native.state_dict[name].detach() * mask for name, mask in masks.items()
        }
        if calibration is not None and self.fine_tuning_steps:
            student = loaded.module()
            weights = dict(student.named_parameters(remove_duplicate=False))
            for name, tensor in state.items():
                weights[name].data.copy_(tensor)
            self._fine_tune(loaded, student, masks, calibration)
            state = {
                name: tensor.detach()
                for name, tensor in student.named_parameters(remove_duplicate=False)
            }
        replace_weights(loaded.native, state)
        return self._save(loaded.native, destination)

    def _compute_masks(self, weights: dict[str, Any]) -> dict[str, Any]:
        """Return masks by weight name: 0 for pruned weights, 1 for kept ones."""
        import torch

        groups = [list(weights)] if self.scope == "global" else [[name] for name in weights]
        masks: dict[str, Any] = {}
        for names in groups:
            magnitudes = torch.cat([weights[name].abs().flatten() for name in names])
            mask = torch.ones_like(magnitudes)
            # A stable sort, so that the number of zeros is exact and the choice reproducible.
            mask[magnitudes.argsort(stable=True)[: int(self.sparsity * magnitudes.numel())]] = 0
            parts = mask.split([weights[name].numel() for name in names])
            masks |= {
                name: part.view_as(weights[name]) for name, part in zip(names, parts, strict=True)
            }
        return masks


_MOST_ROUNDS = 300

Vector = npt.NDArray[np.float64]


class TorchClusterer(TorchProgramCompiler):
    """Reduces the weights of exported PyTorch programs to a few values per tensor, found by
    k-means.

    Kernels and matrices are clustered; biases and normalisations are not (Han
    et al. 2016, arXiv:1510.00149).  The file is only smaller once it is
    compressed: with 16 values, to about an eighth.
    """

    num_clusters: int = argument(
        16, help="greatest number of different values per tensor", minimum=2, maximum=65536
    )
    centroids: Literal["linear", "density"] = argument(
        "linear",
        help="initial values of k-means: evenly spaced over the range, which separates the few "
        "large weights (linear), or with equally many weights per value (density)",
    )
    keep_zeros: bool = argument(
        True, help="keep weights that are 0, so that a pruned model stays pruned"
    )

    def claims(self) -> tuple[Claim, ...]:
        """Return clustered weights."""
        return ("clustered",)

    def variant(self) -> str:
        """Return the number of values."""
        return f"clustered-{self.num_clusters}"

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        import torch

        loaded = load_program(artifact.path)
        names = list_matrices(loaded.native)
        if not names:
            raise CompileError(
                "it has no floating-point weights to cluster; cluster a model before it is "
                "quantised"
            )
        state = {}
        for name in names:
            tensor = loaded.native.state_dict[name].detach()
            values = self._cluster_weights(tensor.to(torch.float64).numpy())
            state[name] = torch.from_numpy(values).to(tensor.dtype)
        replace_weights(loaded.native, state)
        return self._save(loaded.native, destination)

    def _cluster_weights(self, weights: Vector) -> Vector:
        values = weights.ravel().copy()
        zeros = (values == 0) if self.keep_zeros else np.zeros(values.shape, bool)
        number = self.num_clusters - int(zeros.any())
        values[~zeros] = cluster_values(values[~zeros], number, self.centroids == "density")
        found: Vector = values.reshape(weights.shape)
        return found


def cluster_values(values: Vector, number: int, by_density: bool = False) -> Vector:
    """Return each number replaced by the mean of its cluster, from Lloyd's algorithm on sorted
    numbers.

    Parameters
    ----------
    values
        Shape ``(n,)``.
    number
        Greatest number of clusters.
    by_density
        Whether initial clusters have equally many numbers, instead of being evenly spaced over the
        range.

    Returns
    -------
    numpy.ndarray
        Shape ``(n,)``; independent of the order of ``values``.
    """
    distinct = np.unique(values)
    if len(distinct) <= number:
        return values
    ordered = np.sort(values)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    if by_density:
        centres = np.quantile(ordered, (np.arange(number) + 0.5) / number)
    else:
        centres = np.linspace(ordered[0], ordered[-1], number)
    for _ in range(_MOST_ROUNDS):
        edges = np.searchsorted(ordered, (centres[1:] + centres[:-1]) / 2, side="right")
        bounds = np.concatenate([[0], edges, [len(ordered)]])
        counts, totals = np.diff(bounds), np.diff(sums[bounds])
        # An empty cluster keeps its value, which preserves the order.
        moved = np.where(counts > 0, totals / np.maximum(counts, 1), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    found: Vector = centres[np.searchsorted((centres[1:] + centres[:-1]) / 2, values, side="left")]
    return found


# Find the channels of a network that can be removed, and remove them.
#
# A channel is the output of one filter of a convolution or of one row of a dense layer.  It can be
# removed if all its uses are known: from its producer, through operators that treat each channel
# separately, to its consumers.  Layers are left unchanged if their channels are combined with
# others (sums, concatenations), are outputs of the network, or reach an operator that is not known
# here.

_LAYERS = ("conv1d", "conv2d", "linear")
_CHANNELWISE = frozenset(
    "relu relu_ relu6 relu6_ hardtanh hardtanh_ hardswish hardswish_ hardsigmoid silu silu_ gelu "
    "leaky_relu leaky_relu_ elu elu_ sigmoid tanh clamp clamp_ dropout dropout_ max_pool1d "
    "max_pool2d avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d "
    "contiguous clone detach to "
    "alias".split()
)
_FLAT_RANK = 2


@dataclass(frozen=True)
class ChannelGroup:
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


def find_channel_groups(graph: Any) -> Iterator[ChannelGroup]:
    """Yield the groups of channels that can be pruned, in the order of the graph."""
    shared = _find_shared_weights(graph)
    for node in graph.nodes:
        if (
            get_operator_name(node) in _LAYERS
            and not _is_depthwise(node)
            and _is_plain(node, shared)
        ):
            group = ChannelGroup(node)
            if _follow_channels(node, group, shared):
                yield group


def get_operator_name(node: Any) -> str:
    """Return the name of a node's operator without its overload; empty for other nodes."""
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    return str(schema.name).removeprefix("aten::") if schema is not None else ""


def _follow_channels(maker: Any, group: ChannelGroup, shared: set[str]) -> bool:
    """Follow the channels to their consumers; return whether all of them are known."""
    pending = [(maker, 1)]
    while pending:
        node, repeats = pending.pop()
        if not node.users:
            return False
        for user in node.users:
            name = get_operator_name(user)
            if user.args[:1] != (node,) or any(arg is node for arg in user.args[1:]):
                return False
            if name in _LAYERS and _is_plain(user, shared):
                if not _is_depthwise(user):
                    group.takers.append((user, repeats))
                    continue
                group.along.append(user)
            elif name == "batch_norm":
                group.along.append(user)
            elif name == "flatten" and len(_get_shape(node)) > _FLAT_RANK:
                if user.args[1:] not in ((1,), (1, -1), (1, len(_get_shape(node)) - 1)):
                    return False
                spatial = _get_shape(node)[2:]
                if not all(isinstance(length, int) for length in spatial):
                    return False
                repeats *= math.prod(spatial)
            elif name not in _CHANNELWISE or len(_get_shape(node)) <= 1:
                return False
            pending.append((user, repeats))
    return bool(group.takers)


def _get_shape(node: Any) -> tuple[Any, ...]:
    value = node.meta.get("val")
    return () if value is None else tuple(value.shape)


def _is_plain(node: Any, shared: set[str]) -> bool:
    """Return whether a layer's weight is a parameter, is not shared, and the channels are in
    their usual axis.
    """
    weights = [arg for arg in node.args[1:3] if arg is not None]
    if not all(
        getattr(arg, "op", "") == "get_attr" and arg.target not in shared for arg in weights
    ):
        return False
    if get_operator_name(node) == "linear":
        return len(_get_shape(node)) == _FLAT_RANK
    return _count_groups(node) == 1 or _is_depthwise(node)


def _count_groups(node: Any) -> int:
    return int(node.args[6]) if len(node.args) > 6 else int(node.kwargs.get("groups", 1))


def _is_depthwise(node: Any) -> bool:
    if get_operator_name(node) == "linear":
        return False
    count, weight = _count_groups(node), _get_shape(node.args[1])
    return count > 1 and weight[:2] == (count, 1)


def _find_shared_weights(graph: Any) -> set[str]:
    """Return the names of the weights that more than one operator uses."""
    users: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            users[node.target] = users.get(node.target, 0) + len(node.users)
    return {name for name, count in users.items() if count > 1}


def remove_channels(module: Any, group: ChannelGroup, kept: Any) -> None:
    """Remove all channels of a group except those with the indices ``kept``, an ascending
    vector.
    """
    _select_entries(module, group.maker.args[1], 0, kept)
    _select_entries(module, _get_optional(group.maker, 2), 0, kept)
    for node in group.along:
        _select_entries(module, node.args[1], 0, kept)
        _select_entries(module, node.args[2] if len(node.args) > 2 else None, 0, kept)
        if get_operator_name(node) == "batch_norm":
            _select_entries(module, node.args[3], 0, kept)
            _select_entries(module, node.args[4], 0, kept)
        else:
            _set_groups(node, len(kept))
    for node, repeats in group.takers:
        places = kept
        if repeats > 1:
            import torch

            places = (kept[:, None] * repeats + torch.arange(repeats)).flatten()
        _select_entries(module, node.args[1], 1, places)


def _get_optional(node: Any, place: int) -> Any:
    return node.args[place] if len(node.args) > place else None


def _set_groups(node: Any, count: int) -> None:
    if len(node.args) > 6:
        node.args = (*node.args[:6], count, *node.args[7:])
    else:
        node.kwargs = {**node.kwargs, "groups": count}


def _select_entries(module: Any, reference: Any, axis: int, kept: Any) -> None:
    """Keep the chosen entries along an axis of a weight."""
    import torch

    if reference is None:
        return
    owner, _, last = reference.target.rpartition(".")
    holder = module.get_submodule(owner)
    old = getattr(holder, last)
    new = old.detach().index_select(axis, kept)
    setattr(
        holder,
        last,
        torch.nn.Parameter(new, requires_grad=False)
        if isinstance(old, torch.nn.Parameter)
        else new,
    )


class TorchChannelPruner(DistillingCompiler):
    """Removes whole channels of exported PyTorch programs, which become smaller and faster in every
    runtime.

    In each layer, the filters with the least sum of absolute weights are removed
    (Li et al. 2017, arXiv:1608.08710), together with the weights that read their
    outputs.  Layers keep all channels if these are added to or concatenated with
    others, or are outputs of the network: in a residual network, only the inner
    layers of blocks become smaller.  Accuracy drops, so use fine-tuning.
    """

    channel_sparsity: float = argument(
        0.5, help="fraction of each layer's channels to remove", minimum=0.0, maximum=0.99
    )
    channel_multiple: int = argument(
        1,
        help=(
            "keep a multiple of this number of channels in each layer, for runtimes that compute "
            "as many at once"
        ),
        minimum=1,
    )

    def claims(self) -> tuple[Claim, ...]:
        """Return that weights are pruned and number formats are kept."""
        return ("pruned", "fine-tuned") if self.fine_tuning_steps else ("pruned",)

    def variant(self) -> str:
        """Return the sparsity."""
        return f"channels-{round(self.channel_sparsity * 1000) / 10:g}"

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        loaded = load_program(artifact.path)
        module = loaded.module()
        found = list(find_channel_groups(module.graph))
        if not found:
            raise CompileError("it has no layer whose channels can be taken away")
        # Chosen for all layers before the first one changes, so that the order of layers does not
        # matter.
        for group, kept in [(group, self._select_channels(module, group)) for group in found]:
            remove_channels(module, group, kept)
        module.recompile()
        if calibration is not None and self.fine_tuning_steps:
            self._fine_tune(loaded, module, {}, calibration)
        return self._save(export_changed_module(loaded, module), destination)

    def _select_channels(self, module: Any, group: ChannelGroup) -> Any:
        """Return the indices of the channels to keep, ascending."""
        weight = module.get_parameter(group.maker.args[1].target).detach()
        count = len(weight)
        number = count - int(self.channel_sparsity * count)
        number = min(count, -(-number // self.channel_multiple) * self.channel_multiple)
        magnitudes = weight.abs().flatten(1).sum(1)
        return magnitudes.argsort(stable=True, descending=True)[:number].sort().values
