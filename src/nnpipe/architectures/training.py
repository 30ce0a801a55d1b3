"""Training one architecture on arrays, in the same way as every other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import Progress, silent
from nnpipe.experiment.history import History
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.graph.weights import Weights
from nnpipe.layers.torch.to_torch import torch_weights
from nnpipe.layers.torch.to_trainer import to_trainer
from nnpipe.training.optimization import SGD, Cosine
from nnpipe.training.options import TrainerOptions
from nnpipe.training.sequences.array import ArraySequence
from nnpipe.training.sequences.samplers import RandomSampler
from nnpipe.training.trainer import Trainer

if TYPE_CHECKING:
    from nnpipe.training.callbacks.callback import Callback

Features = Mapping[str, Any]
"""Arrays by name, whose first axis counts the samples."""


@dataclass(frozen=True)
class TrainingRecipe:
    """How architectures are trained: stochastic gradient descent with momentum and half a cosine
    for its rate.

    Parameters
    ----------
    epochs
        How often to go through the training samples.
    batch
        Samples in a batch.
    rate, weight_decay
        Learning rate at the beginning, and weight decay.
    clip_norm
        Greatest norm of all gradients together.
    seed
        Seed of initial weights and of the order of samples.
    """

    epochs: int = 10
    batch: int = 32
    rate: float = 0.05
    weight_decay: float = 3e-4
    clip_norm: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_call(TrainingRecipe, vars(self))
        if self.epochs < 1 or self.batch < 2 or self.rate <= 0 or self.seed < 0:
            raise ConfigError(
                f"expected at least 1 epoch, batches of 2 samples, a positive rate and a seed from "
                f"0; found {self}"
            )

    def fit(
        self,
        module: Any,
        features: Features,
        *,
        parameters: list[Any] | None = None,
        callbacks: tuple[Callback, ...] = (),
        folder: str | Path | None = None,
        identity: Mapping[str, Any] | None = None,
        progress: Progress = silent,
    ) -> History:
        """Train a module whose ``forward(batch)`` returns outputs, and return its history."""
        # Batch normalisation cannot take a single remaining sample.
        sequence = ArraySequence(
            features, batch=self.batch, sampler=RandomSampler(), seed=self.seed, drop_last=True
        )
        if not len(sequence):
            raise ConfigError(
                f"batches of {self.batch} samples need at least as many samples to train on"
            )
        options = TrainerOptions(
            num_epochs=self.epochs, seed=self.seed, clip_norm=self.clip_norm, train_metrics=False
        )
        optimiser = SGD(rate=self.rate, nesterov=False, weight_decay=self.weight_decay)
        return Trainer(options, callbacks).fit(
            module,
            {"data": {"train": sequence}},
            optimiser=optimiser,
            schedule=Cosine(),
            parameters=parameters,
            folder=folder,
            identity=identity or {},
            progress=progress,
        )


@dataclass(frozen=True)
class TrainedNetwork:
    """A network with the weights of a training.

    Parameters
    ----------
    graph
        The network.
    weights
        Its weights, in the form of :mod:`nnpipe.layers`.
    history
        The history of the training.
    """

    graph: NetworkGraph
    weights: Weights
    history: History

    def accuracy(self, features: Features) -> float:
        """Return the share of samples whose class is found."""
        return compute_accuracy(to_trainer(self.graph, self.weights), features)


def train_network(
    graph: NetworkGraph,
    features: Features,
    recipe: TrainingRecipe,
    *,
    folder: str | Path | None = None,
    progress: Progress = silent,
) -> TrainedNetwork:
    """Train a declared network from its initial weights.

    Parameters
    ----------
    graph
        A network whose outputs declare their losses.
    features
        The training samples: images, float32, and classes, int64, by the names that the network
        declares.
    recipe
        How to train.
    folder
        The run's folder; with one, a training that was interrupted continues.
    progress
        Shows the progress.

    Raises
    ------
    ConfigError
        If the network has problems or the samples do not fit.
    """
    check_call(train_network, locals())
    module = to_trainer(graph, seed=recipe.seed)
    history = recipe.fit(module, features, folder=folder, progress=progress)
    return TrainedNetwork(graph, torch_weights(module.network), history)


def compute_accuracy(module: Any, features: Features, batch: int = 256) -> float:
    """Return the share of samples whose class a module for the trainer finds; its mode stays as
    it is.
    """
    import torch

    count, right = len(next(iter(features.values()))), 0
    with torch.no_grad():
        if module.training:
            batch = count  # statistics of a batch depend on which samples are in it
        for begin in range(0, count, batch):
            part = {
                name: torch.from_numpy(np.asarray(values[begin : begin + batch]))
                for name, values in features.items()
            }
            (output,) = module(part).values()
            right += int((output.predictions() == output.target).sum())
    return right / count
