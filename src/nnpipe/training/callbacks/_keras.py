"""The layers and weights of a Keras model, for callbacks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def keras_layers(model: Any) -> tuple[list[dict[str, Any]], int, int]:
    """Return a row for each innermost layer, the number of parameters, and the number of trainable ones.

    Layers are in the order in which they were declared.  Parameters that
    several layers share are counted with the first.
    """
    rows, counted = [], set()
    # Keras has no public way to the layers within layers.
    for layer in model._flatten_layers(include_self=False, recursive=True):
        if any(True for _ in layer._flatten_layers(include_self=False)):
            continue
        own = [v for v in layer.weights if id(v) not in counted]
        counted |= {id(v) for v in own}
        trainable = {id(v) for v in layer.trainable_weights}
        rows.append(
            {
                "layer": getattr(layer, "path", None) or layer.name,  # one without weights has no path
                "type": type(layer).__name__,
                "output": _shape(layer),
                "parameters": sum(_size(v) for v in own),
                "trainable": sum(_size(v) for v in own if id(v) in trainable),
            }
        )
    rows = [row for row in rows if row["type"] != "InputLayer"]
    return rows, sum(map(_size, model.weights)), sum(map(_size, model.trainable_weights))


def not_finite(model: Any) -> list[str]:
    """Return the names of a Keras model's weights that hold NaN or infinity."""
    return [v.path for v in model.weights if not np.isfinite(np.asarray(v.numpy(), np.float64)).all()]


def _size(variable: Any) -> int:
    return math.prod(variable.shape)


def _shape(layer: Any) -> Any:
    try:
        output = layer.output
    except (AttributeError, ValueError):  # a layer that was never called by itself, or several times
        return None
    tensors = output if isinstance(output, (list, tuple)) else [output]
    shapes = [list(tensor.shape) for tensor in tensors if hasattr(tensor, "shape")]
    return shapes[0] if len(shapes) == 1 else shapes
