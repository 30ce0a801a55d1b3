"""Points on rings."""

from __future__ import annotations

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.datasets.in_memory import InMemoryDataset, Samples


class RingsDataset(InMemoryDataset):
    """Points on two rings around the same centre; tell the inner ring from the outer one."""

    num_samples: int = argument(200, help="how many points to make", minimum=10)
    noise: float = argument(
        0.1, help="standard deviation of a point's distance from its ring", minimum=0.0
    )

    def load(self) -> Samples:
        """Draw the points, float32 ``(n, 2)``, and their class, int64 ``(n,)``."""
        rng = np.random.default_rng(0)
        ring = np.arange(self.num_samples, dtype=np.int64) % 2
        angle = rng.uniform(0, 2 * np.pi, self.num_samples)
        radius = 1 + ring + self.noise * rng.standard_normal(self.num_samples)
        points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return Samples({"point": points.astype(np.float32)}, {"label": ring}, ("inner", "outer"))
