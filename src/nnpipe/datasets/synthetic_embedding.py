"""A synthetic data set of samples that are to be found by others of their class."""

from __future__ import annotations

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.tensors import TensorSpec
from nnpipe.datasets.in_memory import Samples
from nnpipe.datasets.synthetic import SyntheticDataset
from nnpipe.tasks.embedding.search import GALLERY, QUERY
from nnpipe.tasks.embedding.task import EmbeddingSearch


class SyntheticEmbeddingDataset(SyntheticDataset):
    """Embedding: each class is a direction, mixed with a few strong directions that all classes share.

    A third of the samples are queries, the others the gallery.  The vectors as they are find only some of their class;
    a model that suppresses what the classes share finds more.
    """

    num_classes: int = argument(20, help="number of classes", minimum=2, maximum=100_000)
    num_features: int = argument(32, help="length of the vectors", minimum=2, maximum=4096)
    shared: int = argument(4, help="number of directions that all classes share", minimum=0, maximum=4096)
    noise: float = argument(0.1, help="standard deviation of the noise of each number", minimum=0.0)

    @property
    def spec(self) -> DatasetSpec:
        """Vectors ``(n, num_features)``, and the class and the role of each."""
        return DatasetSpec(
            EmbeddingSearch.name,
            inputs=(TensorSpec("vector", (None, self.num_features), "float32"),),
            targets=(TensorSpec("label", (None,), "int64"), TensorSpec("role", (None,), "int64")),
            class_names=tuple(f"class {number}" for number in range(self.num_classes)),
        )

    def load(self) -> Samples:
        """Return random vectors, float32, with classes and roles, int64."""
        rng = np.random.default_rng(self.data_seed)
        centres = rng.standard_normal((self.num_classes, self.num_features)) / np.sqrt(self.num_features)
        shared = rng.standard_normal((self.shared, self.num_features)) / np.sqrt(self.num_features)
        label = rng.permutation(np.arange(self.num_samples) % self.num_classes)
        role = np.where(rng.random(self.num_samples) < 1 / 3, QUERY, GALLERY)
        vectors = centres[label] + 2 * rng.standard_normal((self.num_samples, self.shared)) @ shared
        vectors += self.noise * rng.standard_normal(vectors.shape)
        targets = {"label": label.astype(np.int64), "role": role.astype(np.int64)}
        return Samples({"vector": vectors.astype(np.float32)}, targets, self.spec.class_names)
