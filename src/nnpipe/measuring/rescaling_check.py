"""Check whether samples have already been scaled although the model scales its inputs itself.

Models often begin with operations that bring pixels into a small range: a layer that rescales or normalises, or a
multiplication and an addition.  Their output shows whether the input had the expected range.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnpipe.core.graph import Graph, Operation, Selector
from nnpipe.core.live_model import LiveModel
from nnpipe.core.tensors import Batch

_AFFINE = {"rescaling", "normalization", "mul", "add", "sub", "div"}
_CARRYING = {"cast", "identity", "transpose", "permute", "reshape", "copy", "clone", "contiguous", "cropping"}
_DIVIDES = 0.5  # with a factor below this, a model is considered to scale numbers down


def first_rescaling(model: LiveModel, graph: Graph, batches: Sequence[Batch]) -> dict[str, Any]:
    """Return the value ranges before and after a model's own rescaling of its input.

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
        ``name`` of the last operation that scales; ``arrived`` and ``scaled``, the least and greatest number before
        and after it.  Empty if the model does not begin by scaling down, or does not show intermediate values.
    """
    if not model.wrapper.offers("get_intermediates"):
        return {}
    try:
        chain = list(_chain(graph))
        if len(model.io.inputs) != 1 or not chain:
            return {}
        name, last = model.io.inputs[0].name, chain[-1].outputs[0]
        before = np.concatenate([np.ravel(batch[name]) for batch in batches]).astype(np.float64)
        behind = [model.get_intermediates(Selector(tensor=last), batch)[last] for batch in batches]
        after = np.concatenate([np.ravel(part) for part in behind]).astype(np.float64)
    except Exception:  # a failure of any framework here must not stop the measurement
        return {}
    width, scaled = float(np.ptp(before)), float(np.ptp(after))
    if not (np.isfinite(width) and np.isfinite(scaled)) or width == 0 or scaled >= _DIVIDES * width:
        return {}
    ends = ([float(array.min()), float(array.max())] for array in (before, after))
    return {"name": chain[-1].name, **dict(zip(("arrived", "scaled"), ends, strict=True))}


def _chain(graph: Graph) -> Iterator[Operation]:
    """Yield the operations after the input that scale it, up to the last one."""
    if len(graph.inputs) != 1:
        return
    computed = {name for operation in graph.operations for name in operation.outputs}
    tensor, waiting = graph.inputs[0], list[Operation]()
    while True:
        users = [operation for operation in graph.operations if tensor in operation.inputs]
        if len(users) != 1 or len(users[0].outputs) != 1 or computed & (set(users[0].inputs) - {tensor}):
            return
        words = set(re.split(r"[^a-z]+", users[0].kind.lower()))
        if not words & (_AFFINE | _CARRYING):
            return
        waiting.append(users[0])
        tensor = users[0].outputs[0]
        if words & _AFFINE:
            yield from waiting
            waiting = []
