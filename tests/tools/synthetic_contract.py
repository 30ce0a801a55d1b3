"""What every synthetic data set must do beside the contract of data sets."""

from __future__ import annotations

import dataclasses

import numpy as np

from nnpipe.testing.dataset import DatasetContract


class SyntheticContract(DatasetContract):
    needs_files = False

    def test_another_seed_makes_other_samples(self, prepared):
        other = dataclasses.replace(prepared, data_seed=prepared.data_seed + 1)
        indices = np.arange(len(prepared))
        for name, array in prepared.read(indices)[0].items():
            assert not np.array_equal(array, other.read(indices)[0][name])

    def test_as_many_samples_as_asked_for(self, prepared):
        assert len(prepared) == prepared.num_samples == 60
        assert len(dataclasses.replace(prepared, num_samples=1)) == 1
