"""Weights of classes for losses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError

_AT_ONCE = 256  # samples that are read at once, whose inputs need memory


def balanced_weights(labels: np.ndarray, classes: int) -> Any:
    """Return ``samples / (classes * samples of the class)`` of each class, as in scikit-learn's ``"balanced"``.

    Parameters
    ----------
    labels
        Integers ``(n,)``, the classes of the training samples.
    classes
        Number of classes; one without samples gets the weight 0.

    Returns
    -------
    torch.Tensor
        Float32 ``(classes,)``.
    """
    import torch

    check_call(balanced_weights, locals())
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    found = np.divide(counts.sum(), classes * counts, out=np.zeros(classes), where=counts > 0)
    return torch.from_numpy(found.astype(np.float32))


@dataclass(frozen=True, kw_only=True)
class BalancedWeights:
    """The balanced weights of a data set's classes, for files: ``class_weights: {reference: balance.weights}``.

    Parameters
    ----------
    dataset
        The data set, whose training samples are counted.
    target
        The name of the classes in its truth.
    """

    dataset: Dataset
    target: str = "label"

    def __post_init__(self) -> None:
        check_call(BalancedWeights, vars(self))

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """The weight of each class."""
        self.dataset.prepare()
        indices, parts = self.dataset.split("train"), []
        for start in range(0, len(indices), _AT_ONCE):
            _, truth = self.dataset.read(indices[start : start + _AT_ONCE])
            if self.target not in truth:
                raise ConfigError(f"BalancedWeights: target names {self.target!r}; there are {', '.join(truth)}")
            parts.append(np.asarray(truth[self.target]))
        labels = np.concatenate(parts)
        classes = len(self.dataset.spec.class_names) or int(labels.max()) + 1
        return tuple(balanced_weights(labels, classes).tolist())
