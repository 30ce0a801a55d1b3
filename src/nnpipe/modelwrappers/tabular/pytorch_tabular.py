"""A small network for tables in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.tensors import Batch
from nnpipe.modelwrappers.frameworks.pytorch import PyTorchWrapper
from nnpipe.modelwrappers.tabular._tabular_model import VALUE, TabularModel


class PyTorchTabularNetwork(TabularModel, PyTorchWrapper):
    """Dense layers with ReLU over the columns of a table, in PyTorch."""

    hidden: tuple[int, ...] = argument(
        (64, 32), help="neurons of each hidden layer", minimum=1, maximum=1 << 16
    )

    @property
    def score_name(self) -> str:  # type: ignore[override]  # depends on the task
        """``accuracy``, or the mean absolute error."""
        return "accuracy" if self.classifies_rows else "mae"

    def build(self) -> Any:
        """Return the network with random weights."""
        from torch import nn

        layers: list[Any] = []
        width = self.width
        for neurons in self.hidden:
            layers += [nn.Linear(width, neurons), nn.ReLU()]
            width = neurons
        return nn.Sequential(*layers, nn.Linear(width, self.num_classes or 1))

    def loss(self, outputs: tuple[Any, ...], truth: Mapping[str, Any]) -> Any:
        """Return the cross entropy, or the mean squared error."""
        import torch

        if self.classifies_rows:
            return super().loss(outputs, truth)
        return torch.nn.functional.mse_loss(outputs[0][:, 0], truth[VALUE].float())

    def score(self, outputs: tuple[Any, ...], truth: Mapping[str, Any]) -> Any:
        """Return the accuracy, or the mean absolute error."""
        if self.classifies_rows:
            return super().score(outputs, truth)
        return (outputs[0][:, 0] - truth[VALUE]).abs().double().mean()

    def finish(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return probabilities, or numbers."""
        return super().finish(outputs) if self.classifies_rows else (outputs[0].reshape(-1),)

    def classifies(self) -> bool:
        """Return whether there are classes."""
        return self.classifies_rows

    def random_truth(self, size: int, seed: int) -> Batch:
        """Return random classes or numbers."""
        if self.classifies_rows:
            return super().random_truth(size, seed)
        return {VALUE: np.random.default_rng(seed).standard_normal(size).astype(np.float32)}
