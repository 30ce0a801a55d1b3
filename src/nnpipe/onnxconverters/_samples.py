"""Inputs to compare models on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

COUNT = 3
"""Samples in a case: more than one, so that a batch axis which was exported as 1 shows."""


def some_inputs(shapes: Mapping[str, tuple[int, ...]], count: int = COUNT) -> dict[str, np.ndarray]:
    """Draw standard normal float32 numbers, the same ones every time; ``shapes`` are those of one sample."""
    random = np.random.default_rng(0)
    return {name: random.standard_normal((count, *shape)).astype(np.float32) for name, shape in shapes.items()}
