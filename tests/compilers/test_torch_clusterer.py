"""Clustered programs have few values, the best there are for so many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays
from network_contracts import TorchNetworkContract

from nnpipe.compilers.torch_pruner import TorchClusterer, TorchPruner, cluster_values
from nnpipe.core.artifact import Artifact
from nnpipe.core.tensors import generate_random_batch
from nnpipe.testing.model_files import NETWORK_IO

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

MATRICES = ("first.0.weight", "depthwise.0.weight", "pointwise.0.weight", "dense.weight")


class TestTorchClusterer(TorchNetworkContract):
    tolerance = 0.5  # of outputs between -8 and 8
    samples = (generate_random_batch(NETWORK_IO, 20, seed=0),)

    @pytest.fixture
    def compiler(self) -> TorchClusterer:
        return TorchClusterer(num_clusters=40, centroids="density", keep_zeros=False)


def test_only_matrices_are_clustered_and_zeros_stay(source: Artifact, tmp_path: Path) -> None:
    pruned = TorchPruner(sparsity=0.5).compile(source, tmp_path / "pruned.pt2")
    made = TorchClusterer(num_clusters=5).compile(pruned, tmp_path / "made.pt2")
    before = torch.export.load(pruned.path).state_dict
    after = torch.export.load(made.path).state_dict
    for name, tensor in before.items():
        if name in MATRICES:
            assert after[name].unique().numel() == 5, name
            torch.testing.assert_close(after[name] == 0, tensor == 0)
        else:
            torch.testing.assert_close(after[name], tensor, rtol=0, atol=0)


numbers = arrays(np.float64, some.integers(1, 60), elements=some.floats(-1e3, 1e3, width=32))


@given(numbers, some.integers(1, 12), some.booleans())
def test_no_number_lies_nearer_to_another_cluster(
    values: np.ndarray, number: int, by_density: bool
) -> None:
    found = cluster_values(values, number, by_density)
    assert found.shape == values.shape
    centres = np.unique(found)
    assert len(centres) <= number
    distance = np.abs(values[:, None] - centres).min(1)
    np.testing.assert_allclose(np.abs(values - found), distance, rtol=1e-9, atol=1e-9)


@given(numbers, some.integers(1, 12), some.randoms(use_true_random=False))
def test_the_order_of_numbers_does_not_matter(
    values: np.ndarray, number: int, random: object
) -> None:
    order = np.arange(len(values))
    random.shuffle(order)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(
        cluster_values(values[order], number), cluster_values(values, number)[order]
    )


def test_well_parted_numbers_get_a_cluster_each() -> None:
    values = np.array([9.5, 0, 0.5, 10, 5, 10.5, 5.5])
    np.testing.assert_allclose(cluster_values(values, 3), [10, 0.25, 0.25, 10, 5.25, 10, 5.25])
