"""What tells that a differentiable search has collapsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nnpipe.architectures.cell_space import CellSpace
from nnpipe.architectures.operations import SKIP

_SMALL = 1e-12


@dataclass(frozen=True)
class CollapseSigns:
    """Whether skip connections have won a differentiable search, and how sharp its minimum is.

    DARTS is known to end with cells of almost nothing but skip connections: they let the gradient of the mixture
    through before the other operations have learnt anything, and train badly alone (Zela et al. 2020, "Understanding
    and robustifying differentiable architecture search").  The search has collapsed if more than half of the cell's
    edges are skip connections, or none of its edges learns anything.

    The eigenvalue is told and not judged: where the architecture begins in an untrained network, it grows in healthy
    searches, too.

    Parameters
    ----------
    skips
        Number of edges of the cell that are skip connections.
    learning
        Number of edges with an operation that has weights to learn.
    edges
        Number of edges that have an operation.
    first_eigenvalue, last_eigenvalue
        The dominant eigenvalue of the validation loss's Hessian with respect to the architecture, after the first and
        the last epoch.
    """

    skips: int
    learning: int
    edges: int
    first_eigenvalue: float
    last_eigenvalue: float

    @classmethod
    def of(cls, cell: CellSpace, operations: Sequence[str], eigenvalues: Sequence[float]) -> CollapseSigns:
        """Return the signs of the operations of a cell's edges, and of the eigenvalues by epoch."""
        learning = sum(cell.operation(name).cost()[0] > 0 for name in operations)
        return cls(operations.count(SKIP), learning, len(operations), float(eigenvalues[0]), float(eigenvalues[-1]))

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
            f"{word}: {self.skips} of {self.edges} edges are skip connections, and {self.learning} have weights; "
            f"the dominant eigenvalue went from {first} to {last} ({growth:.1f} times)"
        )
