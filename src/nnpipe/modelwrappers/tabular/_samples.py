"""The encoded rows of a data set, for models that are fitted to all of them at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import DatasetError
from nnpipe.modelwrappers.tabular._tabular_model import INPUT, VALUE, TabularModel

_AT_ONCE = 1 << 16
_NOISE = 256  # rows


def noise(width: int, classes: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return rows of noise with labels, or with numbers if there are no classes, for models without a training."""
    rows = np.random.default_rng(0).standard_normal((_NOISE, width)).astype(np.float32)
    return rows, np.arange(_NOISE) % (classes or _NOISE)


def encoded_split(wrapper: TabularModel, dataset: Dataset, split: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the model's inputs ``(n, values)`` float32 and the targets ``(n,)`` of one split.

    Raises
    ------
    DatasetError
        If the split is empty.
    """
    dataset.prepare()
    indices = dataset.split(split)
    if not len(indices):
        raise DatasetError(f"{type(dataset).__name__}: its split {split!r} is empty")
    rows, truth = [], []
    for inputs, targets in dataset.batches(indices, _AT_ONCE):
        rows.append(wrapper.preprocess(inputs)[INPUT])
        truth.append(targets["label" if wrapper.classifies_rows else VALUE])
    return np.concatenate(rows), np.concatenate(truth)
