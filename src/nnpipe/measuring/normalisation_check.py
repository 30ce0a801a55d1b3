"""Whether what arrives at a model's first normalisation is spread as what the model was trained on.

A batch normalisation holds mean and variance of the training samples, as they
were when they had come so far.  Samples prepared otherwise have others there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.graph import Graph, Operation, Selector
from nnpipe.core.live_model import LiveModel
from nnpipe.core.tensors import Batch

_HELD = ("mean", "variance")
_INPUTS = 5  # what is normalised, weight, bias, mean and variance


def first_normalisation(model: LiveModel, graph: Graph, batches: Sequence[Batch]) -> dict[str, Any]:
    """Compare what arrives at a model's first batch normalisation with the statistics that it holds.

    Parameters
    ----------
    model
        The model, loaded.
    graph
        Its inference graph.
    batches
        Some samples, as it takes them.

    Returns
    -------
    dict
        ``name``; ``spread``, the median over channels of the ratio of the variance that arrives to the one held; and
        ``shift``, the median distance of the means, in standard deviations.  Empty where there is no such operation,
        or the framework does not let one look.
    """
    if not model.wrapper.offers("get_weights", "get_intermediates"):
        return {}
    try:
        found = next(filter(_normalises, graph.operations), None)
        if found is None:
            return {}
        names = _statistics(found)
        held = model.get_weights(names)
        mean, variance = (held[name].astype(np.float64).reshape(-1) for name in names)
        parts = [_arriving(model, found.inputs[0], batch) for batch in batches]
        axis = model.wrapper.channel_axis
        values = np.concatenate([np.moveaxis(part, axis, 0).reshape(len(mean), -1) for part in parts], axis=1)
    except Exception:  # a look inside that fails, in whatever framework, must not cost the measurement
        return {}
    known = variance > 0
    if not known.any() or values.shape[1] < 2:
        return {}
    spread = np.median(values.var(axis=1)[known] / variance[known])
    shift = np.median(np.abs(values.mean(axis=1) - mean)[known] / np.sqrt(variance[known]))
    if not (np.isfinite(spread) and np.isfinite(shift)):
        return {}
    return {"name": found.name, "spread": float(spread), "shift": float(shift)}


def _normalises(operation: Operation) -> bool:
    return bool(_statistics(operation))


def _statistics(operation: Operation) -> tuple[str, ...]:
    """Return the tensors in which an operation holds mean and variance; none where it is no normalisation by both."""
    kind, names = operation.kind.lower().replace("_", ""), operation.inputs
    if kind == "normalization":  # Keras' layer that is fitted to data, behind the input
        return tuple(name for name in names[1:] if name.rpartition("/")[2] in _HELD)
    if "batchnorm" not in kind:
        return ()
    if len(names) >= _INPUTS:
        return names[3:_INPUTS]
    # Keras leaves out gamma or beta where a layer has none.
    last = names[-2:]
    return last if [name.rpartition("/")[2] for name in last] == ["moving_mean", "moving_variance"] else ()


def _arriving(model: LiveModel, tensor: str, batch: Batch) -> npt.NDArray[Any]:
    if tensor in batch:
        return np.asarray(batch[tensor], np.float64)
    return model.get_intermediates(Selector(tensor=tensor), batch)[tensor].astype(np.float64)
