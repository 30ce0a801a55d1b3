"""Tensors of PyTorch and arrays of numpy, treated alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def array_of(value: Any) -> np.ndarray:
    """Return a tensor or an array as a numpy array, fetched from its device."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def joined(values: Sequence[Any]) -> np.ndarray:
    """Join tensors or arrays along their first axis into one array; tensors are fetched in one transfer."""
    if not hasattr(values[0], "detach"):
        return np.concatenate([np.asarray(value) for value in values])
    import torch

    return array_of(torch.cat([value.to(values[0].device) for value in values]))
