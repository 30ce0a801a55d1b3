"""The made-up data set of embeddings: reproducible, and better when what the classes share is
removed.
"""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_contract import SyntheticContract

from nnpipe.datasets.synthetic_pictures import SyntheticEmbeddingDataset


class TestSyntheticEmbedding(SyntheticContract):
    @pytest.fixture
    def dataset(self):
        return SyntheticEmbeddingDataset(
            num_samples=60, num_classes=4, num_features=12, shared=2, data_seed=1
        )

    def perfect(self, dataset, truth):
        return dataset.task.perfect(truth, dataset.spec)


def test_vectors_without_the_shared_directions_find_more():
    dataset = SyntheticEmbeddingDataset()
    inputs, truth = dataset.read(np.arange(len(dataset)))
    vectors = inputs["vector"]
    _, _, directions = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    cleaned = vectors - vectors @ directions[:4].T @ directions[:4]
    found = [
        dataset.task.primary.compute(
            dataset.task.finalize(dataset.evaluate({"embedding": each}, truth))
        )
        for each in (vectors, cleaned)
    ]
    assert 0.2 < found[0] < found[1] < 1.01
