"""Seeding the global random generators."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators of Python, numpy and, if it is imported, PyTorch; restore them at the end of the block."""
    torch = sys.modules.get("torch")
    python, numpy = random.getstate(), np.random.get_state()
    layers = torch.get_rng_state() if torch is not None else None
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if torch is not None:
        torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        if torch is not None:
            torch.set_rng_state(layers)
