"""Histograms of many arrays, in one file of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nnpipe.core.files import replacing
from nnpipe.training.callbacks.writing_callback import folder_of

if TYPE_CHECKING:
    from nnpipe.training.fit import Fit

_BINS = 40


def histograms_of(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return histograms of the finite values of tensors, in 40 bins each from the least to the greatest value.

    The result has ``names``, ``edges (n, 41)`` and ``counts (n, 40)``; a tensor without values is left out.
    """
    names, edges, counts = [], [], []
    for name, tensor in named.items():
        values = tensor.detach().float().cpu().numpy().ravel()
        values = values[np.isfinite(values)]
        if values.size:
            own, limits = np.histogram(values, _BINS)
            names.append(name)
            counts.append(own)
            edges.append(limits.astype(np.float64))
    return {"names": names, "edges": np.array(edges), "counts": np.array(counts, np.int64)}


def write_histograms(fit: Fit, name: str, found: Mapping[str, Any], step: int) -> None:
    """Write the result of :func:`histograms_of`, and its step, as ``tables/NAME.npz``."""
    arrays = {"names": np.array(found["names"], np.str_), "edges": found["edges"], "counts": found["counts"]}
    with replacing(folder_of(fit).table(name, ending="npz")) as path, path.open("wb") as file:
        np.savez_compressed(file, **arrays, step=np.array(step))
