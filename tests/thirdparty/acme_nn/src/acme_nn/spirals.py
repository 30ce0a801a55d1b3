"""Two spirals: a data set that is made, not downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.datasets.in_memory import InMemoryDataset, Samples


class SpiralsDataset(InMemoryDataset):
    """Points on two spirals that wind around each other; tell which spiral a point lies on."""

    num_samples: int = argument(600, help="how many points to make", minimum=10)
    turns: float = argument(1.0, help="how often each spiral goes round", minimum=0.1)
    noise: float = argument(
        0.05, help="standard deviation of the points around their spiral", minimum=0.0
    )
    data_seed: int = argument(0, help="seed that the points are drawn from", minimum=0)

    def load(self) -> Samples:
        """Draw the points, float32 ``(n, 2)``, and their spiral, int64 ``(n,)``."""
        rng = np.random.default_rng(self.data_seed)
        labels = np.arange(self.num_samples, dtype=np.int64) % 2
        radius = np.sqrt(rng.uniform(0.02, 1.0, self.num_samples))
        angle = 2 * np.pi * self.turns * radius + np.pi * labels
        points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        points += self.noise * rng.standard_normal(points.shape)
        return Samples(
            {"point": points.astype(np.float32)}, {"label": labels}, ("inner start", "outer start")
        )

    def origin(self) -> Mapping[str, Any]:
        """Say that nothing of this is real."""
        return {"name": "two spirals, made by acme-nn", "licence": "none needed"}
