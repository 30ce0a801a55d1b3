"""Joining samples to batches, and cutting batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnpipe.core.errors import ConfigError

IDENTITY = ("sample_id", "sample_repeat")
"""The feature that identifies a sample; functions do not change it."""


def join_values(values: Sequence[Any]) -> Any:
    """Return one array if all values are numbers or arrays of one shape and type, else a list."""
    first = values[0]
    if isinstance(first, (bool, int, float)):
        alike = all(isinstance(value, (bool, int, float)) for value in values)
        return np.asarray(values) if alike else list(values)
    if isinstance(first, str) or not hasattr(first, "__array__"):
        return list(values)
    if not all(hasattr(value, "__array__") for value in values):
        return list(values)
    arrays = [np.asarray(value) for value in values]
    if all(array.shape == arrays[0].shape and array.dtype == arrays[0].dtype for array in arrays):
        return np.stack(arrays)
    return list(values)


def concat_fields(parts: Sequence[Any]) -> Any:
    """Join fields of batches, to an array if all are arrays that fit together, else to a list."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    if all(
        isinstance(part, np.ndarray)
        and part.shape[1:] == first.shape[1:]
        and part.dtype == first.dtype
        for part in parts
    ):
        return np.concatenate(parts)
    return [item for part in parts for item in part]


def merge_batches(batches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Join batches into one."""
    if len(batches) == 1:
        return batches[0]
    names = list(batches[0])
    for batch in batches:
        if set(batch) != set(names):
            raise ConfigError(
                f"cannot join batches with {', '.join(names)} and with {', '.join(batch)}"
            )
    return {name: concat_fields([batch[name] for batch in batches]) for name in names}


def slice_batch(batch: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    """Return samples ``start`` to ``stop`` of a batch; if these are all samples, the batch
    itself.
    """
    if start == 0 and stop >= len(batch["sample_id"]):
        return batch
    return {
        name: value[start:stop].copy() if isinstance(value, np.ndarray) else value[start:stop]
        for name, value in batch.items()
    }


def validate_batch(
    found: Any, ids: np.ndarray | None = None, where: str = "the batch"
) -> dict[str, Any]:
    """Check that a value is a batch and return it; missing ids are restored if the number of
    samples is unchanged.

    Raises
    ------
    ConfigError
        If it is not a dictionary, has no ids, or its fields differ in length.
    """
    if not isinstance(found, dict):
        raise ConfigError(
            f"{where} is a {type(found).__name__}, not a dictionary of arrays and lists by name"
        )
    batch: dict[str, Any] = found
    lengths = {}
    for name, value in batch.items():
        try:
            lengths[name] = len(value)
        except TypeError:
            raise ConfigError(
                f"{where}: {name!r} is a {type(value).__name__} without a length"
            ) from None
    if "sample_id" not in batch:
        if ids is None or any(length != len(ids) for length in lengths.values()):
            raise ConfigError(f"{where} has no 'sample_id', and its fields have {lengths} samples")
        batch = {**batch, "sample_id": ids}
    if any(length != len(batch["sample_id"]) for length in lengths.values()):
        raise ConfigError(f"{where}: the fields differ in length: {lengths}")
    return batch
