"""Check class numbers before they are used as indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import SpecMismatch


def checked_labels(name: str, labels: npt.ArrayLike, num_classes: int) -> npt.NDArray[Any]:
    """Return ``labels`` as an array of shape ``(samples,)`` after checking that each is from 0 to ``num_classes - 1``.

    Raises
    ------
    SpecMismatch
        If they are not one-dimensional, not integers, or out of range; the
        message names the first wrong one.
    """
    array = np.asarray(labels)
    if array.ndim != 1:
        raise SpecMismatch(f"{name} must have one class number per sample, but its shape is {array.shape}")
    if array.size == 0:
        return array.astype(np.intp)
    if array.dtype.kind not in "iu":
        raise SpecMismatch(f"{name} must hold integer class numbers, but is {array.dtype}; convert it with astype")
    if array.min() < 0 or array.max() >= num_classes:
        first = int(np.argmax((array < 0) | (array >= num_classes)))
        raise SpecMismatch(
            f"{name}[{first}] is {array[first]}, but with {num_classes} classes labels go from 0 to {num_classes - 1}"
        )
    return array


def check_lengths(**arrays: npt.NDArray[Any]) -> None:
    """Raise :class:`SpecMismatch` unless all arrays have the same number of entries."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length:,}" for name, length in lengths.items())
        raise SpecMismatch(f"these arrays must have one entry per sample each, but {listed}")
