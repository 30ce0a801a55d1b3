"""Inputs for comparing models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

COUNT = 3
"""Samples per case: more than one, to detect a batch axis that was exported with length 1."""


def make_random_inputs(
    shapes: Mapping[str, tuple[int, ...]], count: int = COUNT
) -> dict[str, np.ndarray]:
    """Return reproducible standard normal float32 numbers, ``(count, *shape)`` for each shape of
    one sample.
    """
    random = np.random.default_rng(0)
    return {
        name: random.standard_normal((count, *shape)).astype(np.float32)
        for name, shape in shapes.items()
    }
