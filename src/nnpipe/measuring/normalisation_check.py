"""Check whether the inputs of a model's first batch normalisation are distributed as in training.

A batch normalisation holds the mean and variance of its inputs for the training
samples.  Samples that are prepared differently have another mean or variance there.
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
_INPUTS = 5  # input, weight, bias, mean and variance


def first_normalisation(model: LiveModel, graph: Graph, batches: Sequence[Batch]) -> dict[str, Any]:
    """Compare the inputs of a model's first batch normalisation with the statistics that it holds.

    Parameters
    ----------
    model
        The loaded model.
    graph
        Its inference graph.
    batches
        Batches of prepared samples.

    Returns
    -------
    dict
        ``name`` of the operation; ``spread``, the median over channels of the ratio of observed to stored variance;
        and ``shift``, the median distance of the means, in standard deviations.  Empty if there is no such operation,
        or the framework does not show intermediate values.
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
    except Exception:  # a failure of any framework here must not stop the measurement
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
    """Return the tensors of an operation's mean and variance; empty if it does not normalise by both."""
    kind, names = operation.kind.lower().replace("_", ""), operation.inputs
    if kind == "normalization":  # Keras' layer after the input that is adapted to data
        return tuple(name for name in names[1:] if name.rpartition("/")[2] in _HELD)
    if "batchnorm" not in kind:
        return ()
    if len(names) >= _INPUTS:
        return names[3:_INPUTS]
    # Keras omits gamma or beta if a layer has none.
    last = names[-2:]
    return last if [name.rpartition("/")[2] for name in last] == ["moving_mean", "moving_variance"] else ()


def _arriving(model: LiveModel, tensor: str, batch: Batch) -> npt.NDArray[Any]:
    if tensor in batch:
        return np.asarray(batch[tensor], np.float64)
    return model.get_intermediates(Selector(tensor=tensor), batch)[tensor].astype(np.float64)
