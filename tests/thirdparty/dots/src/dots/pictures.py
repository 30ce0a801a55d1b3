"""Pictures with dots, and stored counts."""

from __future__ import annotations

import json

import numpy as np

from dots.counting import Counting
from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.core.tensors import DatasetSpec, TensorSpec
from nnpipe.datasets.in_memory import InMemoryDataset, Samples

_COUNT = TensorSpec("count", (None, 1), "float32")


class DotsDataset(InMemoryDataset):
    """Pictures of 8 x 8 pixels with up to eight bright dots."""

    num_samples: int = argument(600, help="how many pictures to make", minimum=10)

    @property
    def spec(self) -> DatasetSpec:
        """Grey pictures and the number of dots."""
        return DatasetSpec(
            Counting.name, (TensorSpec("image", (None, 8, 8, 1), "float32"),), (_COUNT,)
        )

    def load(self) -> Samples:
        """Draw the pictures, float32 ``(n, 8, 8, 1)``, and the numbers of dots, float32 ``(n,
        1)``.
        """
        rng = np.random.default_rng(0)
        counts = rng.integers(0, 9, self.num_samples)
        places = rng.permuted(np.tile(np.arange(64), (self.num_samples, 1)), axis=1)
        brightness = (places < counts[:, None]) * rng.uniform(0.7, 1.3, places.shape)
        images = brightness.reshape(-1, 8, 8, 1) + rng.normal(0, 0.05, (self.num_samples, 8, 8, 1))
        return Samples(
            {"image": images.astype(np.float32)}, {"count": counts[:, None].astype(np.float32)}
        )


class CountsDataset(InMemoryDataset):
    """Stored counts: a JSON file with a list of pairs, the true count and the predicted one."""

    @property
    def spec(self) -> DatasetSpec:
        """The predicted count as the input, and the true one."""
        return DatasetSpec(Counting.name, (_COUNT,), (_COUNT,))

    def load(self) -> Samples:
        """Read the pairs; all of them are for testing."""
        try:
            pairs = np.array(json.loads(self.dataset_root.read_text("utf-8")), np.float32).reshape(
                -1, 2
            )
        except (OSError, ValueError, TypeError) as error:
            raise DatasetError(f"{self.dataset_root}: no list of pairs: {error}") from None
        official = np.full(len(pairs), 2)
        return Samples({"count": pairs[:, 1:]}, {"count": pairs[:, :1]}, official=official)
