"""Find the tensor that a task needs among a model's predictions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.tensors import Batch


def only(predictions: Batch, name: str) -> npt.NDArray[np.generic]:
    """Return the tensor ``name``, or the only tensor.

    Raises
    ------
    SpecMismatch
        If there are several, and none has that name.
    """
    if name in predictions:
        return predictions[name]
    if len(predictions) != 1:
        raise SpecMismatch(f"predictions must hold {name!r} or one tensor only; given: {', '.join(predictions)}")
    return next(iter(predictions.values()))
