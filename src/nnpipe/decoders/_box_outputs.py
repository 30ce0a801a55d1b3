"""What decoders of detectors share that have boxes and scores in outputs of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.layout import Shape
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import IOSpec
from nnpipe.decoders.detection_decoder import corners, input_size, sigmoid

Array = npt.NDArray[Any]
BoxOrder = Literal["tlbr", "ltrb", "ltwh", "centre"]
ORDERS = "top left bottom right, left top right bottom, left top width height, or x and y of the centre with the size"


def boxes_and_scores(shapes: Mapping[str, Shape]) -> tuple[str, str] | None:
    """Return the names of the outputs with boxes and with scores of classes; ``None`` if they cannot be told.

    Boxes are four numbers.  So are the scores of four classes: then names tell, or else the order.
    """
    if len(shapes) != 2 or any(not 3 <= len(shape) <= 4 for shape in shapes.values()):
        return None
    four = [name for name, shape in shapes.items() if shape[-1] == 4]
    called = [name for name in four if any(word in name.lower() for word in ("box", "loc"))]
    boxes = next(iter(called if len(called) == 1 else four), None)
    if boxes is None:
        return None
    return boxes, next(name for name in shapes if name != boxes)


def activated(scores: Array, activation: Literal["sigmoid", "softmax", "none"]) -> Array:
    """Return scores as probabilities."""
    scores = scores.astype(np.float32)
    if activation == "sigmoid":
        return sigmoid(scores)
    if activation == "softmax":
        odds = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        return np.asarray(odds / odds.sum(axis=-1, keepdims=True))
    return scores


def corners_in_shares(
    boxes: Array,
    order: BoxOrder,
    coordinates: Literal["pixels", "shares"],
    io: IOSpec,
    inputs: Sequence[InputMeaning],
) -> Array:
    """Return left, top, right and bottom of boxes, in shares of the input's size."""
    boxes = boxes.astype(np.float32)
    if order == "tlbr":
        boxes = boxes[..., [1, 0, 3, 2]]
    elif order == "ltwh":
        boxes = np.concatenate([boxes[..., :2], boxes[..., :2] + boxes[..., 2:]], axis=-1)
    elif order == "centre":
        boxes = corners(boxes[..., :2], boxes[..., 2:])
    if coordinates == "pixels":
        height, width = input_size(io, inputs)
        boxes = boxes / np.array([width, height, width, height], np.float32)
    return boxes
