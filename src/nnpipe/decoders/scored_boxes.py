"""The decoder of detectors whose boxes are computed, with a score of each class for each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import SpecMismatch
from nnpipe.core.layout import Shape
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec, show_shape
from nnpipe.decoders._box_outputs import ORDERS, Array, BoxOrder, activated, boxes_and_scores, corners_in_shares
from nnpipe.decoders._class_numbers import coco_classes
from nnpipe.decoders.detection_decoder import Candidates, DetectionDecoder


class ScoredBoxesDecoder(DetectionDecoder):
    """Boxes in one output, scores of all classes in another: DETR, RT-DETR, YOLOv4, and SSD with its boxes computed.

    Outputs are boxes ``(n, k, 4)`` or ``(n, k, 1, 4)``, and scores ``(n, k, classes)``, perhaps with one of the
    background.  DETR has ``box_order=centre activation=softmax background=last suppression=inside``, and its successors
    ``activation=sigmoid background=none``; SSD as PyTorch programs export it has ``background=first``.
    """

    box_order: BoxOrder = argument("ltrb", help=ORDERS)
    coordinates: Literal["pixels", "shares"] = argument(
        "shares", help="whether boxes are in pixels of the input, or in shares of its size"
    )
    activation: Literal["sigmoid", "softmax", "none"] = argument("none", help="how scores become probabilities")
    background: Literal["none", "first", "last"] = argument(
        "none", help="whether the first or the last score is that of the background"
    )
    numbering: Literal["own", "coco-ids"] = argument(
        "own", help="coco-ids: classes are COCO's 90 category numbers, from 0 on, and become the 80 classes in use"
    )

    def class_count(self, io: IOSpec) -> int | None:
        """Return the number of scores without the background's."""
        if self.numbering == "coco-ids":
            return 80
        shapes = {spec.name: spec.shape for spec in io.outputs}
        found = shapes[self._pair(shapes)[1]][-1]
        return None if found is None else found - (self.background != "none")

    def candidates(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning]) -> Candidates:
        """Return all boxes."""
        pair = self._pair({name: output.shape for name, output in outputs.items()})
        boxes, scores = (_flat(outputs[name]) for name in pair)
        if boxes.shape[:2] != scores.shape[:2]:
            raise self._misfit({name: output.shape for name, output in outputs.items()})
        scores = activated(scores, self.activation)
        if self.background == "last":
            scores = scores[..., :-1]
        elif self.background == "first":
            scores = scores[..., 1:]
        if self.numbering == "coco-ids":
            numbers = np.arange(scores.shape[-1]) + (self.background == "first")
            scores = scores[..., coco_classes(numbers) >= 0]
        return Candidates(corners_in_shares(boxes, self.box_order, self.coordinates, io, inputs), scores)

    def _pair(self, shapes: dict[str, Shape]) -> tuple[str, str]:
        pair = boxes_and_scores(shapes)
        if pair is None:
            raise self._misfit(shapes)
        return pair

    def _misfit(self, shapes: dict[str, Shape]) -> SpecMismatch:
        given = ", ".join(f"{name} {show_shape(shape)}" for name, shape in shapes.items())
        return SpecMismatch(f"expected boxes (n, k, 4) and scores (n, k, classes); the model gives {given}")


def _flat(output: Array) -> Array:
    return output.reshape(len(output), math.prod(output.shape[1:-1]), output.shape[-1])
