"""Differentiable architecture search: DARTS (Liu et al. 2019), first and second order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.architectures.architecture_space import SIZES, ArchitectureSpace, apply_operation
from nnpipe.architectures.cell_space import NONE, SKIP, CellSpace, format_edge_name
from nnpipe.architectures.training import Features, TrainingRecipe, compute_accuracy
from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError
from nnpipe.core.progress import Progress, silent
from nnpipe.experiment.state import State
from nnpipe.layers.graph.graph import NetworkGraph
from nnpipe.layers.torch.to_torch import to_torch
from nnpipe.layers.vocabulary.layer import Layer, Shape, Tensor, TorchParts
from nnpipe.training.callbacks.callback import Callback
from nnpipe.training.fit import TrainingRun

_SMALL = 1e-12


@dataclass(frozen=True)
class CollapseSigns:
    """Whether skip connections have won a differentiable search, and how sharp its minimum is.

    DARTS is known to end with cells of almost nothing but skip connections: they let the gradient
    of the mixture through before the other operations have learnt anything, and train badly alone
    (Zela et al. 2020, "Understanding and robustifying differentiable architecture search").  The
    search has collapsed if more than half of the cell's edges are skip connections, or none of its
    edges learns anything.

    The eigenvalue is told and not judged: where the architecture begins in an untrained network, it
    grows in healthy searches, too.

    Parameters
    ----------
    skips
        Number of edges of the cell that are skip connections.
    learning
        Number of edges with an operation that has weights to learn.
    edges
        Number of edges that have an operation.
    first_eigenvalue, last_eigenvalue
        The dominant eigenvalue of the validation loss's Hessian with respect to the architecture,
        after the first and the last epoch.
    """

    skips: int
    learning: int
    edges: int
    first_eigenvalue: float
    last_eigenvalue: float

    @classmethod
    def from_search(
        cls, cell: CellSpace, operations: Sequence[str], eigenvalues: Sequence[float]
    ) -> CollapseSigns:
        """Return the signs of the operations of a cell's edges, and of the eigenvalues by epoch."""
        learning = sum(cell.operation(name).cost()[0] > 0 for name in operations)
        return cls(
            operations.count(SKIP),
            learning,
            len(operations),
            float(eigenvalues[0]),
            float(eigenvalues[-1]),
        )

    @property
    def collapsed(self) -> bool:
        """Whether more than half of the edges are skip connections, or none learns."""
        return 2 * self.skips > self.edges or not self.learning

    def __str__(self) -> str:
        """Return the finding in one line."""
        word = "collapsed" if self.collapsed else "no collapse"
        growth = self.last_eigenvalue / max(abs(self.first_eigenvalue), _SMALL)
        first, last = f"{self.first_eigenvalue:.3g}", f"{self.last_eigenvalue:.3g}"
        return (
            f"{word}: {self.skips} of {self.edges} edges are skip connections, and {self.learning} "
            f"have weights; the dominant eigenvalue went from {first} to {last} ({growth:.1f} "
            f"times)"
        )


_SPREAD = 1e-3  # of the initial architecture parameters (Liu et al. 2019)


class WeightedSum(Layer):
    """The sum of several tensors of one shape, with weights that are given to its module before
    each call.
    """

    abstract: ClassVar[bool] = True  # it is only part of networks that are built here
    takes: ClassVar[tuple[int, int | None]] = (1, None)

    def _build_torch(self, *shapes: Shape) -> TorchParts:
        def call(module: Any, *xs: Any) -> Any:
            total = module.shares[0] * xs[0]
            for share, x in zip(module.shares[1:], xs[1:], strict=True):
                total = total + share * x
            return total

        return TorchParts(call)


def build_mixed_network(space: ArchitectureSpace, seed: int) -> Any:
    """Return the ``torch.nn.Module`` of a space in which every edge computes all operations.

    Its parameter ``alpha`` has one row for each edge and one column for each operation; the softmax
    of a row are the shares of the operations.  ``forward(batch)`` returns the output for the
    trainer.

    Raises
    ------
    ConfigError
        If the space has a choice besides those of the cell.
    """
    for name in SIZES:
        if len(space.sizes(name)) > 1:
            raise ConfigError(
                f"{name}: a differentiable search chooses operations only; give one number"
            )
    return _get_mixed_class()(space, seed)


@cache
def _get_mixed_class() -> Any:
    import torch
    from torch import nn

    from nnpipe.training.outputs.classification import ClassificationOutput

    class MixedNetwork(nn.Module):  # type: ignore[misc]  # PyTorch may not be installed for type checking
        """The network of all operations, each with its share."""

        def __init__(self, space: ArchitectureSpace, seed: int) -> None:
            super().__init__()
            cell, self.space = space.cell, space
            used = [place for place, name in enumerate(cell.names) if name != NONE]
            rows = {edge: row for row, edge in enumerate(cell.edges)}
            self.mixtures: dict[str, int] = {}

            def add_edge(name: str, place: tuple[int, int], start: Tensor, channels: int) -> Tensor:
                prefix = f"{name}_{format_edge_name(*place)}"
                results = [
                    apply_operation(cell.operations[n], prefix, start, channels, affine=False)
                    for n in used
                ]
                self.mixtures[f"{prefix}_sum"] = rows[place]
                return WeightedSum(results, name=f"{prefix}_sum")

            graph = space.build_stack(space.greatest("channels"), space.greatest("cells")).network(
                add_edge, "mixed"
            )
            self.network = to_torch(graph, seed=seed)
            self.used = used
            drawn = torch.randn(
                len(rows), len(cell.names), generator=torch.Generator().manual_seed(seed)
            )
            self.alpha = nn.Parameter(_SPREAD * drawn)

        def shares(self) -> Any:
            """Return the share of each operation in each edge."""
            return self.alpha.softmax(1)

        def weights(self) -> list[Any]:
            """Return all parameters but those of the architecture."""
            return [each for name, each in self.named_parameters() if name != "alpha"]

        def forward(self, batch: Mapping[str, Any], shares: Any = None) -> dict[str, Any]:
            """Return the output of a batch, with other shares if they are given."""
            rows = (self.shares() if shares is None else shares)[:, self.used]
            for name, row in self.mixtures.items():
                self.network.layers[self.network.names[name]].shares = rows[row]
            logits = self.network(batch[self.space.input_name])
            return {"class": ClassificationOutput(logits, batch[self.space.target])}

    return MixedNetwork


_BETAS = (0.5, 0.999)  # of Adam (Liu et al. 2019)
# of the finite difference, divided by the norm of the gradient (Liu et al. 2019)
_FINITE_STEP = 0.01
_JUDGED = 128  # samples of which the Hessian is taken
_ITERATIONS, _TOLERANCE = 10, 1e-2  # of the power iteration


class ArchitectureSteps(Callback):
    """Takes a step of the architecture before each step of the weights, and notes shares and
    eigenvalues by epoch.

    Parameters
    ----------
    alpha
        The architecture's parameters.
    validation
        The samples whose loss the architecture descends.
    order
        1 or 2; see :func:`nnpipe.architectures.darts.darts`.
    batch
        Samples in a batch.
    rate, decay
        Of Adam.
    """

    abstract: ClassVar[bool] = True  # it is only part of searches

    def __init__(
        self,
        alpha: Any,
        validation: Features,
        *,
        order: Literal[1, 2],
        batch: int,
        rate: float,
        decay: float,
    ) -> None:
        import torch

        self._validation = {
            name: torch.from_numpy(np.asarray(values)) for name, values in validation.items()
        }
        self._count = len(next(iter(self._validation.values())))
        if self._count < batch:
            raise ConfigError(
                f"batches of {batch} samples need at least as many samples to validate with"
            )
        self._order, self._batch = order, batch
        self.adam = torch.optim.Adam([alpha], lr=rate, betas=_BETAS, weight_decay=decay)
        self.state = State(shares=[], eigenvalues=[], vector=[])

    def on_batch_begin(self, fit: TrainingRun, batch: dict[str, Any]) -> None:
        """Take a step of the architecture."""
        import torch

        model, validation = fit.model, self._select_batch(fit)
        if self._order == 1:
            (gradient,) = torch.autograd.grad(_compute_loss(model, validation), [model.alpha])
        else:
            gradient = compute_unrolled_gradient(model, batch, validation, fit.optimiser)
        model.alpha.grad = gradient
        self.adam.step()
        model.alpha.grad = None

    def on_epoch_end(self, fit: TrainingRun) -> None:
        """Note the shares and the dominant eigenvalue."""
        model = fit.model
        model.train()
        self.state.shares = [*self.state.shares, model.shares().detach().tolist()]
        judged = {name: values[:_JUDGED] for name, values in self._validation.items()}
        eigenvalue, vector = compute_dominant_eigenvalue(
            _compute_loss(model, judged), model.alpha, self.state.vector
        )
        self.state.eigenvalues = [*self.state.eigenvalues, eigenvalue]
        self.state.vector = vector

    def _select_batch(self, fit: TrainingRun) -> dict[str, Any]:
        """Return a validation batch; which one depends on the seed and the step only."""
        batches = self._count // self._batch
        turn, place = divmod(fit.step, batches)
        order = fit.generator("architecture", turn).permutation(self._count)
        chosen = order[place * self._batch : (place + 1) * self._batch]
        return {name: values[chosen] for name, values in self._validation.items()}


def _compute_loss(model: Any, batch: dict[str, Any]) -> Any:
    return sum(output.loss() for output in model(batch).values())


def compute_unrolled_gradient(
    model: Any, train: dict[str, Any], validation: dict[str, Any], optimiser: Any
) -> Any:
    """Return the architecture's gradient of the validation loss after a step of the weights
    (equations 7 and 8).
    """
    import torch

    weights = model.weights()
    kept = [weight.detach().clone() for weight in weights]
    group = optimiser.param_groups[0]
    rate, momentum, decay = group["lr"], group.get("momentum", 0.0), group["weight_decay"]
    gradients = torch.autograd.grad(_compute_loss(model, train), weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            moved = optimiser.state.get(weight, {}).get("momentum_buffer")
            direction = gradient + decay * weight + (momentum * moved if moved is not None else 0.0)
            weight.sub_(rate * direction)
    direct, *at = torch.autograd.grad(_compute_loss(model, validation), [model.alpha, *weights])
    norm = torch.sqrt(sum(each.square().sum() for each in at))
    small = _FINITE_STEP / norm.clamp_min(1e-12)
    sides = []
    for sign in (1.0, -1.0):
        with torch.no_grad():
            for weight, before, gradient in zip(weights, kept, at, strict=True):
                weight.copy_(before + sign * small * gradient)
        sides.append(torch.autograd.grad(_compute_loss(model, train), [model.alpha])[0])
    with torch.no_grad():
        for weight, before in zip(weights, kept, strict=True):
            weight.copy_(before)
    return direct - rate * (sides[0] - sides[1]) / (2 * small)


def compute_dominant_eigenvalue(
    loss: Any, alpha: Any, start: list[float]
) -> tuple[float, list[float]]:
    """Return the eigenvalue of a loss's Hessian with the greatest absolute value, and its vector,
    by power iteration.

    Parameters
    ----------
    loss
        A scalar tensor.
    alpha
        The parameters.
    start
        The vector to begin with, such as that of the last epoch; empty for any.
    """
    import torch

    (gradient,) = torch.autograd.grad(loss, [alpha], create_graph=True)
    count = alpha.numel()
    drawn = np.random.default_rng(0).standard_normal(count)
    vector = torch.tensor(start or drawn.tolist(), dtype=alpha.dtype).reshape(alpha.shape)
    vector = vector / vector.norm().clamp_min(1e-12)
    value = 0.0
    for _ in range(_ITERATIONS):
        (product,) = torch.autograd.grad(gradient, [alpha], grad_outputs=vector, retain_graph=True)
        before, value = value, float((product * vector).sum())
        norm = product.norm()
        if float(norm) == 0.0:
            break
        vector = product / norm
        if abs(value - before) <= _TOLERANCE * abs(value):
            break
    return value, vector.flatten().tolist()


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
        The share of each operation in each edge after each epoch, shape (epochs, edges,
        operations).
    eigenvalues
        The dominant eigenvalue of the validation loss's Hessian with respect to the architecture,
        after each epoch.
    mixed_accuracy, cell_accuracy
        The accuracy on the validation samples of the mixture of all operations, and of the cell
        with the weights of the mixture; both with the statistics of the samples in normalisations.
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
        operations = self.space.cell.read_operations(self.configuration)
        return CollapseSigns.from_search(
            self.space.cell, list(operations.values()), self.eigenvalues.tolist()
        )

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

    The weights descend the loss on the training samples, and the architecture descends that on the
    validation samples, in turns, one batch each.  With the first order, the weights count as
    constant in the second step.  With the second order, the architecture's gradient is that after
    one step of the weights; its Hessian is not computed, but approximated by a finite difference
    (Liu et al. 2019, equation 8), which takes two more passes.

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
        Learning rate and weight decay of Adam for the architecture.  The rate is ten times that of
        the paper by default, because small tasks have few steps.
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
        raise ConfigError(
            f"architecture_rate must be positive and architecture_decay not negative: "
            f"{architecture_rate}, {architecture_decay}"
        )
    for name, features in (("train", train), ("validation", validation)):
        for needed in (space.input_name, space.target):
            if needed not in features:
                raise ConfigError(
                    f"{name}: there is no {needed!r}; there are: {', '.join(features) or 'none'}"
                )
    module = build_mixed_network(space, recipe.seed)
    steps = ArchitectureSteps(
        module.alpha,
        validation,
        order=order,
        batch=recipe.batch,
        rate=architecture_rate,
        decay=architecture_decay,
    )
    identity = {
        "space": space.to_json(),
        "order": order,
        "architecture_rate": architecture_rate,
        "architecture_decay": architecture_decay,
    }
    recipe.fit(
        module,
        train,
        parameters=module.weights(),
        callbacks=(steps,),
        folder=folder,
        identity=identity,
        progress=progress,
    )
    return _build_result(space, module, steps, validation)


def _build_result(
    space: ArchitectureSpace, module: Any, steps: ArchitectureSteps, validation: Features
) -> DartsResult:
    shares = np.array(steps.state.shares, np.float64)
    operations = select_strongest_operations(space.cell, shares[-1])
    module.train()  # normalise by the statistics of the samples
    mixed = compute_accuracy(module, validation)
    cell = compute_accuracy(_OneCell(module, space.cell, operations), validation)
    module.eval()
    return DartsResult(
        space,
        space.cell.configuration(operations),
        shares,
        np.array(steps.state.eigenvalues, np.float64),
        mixed,
        cell,
    )


def select_strongest_operations(cell: CellSpace, shares: Floats) -> dict[tuple[int, int], str]:
    """Return the operation of each edge that is kept: those with the greatest shares.

    An edge has the operation with the greatest share, ``none`` left out.  Of the edges into a node,
    those are kept whose operations have the greatest shares (Liu et al. 2019, section 2.4).

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
        edges = sorted(
            ((start, end) for start in range(end)), key=lambda edge: (-best[edge][0], edge)
        )
        found |= {edge: best[edge][1] for edge in sorted(edges[: cell.count_edges(end)])}
    return found


class _OneCell:
    """The mixed network with the shares of one cell."""

    training = True

    def __init__(
        self, module: Any, cell: CellSpace, operations: Mapping[tuple[int, int], str]
    ) -> None:
        import torch

        self._module = module
        self._shares = torch.zeros(len(cell.edges), len(cell.names))
        for edge, name in operations.items():
            self._shares[cell.edges.index(edge), cell.names.index(name)] = 1.0

    def __call__(self, batch: Mapping[str, Any]) -> Any:
        return self._module(batch, self._shares)
