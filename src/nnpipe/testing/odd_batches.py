"""Batches that sessions should take although they are unusual, and batches that they should refuse."""

from __future__ import annotations

import numpy as np

from nnpipe.core.tensors import Batch


def scattered(array: np.ndarray) -> np.ndarray:
    """Return an equal array whose elements are not contiguous in memory."""
    if not array.ndim:
        return array
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


MISMATCHES = ("missing", "extra", "renamed", "dtype", "rank")
"""Kinds of errors in a batch; see :func:`damaged`."""


def damaged(batch: Batch, name: str, damage: str) -> dict[str, np.ndarray]:
    """Return a batch with an error in one tensor."""
    found = dict(batch)
    array = found.pop(name)
    if damage == "extra":
        found |= {name: array, name + "_too": array}
    elif damage == "renamed":
        found[name + "_too"] = array
    elif damage == "dtype":
        found[name] = np.ones(array.shape, "float64" if array.dtype != np.float64 else "float32")
    elif damage == "rank":
        found[name] = array[None]
    return found
