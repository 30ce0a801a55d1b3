"""Weights of classes for losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnpipe.core.argument_checks import check_call


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
