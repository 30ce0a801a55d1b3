"""Weight clustering of exported PyTorch programs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from nnpipe.compilers._torch_program_compiler import TorchProgramCompiler
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.claims import Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.errors import CompileError
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.torch_program import load_program, matrices, replace_weights

_MOST_ROUNDS = 300

Vector = npt.NDArray[np.float64]


class TorchClusterer(TorchProgramCompiler):
    """Reduces the weights of exported PyTorch programs to a few values per tensor, found by k-means.

    Kernels and matrices are clustered; biases and normalisations are not (Han
    et al. 2016, arXiv:1510.00149).  The file is only smaller once it is
    compressed: with 16 values, to about an eighth.
    """

    num_clusters: int = argument(16, help="greatest number of different values per tensor", minimum=2, maximum=65536)
    centroids: Literal["linear", "density"] = argument(
        "linear",
        help="initial values of k-means: evenly spaced over the range, which separates the few large weights (linear), "
        "or with equally many weights per value (density)",
    )
    keep_zeros: bool = argument(True, help="keep weights that are 0, so that a pruned model stays pruned")

    def claims(self) -> tuple[Claim, ...]:
        """Return clustered weights."""
        return ("clustered",)

    def variant(self) -> str:
        """Return the number of values."""
        return f"clustered-{self.num_clusters}"

    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        import torch

        loaded = load_program(artifact.path)
        names = matrices(loaded.native)
        if not names:
            raise CompileError("it has no floating-point weights to cluster; cluster a model before it is quantised")
        state = {}
        for name in names:
            tensor = loaded.native.state_dict[name].detach()
            values = self._clustered(tensor.to(torch.float64).numpy())
            state[name] = torch.from_numpy(values).to(tensor.dtype)
        replace_weights(loaded.native, state)
        return self._save(loaded.native, destination)

    def _clustered(self, weights: Vector) -> Vector:
        values = weights.ravel().copy()
        zeros = (values == 0) if self.keep_zeros else np.zeros(values.shape, bool)
        number = self.num_clusters - int(zeros.any())
        values[~zeros] = clustered(values[~zeros], number, self.centroids == "density")
        found: Vector = values.reshape(weights.shape)
        return found


def clustered(values: Vector, number: int, by_density: bool = False) -> Vector:
    """Return each number replaced by the mean of its cluster, from Lloyd's algorithm on sorted numbers.

    Parameters
    ----------
    values
        Shape ``(n,)``.
    number
        Greatest number of clusters.
    by_density
        Whether initial clusters have equally many numbers, instead of being evenly spaced over the range.

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
