"""The decoder of YOLO's raw heads, versions 3 to 8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec, show_shape
from nnpipe.decoders.detection_decoder import Array, Candidates, DetectionDecoder, cells, corners, input_size, sigmoid

# Width and height in pixels, finest grid first, from the makers' configurations for COCO: yolov3.cfg and yolov4.cfg of
# Darknet, models/yolov5s.yaml of Ultralytics, cfg/training/yolov7.yaml of WongKinYiu/yolov7, yolov3-tiny.cfg.
_ANCHORS = {
    "v3": (10, 13, 16, 30, 33, 23, 30, 61, 62, 45, 59, 119, 116, 90, 156, 198, 373, 326),
    "v4": (12, 16, 19, 36, 40, 28, 36, 75, 76, 55, 72, 146, 142, 110, 192, 243, 459, 401),
    "v5": (10, 13, 16, 30, 33, 23, 30, 61, 62, 45, 59, 119, 116, 90, 156, 198, 373, 326),
    "v7": (12, 16, 19, 36, 40, 28, 36, 75, 76, 55, 72, 146, 142, 110, 192, 243, 459, 401),
}
_BINS = 16  # of each side of a box in version 8


class YOLOHeadsDecoder(DetectionDecoder):
    """YOLO's heads before their boxes are computed, versions 3 to 8: one output for each grid.

    Outputs are, in any order of grids, ``(n, anchors * (5 + classes), rows, columns)`` with channels first or last, or
    with axes of their own ``(n, anchors, rows, columns, 5 + classes)`` or ``(n, rows, columns, anchors, 5 + classes)``;
    the values are x, y, width, height, objectness, and classes, before the logistic function.  Version 8 has no
    anchors: its outputs are ``(n, 64 + classes, rows, columns)`` with 16 bins for each side of a box.
    """

    version: Literal["v3", "v4", "v5", "v7", "v8"] = argument(
        "v3", help="how a box follows from its numbers: v3 and v4 by exponentials, v5 and v7 by squares, v8 by bins"
    )
    anchors: tuple[float, ...] | None = argument(
        None,
        help="width and height of each anchor in pixels, finest grid first; by default those for COCO",
        minimum=0.0,
    )

    def validate(self) -> None:
        """Check that anchors are pairs."""
        if self.anchors is not None and (self.version == "v8" or len(self.anchors) % 2 or not self.anchors):
            raise ConfigError("anchors are pairs of width and height, for versions 3 to 7")

    def class_count(self, io: IOSpec) -> int | None:
        """Return the number of classes that the shapes tell."""
        shapes = [spec.shape for spec in io.outputs]
        if any(len(shape) not in (4, 5) for shape in shapes) or not shapes:
            raise self._misfit(shapes)
        if any(None in shape[1:] for shape in shapes):
            return None
        return self._arranged([np.broadcast_to(np.float32(0), (1, *(int(n or 1) for n in s[1:]))) for s in shapes])[1]

    def candidates(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning]) -> Candidates:
        """Return the boxes of all cells and anchors."""
        heads, _ = self._arranged([output.astype(np.float32) for output in outputs.values()])
        height, width = input_size(io, inputs)
        extent = np.array([width, height], np.float32)
        anchors = self._anchors(len(heads))
        boxes, scores = [], []
        for number, head in enumerate(heads):  # (n, rows, columns, anchors, values)
            count, rows, columns = head.shape[:3]
            steps = extent / np.array([columns, rows], np.float32)
            place = cells(rows, columns).reshape(rows, columns, 1, 2)
            if self.version == "v8":
                bins = head[..., : 4 * _BINS].reshape(*head.shape[:-1], 4, _BINS)
                odds = np.exp(bins - bins.max(axis=-1, keepdims=True))
                sides = (odds / odds.sum(axis=-1, keepdims=True)) @ np.arange(_BINS, dtype=np.float32)
                middle = place + 0.5
                box = np.concatenate([middle - sides[..., :2], middle + sides[..., 2:]], axis=-1)
                box = box * np.tile(steps, 2)
                score = sigmoid(head[..., 4 * _BINS :])
            else:
                box = self._from_anchors(head, place, steps, anchors[number])
                score = sigmoid(head[..., 4:5]) * sigmoid(head[..., 5:])
            number_of_boxes = rows * columns * head.shape[3]
            boxes.append((box / np.tile(extent, 2)).reshape(count, number_of_boxes, 4))
            scores.append(score.reshape(count, number_of_boxes, score.shape[-1]))
        return Candidates(np.concatenate(boxes, axis=1), np.concatenate(scores, axis=1))

    def _from_anchors(self, head: Array, place: Array, steps: Array, anchors: Array) -> Array:
        if self.version in ("v3", "v4"):
            with np.errstate(over="ignore"):  # boxes without end are dropped
                return corners((sigmoid(head[..., :2]) + place) * steps, np.exp(head[..., 2:4]) * anchors)
        inner = 2 * sigmoid(head[..., :4])
        return corners((inner[..., :2] - 0.5 + place) * steps, inner[..., 2:] ** 2 * anchors)

    def _anchors(self, grids: int) -> Array:
        """Return the anchors of each grid, ``(grids, anchors, 2)``."""
        if self.version == "v8":
            return np.zeros((grids, 1, 2), np.float32)
        given = np.array(self.anchors or _ANCHORS[self.version], np.float32).reshape(-1, 2)
        if len(given) % grids:
            raise SpecMismatch(
                f"{len(given)} anchors cannot be divided among {grids} grids: give the decoder its anchors"
            )
        return given.reshape(grids, -1, 2)

    def _arranged(self, outputs: Sequence[Array]) -> tuple[list[Array], int]:
        """Return the heads as ``(n, rows, columns, anchors, values)``, finest first, and the number of classes."""
        each = self._anchors(len(outputs)).shape[1]
        own = 4 * _BINS if self.version == "v8" else 5
        heads = []
        if len({output.ndim for output in outputs}) == 1 and outputs[0].ndim in (4, 5):
            for axis in (1, -1):
                if len({output.shape[axis] for output in outputs}) == 1:
                    heads = [_last(output, axis, each, own) for output in outputs]
                    break
        classes = {None if head is None else head.shape[-1] - own for head in heads}
        count = classes.pop() if len(classes) == 1 else None
        if count is None or count < 1:
            raise self._misfit([output.shape for output in outputs])
        return sorted((head for head in heads if head is not None), key=lambda head: -head.shape[1]), count

    def _misfit(self, shapes: Sequence[tuple[int | None, ...]]) -> SpecMismatch:
        return SpecMismatch(
            f"the outputs {', '.join(map(show_shape, shapes))} are not the heads of YOLO{self.version}; if boxes are "
            "computed in the model, YOLODecoder reads them"
        )


def _last(output: Array, axis: int, anchors: int, own: int) -> Array | None:
    """Return a head as ``(n, rows, columns, anchors, values)``; ``None`` if it has another number of anchors."""
    if output.ndim == 5:  # anchors are the axis after samples, or the last but one
        found: Array = output.transpose(0, 2, 3, 1, 4) if output.shape[1] == anchors else output
        return found if found.shape[3] == anchors else None
    if axis == 1:
        output = output.transpose(0, 2, 3, 1)
    if output.shape[-1] % anchors or output.shape[-1] // anchors <= own:
        return None
    return output.reshape(*output.shape[:-1], anchors, output.shape[-1] // anchors)
