"""The decoder of YOLO models whose export computes boxes: versions 5 to 9, 11 and 12 as their makers export them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ConfigError
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.decoders.detection_decoder import Candidates, DetectionDecoder, corners, input_size, only_output, only_shape

_EXPECTED = "(n, boxes, values) or (n, values, boxes), of YOLO"


class YOLODecoder(DetectionDecoder):
    """YOLO from version 5 on, as exported: boxes are computed in the model, and not yet suppressed.

    The output is ``(n, boxes, values)`` or ``(n, values, boxes)``; the longer axis is that of boxes.  The values are x
    and y of the centre, width and height, in versions 5 to 7 an objectness, and the probabilities of the classes.
    """

    objectness: bool = argument(
        False, help="whether an objectness precedes the classes: true for versions 5 to 7, false from version 8 on"
    )
    coordinates: Literal["pixels", "shares"] = argument(
        "pixels", help="whether boxes are in pixels of the input, or in shares of its size, as in TensorFlow Lite files"
    )

    def class_count(self, io: IOSpec) -> int | None:
        """Return the number of values of a box without coordinates and objectness."""
        _, one, other = only_shape(io, 3, _EXPECTED)
        return None if one is None or other is None else min(one, other) - 4 - self.objectness

    def check(self, io: IOSpec, inputs: Sequence[InputMeaning], spec: DatasetSpec) -> None:
        """Check the number of classes, and hint at the objectness if that makes the difference."""
        try:
            super().check(io, inputs, spec)
        except ConfigError as error:
            other = "false" if self.objectness else "true"
            if self.class_count(io) == len(spec.class_names) + (-1 if self.objectness else 1):
                raise ConfigError(f"{error}; or give --decoder-options objectness={other}") from None
            raise

    def candidates(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning]) -> Candidates:
        """Return all boxes."""
        output = only_output(outputs, io, 3, _EXPECTED).astype(np.float32)
        if output.shape[1] < output.shape[2]:
            output = output.transpose(0, 2, 1)
        boxes = corners(output[..., :2], output[..., 2:4])
        if self.coordinates == "pixels":
            height, width = input_size(io, inputs)
            boxes = boxes / np.array([width, height, width, height], np.float32)
        scores = output[..., 5:] * output[..., 4:5] if self.objectness else output[..., 4:]
        return Candidates(boxes, scores)
