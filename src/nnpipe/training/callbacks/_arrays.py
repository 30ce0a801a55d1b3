"""Tensors of PyTorch and arrays of numpy, treated alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def array_of(value: Any) -> np.ndarray:
    """Return a tensor or an array as an array, fetched from the device it is on."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def joined(values: Sequence[Any]) -> np.ndarray:
    """Join tensors, or arrays, along their first axis; tensors by one transfer from their device."""
    if not hasattr(values[0], "detach"):
        return np.concatenate([np.asarray(value) for value in values])
    import torch

    return array_of(torch.cat([value.to(values[0].device) for value in values]))
