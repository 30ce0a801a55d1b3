"""Exported PyTorch programs whose weights take few different values."""

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
    """Exported PyTorch programs whose weights are each one of few values, found by k-means in every tensor.

    Kernels and matrices are clustered; biases and normalisations are not (Han
    et al. 2016, arXiv:1510.00149).  The file keeps its size until something
    compresses it: with 16 values, to about an eighth.
    """

    num_clusters: int = argument(16, help="greatest number of values in a tensor", minimum=2, maximum=65536)
    centroids: Literal["linear", "density"] = argument(
        "linear",
        help="where k-means starts: evenly over the range, which keeps the few large weights apart, or with as many "
        "weights around each value",
    )
    keep_zeros: bool = argument(True, help="leave weights that are 0 as they are, so that a pruned model stays pruned")

    def claims(self) -> tuple[Claim, ...]:
        """Weights of few values."""
        return ("clustered",)

    def variant(self) -> str:
        """Name the number of values."""
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
    """Replace each number by the mean of its cluster, by Lloyd's algorithm on sorted numbers.

    Parameters
    ----------
    values
        ``(n,)``.
    number
        Greatest number of clusters.
    by_density
        Start with as many numbers in each cluster instead of evenly over the range.

    Returns
    -------
    numpy.ndarray
        ``(n,)``; the same for the same numbers, in any order of them.
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
        # What nothing belongs to stays where it is; that keeps the order.
        moved = np.where(counts > 0, totals / np.maximum(counts, 1), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    found: Vector = centres[np.searchsorted((centres[1:] + centres[:-1]) / 2, values, side="left")]
    return found
