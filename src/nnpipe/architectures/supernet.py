"""Supernets: one training for all networks of a space, by the sandwich rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.architectures.architecture_space import ArchitectureSpace, apply_operation
from nnpipe.architectures.cell_space import NONE, format_edge_name
from nnpipe.architectures.training import Features, TrainedNetwork, TrainingRecipe, train_network
from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import Progress, silent
from nnpipe.experiment.history import History
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.weights import initial_weights
from nnpipe.layers.torch.network_module import build_network_module, iter_named_tensors
from nnpipe.layers.torch.to_torch import to_torch
from nnpipe.layers.vocabulary.layer import Tensor
from nnpipe.layers.vocabulary.reshaping import Add
from nnpipe.searching.trial_store import build_configuration_key
from nnpipe.training.averages import estimate_statistics

_KEPT = 512  # modules of networks that are kept; the large sets of weights are elsewhere


def build_whole_network(space: ArchitectureSpace) -> NetworkGraph:
    """Return the network that has every layer of every network of a space, at its greatest size."""

    def add_edge(name: str, place: tuple[int, int], start: Tensor, channels: int) -> Tensor:
        prefix = f"{name}_{format_edge_name(*place)}"
        results = [
            apply_operation(each, prefix, start, channels)
            for each in space.cell.operations
            if each.name != NONE
        ]
        return results[0] if len(results) == 1 else Add(results, name=f"{prefix}_sum")

    return space.build_stack(space.greatest("channels"), space.greatest("cells")).network(
        add_edge, "whole"
    )


def build_shared_weights(space: ArchitectureSpace, seed: int) -> Any:
    """Return the ``torch.nn.Module`` that holds the weights of all networks of a space.

    ``run(configuration, images)`` returns the logits of a network with them; normalisations use the
    statistics of the batch.

    Raises
    ------
    ConfigError
        If networks of different sizes cannot share weights, because cells join their nodes along
        the channels.
    """
    if space.cell.output == "concatenate" and len(space.sizes("channels")) > 1:
        raise ConfigError(
            "channels: with the output concatenate, networks of different channels cannot share "
            "weights by their leading parts; give one number, or the output last"
        )
    return _get_shared_class()(space, seed)


@cache
def _get_shared_class() -> Any:
    import torch
    from torch import nn
    from torch.func import functional_call

    class SharedWeights(nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        """The weights of all networks of a space."""

        def __init__(self, space: ArchitectureSpace, seed: int) -> None:
            super().__init__()
            self.space = space
            graph = build_whole_network(space)
            held = to_torch(graph, initial_weights(graph, seed))
            trained = {id(each) for each in held.parameters()}
            # A module's names may not have dots, and those of weights have slashes.
            self.tensors = nn.ParameterDict(
                {
                    _make_key(name): nn.Parameter(tensor.detach())
                    for name, _, tensor in iter_named_tensors(held)
                    if id(tensor) in trained
                }
            )
            self._modules_by_key: dict[str, tuple[Any, dict[str, tuple[str, Any]]]] = {}

        def module(
            self, configuration: Mapping[str, Any]
        ) -> tuple[Any, dict[str, tuple[str, Any]]]:
            """Return the module of a network, and for each of its parameters the shared tensor
            and its shape.
            """
            key = build_configuration_key(configuration)
            if key not in self._modules_by_key:
                if len(self._modules_by_key) >= _KEPT:
                    self._modules_by_key.pop(next(iter(self._modules_by_key)))
                module = build_network_module(self.space.network(configuration))
                paths = {id(parameter): path for path, parameter in module.named_parameters()}
                places = {
                    paths[id(tensor)]: (_make_key(name), tuple(tensor.shape))
                    for name, _, tensor in iter_named_tensors(module)
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
            return functional_call(
                module, {path: self.part(*place) for path, place in places.items()}, (images,)
            )

        def inherited(self, configuration: Mapping[str, Any], images: Any) -> dict[str, np.ndarray]:
            """Return a network's weights in the form of :mod:`nnpipe.layers`, with statistics of
            its normalisations.

            Yu et al. 2020 call this calibration: the statistics of one network are useless to
            another.
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


def _make_key(name: str) -> str:
    return name.replace("/", "__").replace(".", "_")


_CALIBRATING = 512  # samples from which normalisations take their statistics


@dataclass(frozen=True, eq=False)
class Supernet:
    """The trained weights of all networks of a space.

    Parameters
    ----------
    space
        The networks.
    history
        The history of the training: the losses of the largest, the smallest and the random networks
        by epoch.
    module
        The module that holds the weights.
    samples
        The samples from which the normalisations of a network take their statistics.
    """

    space: ArchitectureSpace
    history: History
    module: Any
    samples: Features

    def network(self, configuration: Mapping[str, Any]) -> TrainedNetwork:
        """Return the network of a configuration with the weights that it inherits.

        Its normalisations have taken their statistics from the training samples again.  It is an
        ordinary declared network, and its training may go on from these weights.

        Raises
        ------
        ConfigError
            If the configuration is not one of the space.
        """
        import torch

        images = torch.from_numpy(np.asarray(self.samples[self.space.input_name][:_CALIBRATING]))
        graph = self.space.network(configuration)
        return TrainedNetwork(graph, self.module.inherited(configuration, images), self.history)

    def measure_ranking(
        self,
        configurations: Sequence[Mapping[str, Any]],
        train: Features,
        validation: Features,
        recipe: TrainingRecipe,
        *,
        progress: Progress = silent,
    ) -> SupernetRanking:
        """Return how well the supernet ranks networks: each is judged with inherited weights, and
        trained by itself.

        Parameters
        ----------
        configurations
            The networks to compare with, at least three.
        train, validation
            The samples to train each with by itself, and those that judge both.
        recipe
            How each is trained by itself.
        progress
            Shows the progress.

        Raises
        ------
        ConfigError
            If there are fewer than three networks.
        """
        check_call(Supernet.measure_ranking, locals())
        if len(configurations) < 3:
            raise ConfigError(
                f"configurations: expected at least 3 to rank, found {len(configurations)}"
            )
        inherited, alone = [], []
        for each in progress(list(configurations), "networks by themselves", len(configurations)):
            inherited.append(self.network(each).accuracy(validation))
            alone.append(
                train_network(self.space.network(each), train, recipe).accuracy(validation)
            )
        return SupernetRanking(tuple(inherited), tuple(alone))


@dataclass(frozen=True)
class SupernetRanking:
    """The accuracies of some networks with the weights of a supernet, and trained by themselves,
    in the same order.
    """

    inherited: tuple[float, ...]
    alone: tuple[float, ...]

    @property
    def kendall(self) -> float:
        """Kendall's rank correlation, tau-b: 1 for the same order, 0 for none, NaN if one side
        is constant.
        """
        return kendall_tau(self.inherited, self.alone)

    def __str__(self) -> str:
        return (
            f"{len(self.alone)} networks: accuracy {np.mean(self.inherited):.3f} with shared "
            f"weights and {np.mean(self.alone):.3f} trained alone, rank correlation "
            f"{self.kendall:.2f} (Kendall's tau)"
        )


def kendall_tau(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Kendall's tau-b of two sequences of equal length (Kendall 1945); NaN if one of them
    is constant.
    """
    x, y = (
        np.sign(np.subtract.outer(np.asarray(values), np.asarray(values)))
        for values in (one, other)
    )
    scale = float(np.sqrt((x**2).sum() * (y**2).sum()))
    return float((x * y).sum()) / scale if scale else float("nan")


def train_supernet(
    space: ArchitectureSpace,
    train: Features,
    *,
    recipe: TrainingRecipe | None = None,
    random_networks: int = 2,
    folder: str | Path | None = None,
    progress: Progress = silent,
) -> Supernet:
    """Train the shared weights of all networks of a space by the sandwich rule.

    Each step trains the largest network by the classes, and the smallest and some random ones by
    what the largest predicts (Yu et al. 2020, "BigNAS"; Yu and Huang 2019).  Narrower networks use
    the leading channels of wider ones, shallower ones the first cells, and an operation has its own
    weights at each place.

    Parameters
    ----------
    space
        The networks.
    train
        The samples: images, float32, and classes, int64, by the names that the space declares.
    recipe
        How to train, and the seed.
    random_networks
        Number of random networks in each step.
    folder
        The run's folder; with one, a training that was interrupted continues.
    progress
        Shows the progress.

    Raises
    ------
    ConfigError
        If networks of the space cannot share weights, or the samples do not fit.
    """
    check_call(train_supernet, locals())
    recipe = recipe or TrainingRecipe()
    if not 0 <= random_networks <= 64:
        raise ConfigError(f"random_networks: expected 0 to 64, found {random_networks}")
    for needed in (space.input_name, space.target):
        if needed not in train:
            raise ConfigError(
                f"train: there is no {needed!r}; there are: {', '.join(train) or 'none'}"
            )
    module = _get_sandwich_class()(
        build_shared_weights(space, recipe.seed), random_networks, recipe.seed
    )
    identity = {"space": space.to_json(), "random_networks": random_networks}
    history = recipe.fit(module, train, folder=folder, identity=identity, progress=progress)
    return Supernet(space, history, module.shared, train)


@cache
def _get_sandwich_class() -> Any:
    import torch
    from torch import nn

    from nnpipe.training.outputs.classification import ClassificationOutput
    from nnpipe.training.outputs.embedding import EmbeddingOutput

    class Sandwich(nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        """The largest, the smallest and random networks for each batch."""

        def __init__(self, shared: Any, count: int, seed: int) -> None:
            super().__init__()
            self.shared, self.count, self.seed = shared, count, seed
            space = shared.space
            self.extremes = (space.get_extreme(-1), space.get_extreme(0))
            # Counted in the state, so that a resumed training draws the same networks.
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

        def forward(self, batch: Mapping[str, Any]) -> dict[str, Any]:
            """Return the outputs of one step."""
            space = self.shared.space
            random = np.random.default_rng([self.seed, int(self.steps)])
            self.steps += 1
            images, target = batch[space.input_name], batch[space.target]
            largest = self.shared.run(self.extremes[0], images)
            taught = largest.detach().softmax(1)
            found: dict[str, Any] = {"largest": ClassificationOutput(largest, target)}
            others = {"smallest": self.extremes[1]}
            others |= {f"random_{number}": space.sample(random) for number in range(self.count)}
            for name, configuration in others.items():
                logits = self.shared.run(configuration, images)
                losses = -(taught * logits.log_softmax(1)).sum(1)
                found[name] = EmbeddingOutput(logits, given=losses)
            return found

    return Sandwich
