"""A network whose edges compute a weighted sum of all operations: the continuous relaxation of DARTS."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from nnpipe.architectures.architecture_space import SIZES, ArchitectureSpace
from nnpipe.architectures.cell_space import edge_name
from nnpipe.architectures.operations import NONE
from nnpipe.architectures.stacking import applied
from nnpipe.core.errors import ConfigError
from nnpipe.layers.torch.to_torch import to_torch
from nnpipe.layers.vocabulary.layer import Layer, Shape, Tensor, TorchParts

_SPREAD = 1e-3  # of the initial architecture parameters (Liu et al. 2019)


class WeightedSum(Layer):
    """The sum of several tensors of one shape, with weights that are given to its module before each call."""

    abstract: ClassVar[bool] = True  # it is only part of networks that are built here
    takes: ClassVar[tuple[int, int | None]] = (1, None)

    def _torch(self, *shapes: Shape) -> TorchParts:
        def call(module: Any, *xs: Any) -> Any:
            total = module.shares[0] * xs[0]
            for share, x in zip(module.shares[1:], xs[1:], strict=True):
                total = total + share * x
            return total

        return TorchParts(call)


def mixed_network(space: ArchitectureSpace, seed: int) -> Any:
    """Return the ``torch.nn.Module`` of a space in which every edge computes all operations.

    Its parameter ``alpha`` has one row for each edge and one column for each operation; the softmax of a row are the
    shares of the operations.  ``forward(batch)`` returns the output for the trainer.

    Raises
    ------
    ConfigError
        If the space has a choice besides those of the cell.
    """
    for name in SIZES:
        if len(space.sizes(name)) > 1:
            raise ConfigError(f"{name}: a differentiable search chooses operations only; give one number")
    return _mixed_class()(space, seed)


@cache
def _mixed_class() -> Any:
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

            def edge(name: str, place: tuple[int, int], start: Tensor, channels: int) -> Tensor:
                prefix = f"{name}_{edge_name(*place)}"
                results = [applied(cell.operations[n], prefix, start, channels, affine=False) for n in used]
                self.mixtures[f"{prefix}_sum"] = rows[place]
                return WeightedSum(results, name=f"{prefix}_sum")

            graph = space.stack(space.greatest("channels"), space.greatest("cells")).network(edge, "mixed")
            self.network = to_torch(graph, seed=seed)
            self.used = used
            drawn = torch.randn(len(rows), len(cell.names), generator=torch.Generator().manual_seed(seed))
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
