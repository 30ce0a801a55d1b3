"""A transform for worker processes, which import nothing heavy for it."""

from __future__ import annotations

from typing import Any

import numpy as np


def jitter(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Vary a sample."""
    return sample | {"x": sample["x"] + rng.normal(size=8).astype(np.float32)}
