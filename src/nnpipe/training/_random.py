"""Seeding, saving and restoring the generators of PyTorch, numpy and Python; generators derived
from a purpose.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np


def create_generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """Return a generator that depends only on the arguments."""
    word = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "little")
    return np.random.default_rng([seed, word, *numbers])


def seed_all(seed: int, device: str) -> None:
    """Seed the three global generators, and that of the device."""
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if device.startswith("cuda"):
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device == "mps":
        torch.mps.manual_seed(seed)


def get_random_states(device: str) -> dict[str, Any]:
    """Return the states of the global generators, as a state file can hold them."""
    import torch

    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    found = {
        "python": {"version": version, "words": np.array(words, np.uint32), "gauss": gauss},
        "numpy": {
            "name": name,
            "keys": np.array(keys),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "torch": torch.get_rng_state(),
    }
    if device.startswith("cuda"):
        found["cuda"] = torch.cuda.get_rng_state(device)
    elif device == "mps":
        found["mps"] = torch.mps.get_rng_state()
    return found


def set_random_states(states: Mapping[str, Any], device: str) -> None:
    """Restore the states that :func:`get_random_states` returned; that of another kind of device is
    ignored.
    """
    import torch

    python, numpy = states["python"], states["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    np.random.set_state(
        (numpy["name"], numpy["keys"], numpy["position"], numpy["has_gauss"], numpy["cached"])
    )
    torch.set_rng_state(states["torch"])
    if "cuda" in states and device.startswith("cuda"):
        torch.cuda.set_rng_state(states["cuda"], device)
    elif "mps" in states and device == "mps":
        torch.mps.set_rng_state(states["mps"])


@contextmanager
def preserve_rng_state(device: str) -> Iterator[None]:
    """Restore the random states at the end of the block."""
    before = get_random_states(device)
    try:
        yield
    finally:
        set_random_states(before, device)
