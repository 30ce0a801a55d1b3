"""Made-up pictures with a mask of each thing: what is hidden belongs to no mask."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_contract import SyntheticContract

from nnpipe.core.dataset import Dataset
from nnpipe.datasets import SyntheticInstancesDataset
from nnpipe.tasks.instance_segmentation.run_lengths import (
    compute_run_areas,
    compute_run_intersections,
)


class TestSyntheticInstances(SyntheticContract):
    @pytest.fixture
    def dataset(self) -> Dataset:
        return SyntheticInstancesDataset(num_samples=60, image_size=(20, 26), data_seed=1)


def test_things_share_no_pixels() -> None:
    truth = SyntheticInstancesDataset(num_samples=80, image_size=(24, 20)).read(np.arange(80))[1]
    assert np.unique(truth["class"]).tolist() == [-1, 0, 1]
    for runs, classes in zip(truth["runs"], truth["class"], strict=True):
        own = runs[classes >= 0]
        assert (own.sum(axis=1) == 24 * 20).all()
        np.testing.assert_array_equal(
            compute_run_intersections(own, own), np.diag(compute_run_areas(own))
        )
