"""Weights that all networks of a space share: each takes the leading part of every tensor that it has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from nnpipe.architectures.architecture_space import ArchitectureSpace
from nnpipe.architectures.cell_space import edge_name
from nnpipe.architectures.operations import NONE
from nnpipe.architectures.stacking import applied
from nnpipe.core.errors import ConfigError
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.weights import initial_weights
from nnpipe.layers.torch.network_module import module_of, named_tensors
from nnpipe.layers.torch.to_torch import to_torch
from nnpipe.layers.vocabulary.layer import Tensor
from nnpipe.layers.vocabulary.merging import Add
from nnpipe.searching.trial import configuration_key
from nnpipe.training.batch_statistics import estimate_statistics

_KEPT = 512  # modules of networks that are kept; the large sets of weights are elsewhere


def whole_network(space: ArchitectureSpace) -> NetworkGraph:
    """Return the network that has every layer of every network of a space, at its greatest size."""

    def edge(name: str, place: tuple[int, int], start: Tensor, channels: int) -> Tensor:
        prefix = f"{name}_{edge_name(*place)}"
        results = [applied(each, prefix, start, channels) for each in space.cell.operations if each.name != NONE]
        return results[0] if len(results) == 1 else Add(results, name=f"{prefix}_sum")

    return space.stack(space.greatest("channels"), space.greatest("cells")).network(edge, "whole")


def shared_weights(space: ArchitectureSpace, seed: int) -> Any:
    """Return the ``torch.nn.Module`` that holds the weights of all networks of a space.

    ``run(configuration, images)`` returns the logits of a network with them; normalisations use the statistics of the
    batch.

    Raises
    ------
    ConfigError
        If networks of different sizes cannot share weights, because cells join their nodes along the channels.
    """
    if space.cell.output == "concatenate" and len(space.sizes("channels")) > 1:
        raise ConfigError(
            "channels: with the output concatenate, networks of different channels cannot share weights by their "
            "leading parts; give one number, or the output last"
        )
    return _shared_class()(space, seed)


@cache
def _shared_class() -> Any:
    import torch
    from torch import nn
    from torch.func import functional_call

    class SharedWeights(nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        """The weights of all networks of a space."""

        def __init__(self, space: ArchitectureSpace, seed: int) -> None:
            super().__init__()
            self.space = space
            graph = whole_network(space)
            held = to_torch(graph, initial_weights(graph, seed))
            trained = {id(each) for each in held.parameters()}
            # A module's names may not have dots, and those of weights have slashes.
            self.tensors = nn.ParameterDict(
                {
                    _key(name): nn.Parameter(tensor.detach())
                    for name, _, tensor in named_tensors(held)
                    if id(tensor) in trained
                }
            )
            self._modules_by_key: dict[str, tuple[Any, dict[str, tuple[str, Any]]]] = {}

        def module(self, configuration: Mapping[str, Any]) -> tuple[Any, dict[str, tuple[str, Any]]]:
            """Return the module of a network, and for each of its parameters the shared tensor and its shape."""
            key = configuration_key(configuration)
            if key not in self._modules_by_key:
                if len(self._modules_by_key) >= _KEPT:
                    self._modules_by_key.pop(next(iter(self._modules_by_key)))
                module = module_of(self.space.network(configuration))
                paths = {id(parameter): path for path, parameter in module.named_parameters()}
                places = {
                    paths[id(tensor)]: (_key(name), tuple(tensor.shape))
                    for name, _, tensor in named_tensors(module)
                    if id(tensor) in paths
                }
                self._modules_by_key[key] = (module, places)
            return self._modules_by_key[key]

        def part(self, key: str, shape: tuple[int, ...]) -> Any:
            """Return the leading part of a shared tensor."""
            return self.tensors[key][tuple(slice(extent) for extent in shape)]

        def run(self, configuration: Mapping[str, Any], images: Any) -> Any:
            """Return the logits of a network."""
            module, places = self.module(configuration)
            module.train()
            return functional_call(module, {path: self.part(*place) for path, place in places.items()}, (images,))

        def inherited(self, configuration: Mapping[str, Any], images: Any) -> dict[str, np.ndarray]:
            """Return a network's weights in the form of :mod:`nnpipe.layers`, with statistics of its normalisations.

            Yu et al. 2020 call this calibration: the statistics of one network are useless to another.
            """
            from nnpipe.layers.torch.to_torch import torch_weights

            module, places = self.module(configuration)
            parameters = dict(module.named_parameters())
            with torch.no_grad():
                for path, place in places.items():
                    parameters[path].copy_(self.part(*place))
            estimate_statistics(module, (batch for batch in images.split(64) if len(batch) > 1))
            return torch_weights(module)

    return SharedWeights


def _key(name: str) -> str:
    return name.replace("/", "__").replace(".", "_")
