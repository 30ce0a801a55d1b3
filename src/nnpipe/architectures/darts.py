"""Differentiable architecture search: DARTS (Liu et al. 2019), first and second order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.architectures.architecture_space import ArchitectureSpace
from nnpipe.architectures.architecture_steps import ArchitectureSteps
from nnpipe.architectures.cell_space import CellSpace
from nnpipe.architectures.collapse import CollapseSigns
from nnpipe.architectures.mixed_network import mixed_network
from nnpipe.architectures.operations import NONE
from nnpipe.architectures.training import Features, TrainingRecipe, accuracy_of
from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import Progress, silent
from nnpipe.layers.graph.graph import NetworkGraph

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DartsResult:
    """What a differentiable search found.

    Parameters
    ----------
    space
        What was searched.
    configuration
        The cell: the strongest edges and operations.
    shares
        The share of each operation in each edge after each epoch, shape (epochs, edges, operations).
    eigenvalues
        The dominant eigenvalue of the validation loss's Hessian with respect to the architecture, after each epoch.
    mixed_accuracy, cell_accuracy
        The accuracy on the validation samples of the mixture of all operations, and of the cell with the weights of the
        mixture; both with the statistics of the samples in normalisations.
    """

    space: ArchitectureSpace
    configuration: Mapping[str, Any]
    shares: Floats
    eigenvalues: Floats
    mixed_accuracy: float
    cell_accuracy: float

    @property
    def network(self) -> NetworkGraph:
        """The network of the cell, to be trained anew."""
        return self.space.network(self.configuration, "darts")

    @property
    def signs(self) -> CollapseSigns:
        """What tells whether the search collapsed."""
        operations = self.space.cell.operations_of(self.configuration)
        return CollapseSigns.of(self.space.cell, list(operations.values()), self.eigenvalues.tolist())

    def __str__(self) -> str:
        edges = ", ".join(f"{name}: {value}" for name, value in self.configuration.items())
        return f"{edges}\n{self.signs}"


def darts(
    space: ArchitectureSpace,
    train: Features,
    validation: Features,
    *,
    order: Literal[1, 2] = 1,
    recipe: TrainingRecipe | None = None,
    architecture_rate: float = 3e-3,
    architecture_decay: float = 1e-3,
    folder: str | Path | None = None,
    progress: Progress = silent,
) -> DartsResult:
    """Search a cell by gradient descent on the shares of its operations.

    The weights descend the loss on the training samples, and the architecture descends that on the validation samples,
    in turns, one batch each.  With the first order, the weights count as constant in the second step.  With the second
    order, the architecture's gradient is that after one step of the weights; its Hessian is not computed, but
    approximated by a finite difference (Liu et al. 2019, equation 8), which takes two more passes.

    Parameters
    ----------
    space
        What is searched; channels and cells must be fixed.
    train, validation
        Samples: images, float32, and classes, int64, by the names that the space declares.
    order
        1, or 2, which takes about three times as long.
    recipe
        How the weights are trained, and the seed.
    architecture_rate, architecture_decay
        Learning rate and weight decay of Adam for the architecture.  The rate is ten times that of the paper by
        default, because small tasks have few steps.
    folder
        The run's folder; with one, a search that was interrupted continues.
    progress
        Shows the progress.

    Returns
    -------
    DartsResult
        The cell, and whether the search collapsed.

    Raises
    ------
    ConfigError
        If the space has a choice of channels or cells, or samples do not fit.
    """
    check_call(darts, locals())
    recipe = recipe or TrainingRecipe()
    if architecture_rate <= 0 or architecture_decay < 0:
        raise ConfigError(f"architecture_rate must be positive and architecture_decay not negative: "
                          f"{architecture_rate}, {architecture_decay}")  # fmt: skip
    for name, features in (("train", train), ("validation", validation)):
        for needed in (space.input_name, space.target):
            if needed not in features:
                raise ConfigError(f"{name}: there is no {needed!r}; there are: {', '.join(features) or 'none'}")
    module = mixed_network(space, recipe.seed)
    steps = ArchitectureSteps(
        module.alpha, validation, order=order, batch=recipe.batch, rate=architecture_rate, decay=architecture_decay
    )
    identity = {
        "space": space.to_json(), "order": order, "architecture_rate": architecture_rate,
        "architecture_decay": architecture_decay,
    }  # fmt: skip
    recipe.fit(
        module, train, parameters=module.weights(), callbacks=(steps,), folder=folder, identity=identity,
        progress=progress,
    )  # fmt: skip
    return _result(space, module, steps, validation)


def _result(space: ArchitectureSpace, module: Any, steps: ArchitectureSteps, validation: Features) -> DartsResult:
    shares = np.array(steps.state.shares, np.float64)
    operations = strongest(space.cell, shares[-1])
    module.train()  # normalise by the statistics of the samples
    mixed = accuracy_of(module, validation)
    cell = accuracy_of(_OneCell(module, space.cell, operations), validation)
    module.eval()
    return DartsResult(
        space, space.cell.configuration(operations), shares, np.array(steps.state.eigenvalues, np.float64), mixed, cell
    )


def strongest(cell: CellSpace, shares: Floats) -> dict[tuple[int, int], str]:
    """Return the operation of each edge that is kept: those with the greatest shares.

    An edge has the operation with the greatest share, ``none`` left out.  Of the edges into a node, those are kept
    whose operations have the greatest shares (Liu et al. 2019, section 2.4).

    Parameters
    ----------
    cell
        The cell.
    shares
        Of each operation in each edge, shape (edges, operations).
    """
    usable = [place for place, name in enumerate(cell.names) if name != NONE]
    best = {}
    for edge, row in zip(cell.edges, shares, strict=True):
        place = max(usable, key=lambda column: (row[column], -column))
        best[edge] = (float(row[place]), cell.names[place])
    found: dict[tuple[int, int], str] = {}
    for end in cell.computed:
        edges = sorted(((start, end) for start in range(end)), key=lambda edge: (-best[edge][0], edge))
        found |= {edge: best[edge][1] for edge in sorted(edges[: cell.kept(end)])}
    return found


class _OneCell:
    """The mixed network with the shares of one cell."""

    training = True

    def __init__(self, module: Any, cell: CellSpace, operations: Mapping[tuple[int, int], str]) -> None:
        import torch

        self._module = module
        self._shares = torch.zeros(len(cell.edges), len(cell.names))
        for edge, name in operations.items():
            self._shares[cell.edges.index(edge), cell.names.index(name)] = 1.0

    def __call__(self, batch: Mapping[str, Any]) -> Any:
        return self._module(batch, self._shares)
