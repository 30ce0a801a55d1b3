"""Decoders of YOLO models and their relatives: computed boxes, raw heads, masks, YOLOX and
FastestDet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, show_shape
from nnpipe.decoders._input_frames import compute_frames
from nnpipe.decoders.detection_decoder import (
    Array,
    Candidates,
    DetectionDecoder,
    compute_corners,
    get_input_size,
    get_only_output,
    get_only_shape,
    list_cells,
    pad_boxes,
    sigmoid,
)
from nnpipe.tasks.instance_segmentation.task import InstanceSegmentation

_EXPECTED = "(n, boxes, values) or (n, values, boxes), of YOLO"


class YOLODecoder(DetectionDecoder):
    """YOLO from version 5 on, as exported: boxes are computed in the model, and not yet suppressed.

    The output is ``(n, boxes, values)`` or ``(n, values, boxes)``; the longer axis is that of
    boxes.  The values are x and y of the centre, width and height, in versions 5 to 7 an
    objectness, and the probabilities of the classes.
    """

    objectness: bool = argument(
        False,
        help=(
            "whether an objectness precedes the classes: true for versions 5 to 7, false from "
            "version 8 on"
        ),
    )
    coordinates: Literal["pixels", "shares"] = argument(
        "pixels",
        help=(
            "whether boxes are in pixels of the input, or in shares of its size, as in TensorFlow "
            "Lite files"
        ),
    )

    def count_classes(self, io: IOSpec) -> int | None:
        """Return the number of values of a box without coordinates and objectness."""
        _, one, other = get_only_shape(io, 3, _EXPECTED)
        return None if one is None or other is None else min(one, other) - 4 - self.objectness

    def check(self, io: IOSpec, inputs: Sequence[InputProcessing], spec: DatasetSpec) -> None:
        """Check the number of classes, and hint at the objectness if that makes the difference."""
        try:
            super().check(io, inputs, spec)
        except ConfigError as error:
            other = "false" if self.objectness else "true"
            if self.count_classes(io) == len(spec.class_names) + (-1 if self.objectness else 1):
                raise ConfigError(
                    f"{error}; or give --decoder-options objectness={other}"
                ) from None
            raise

    def decode_candidates(
        self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing]
    ) -> Candidates:
        """Return all boxes."""
        output = get_only_output(outputs, io, 3, _EXPECTED).astype(np.float32)
        if output.shape[1] < output.shape[2]:
            output = output.transpose(0, 2, 1)
        boxes = compute_corners(output[..., :2], output[..., 2:4])
        if self.coordinates == "pixels":
            height, width = get_input_size(io, inputs)
            boxes = boxes / np.array([width, height, width, height], np.float32)
        scores = output[..., 5:] * output[..., 4:5] if self.objectness else output[..., 4:]
        return Candidates(boxes, scores)


# Width and height in pixels, finest grid first, from the makers' configurations for COCO:
# yolov3.cfg and yolov4.cfg of Darknet, models/yolov5s.yaml of Ultralytics, cfg/training/yolov7.yaml
# of WongKinYiu/yolov7, yolov3-tiny.cfg.
_ANCHORS = {
    "v3": (10, 13, 16, 30, 33, 23, 30, 61, 62, 45, 59, 119, 116, 90, 156, 198, 373, 326),
    "v4": (12, 16, 19, 36, 40, 28, 36, 75, 76, 55, 72, 146, 142, 110, 192, 243, 459, 401),
    "v5": (10, 13, 16, 30, 33, 23, 30, 61, 62, 45, 59, 119, 116, 90, 156, 198, 373, 326),
    "v7": (12, 16, 19, 36, 40, 28, 36, 75, 76, 55, 72, 146, 142, 110, 192, 243, 459, 401),
}
_BINS = 16  # of each side of a box in version 8


class YOLOHeadsDecoder(DetectionDecoder):
    """YOLO's heads before their boxes are computed, versions 3 to 8: one output for each grid.

    Outputs are, in any order of grids, ``(n, anchors * (5 + classes), rows, columns)`` with
    channels first or last, or with axes of their own ``(n, anchors, rows, columns, 5 + classes)``
    or ``(n, rows, columns, anchors, 5 + classes)``; the values are x, y, width, height, objectness,
    and classes, before the logistic function.  Version 8 has no anchors: its outputs are ``(n, 64 +
    classes, rows, columns)`` with 16 bins for each side of a box.
    """

    version: Literal["v3", "v4", "v5", "v7", "v8"] = argument(
        "v3",
        help=(
            "how a box follows from its numbers: v3 and v4 by exponentials, v5 and v7 by squares, "
            "v8 by bins"
        ),
    )
    anchors: tuple[float, ...] | None = argument(
        None,
        help=(
            "width and height of each anchor in pixels, finest grid first; by default those for "
            "COCO"
        ),
        minimum=0.0,
    )

    def validate(self) -> None:
        """Check that anchors are pairs."""
        if self.anchors is not None and (
            self.version == "v8" or len(self.anchors) % 2 or not self.anchors
        ):
            raise ConfigError("anchors are pairs of width and height, for versions 3 to 7")

    def count_classes(self, io: IOSpec) -> int | None:
        """Return the number of classes that the shapes tell."""
        shapes = [spec.shape for spec in io.outputs]
        if any(len(shape) not in (4, 5) for shape in shapes) or not shapes:
            raise self._create_mismatch(shapes)
        if any(None in shape[1:] for shape in shapes):
            return None
        return self._arrange_heads(
            [np.broadcast_to(np.float32(0), (1, *(int(n or 1) for n in s[1:]))) for s in shapes]
        )[1]

    def decode_candidates(
        self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing]
    ) -> Candidates:
        """Return the boxes of all cells and anchors."""
        heads, _ = self._arrange_heads([output.astype(np.float32) for output in outputs.values()])
        height, width = get_input_size(io, inputs)
        extent = np.array([width, height], np.float32)
        anchors = self._get_anchors(len(heads))
        boxes, scores = [], []
        for number, head in enumerate(heads):  # (n, rows, columns, anchors, values)
            count, rows, columns = head.shape[:3]
            steps = extent / np.array([columns, rows], np.float32)
            place = list_cells(rows, columns).reshape(rows, columns, 1, 2)
            if self.version == "v8":
                bins = head[..., : 4 * _BINS].reshape(*head.shape[:-1], 4, _BINS)
                odds = np.exp(bins - bins.max(axis=-1, keepdims=True))
                sides = (odds / odds.sum(axis=-1, keepdims=True)) @ np.arange(
                    _BINS, dtype=np.float32
                )
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
                return compute_corners(
                    (sigmoid(head[..., :2]) + place) * steps, np.exp(head[..., 2:4]) * anchors
                )
        inner = 2 * sigmoid(head[..., :4])
        return compute_corners(
            (inner[..., :2] - 0.5 + place) * steps, inner[..., 2:] ** 2 * anchors
        )

    def _get_anchors(self, grids: int) -> Array:
        """Return the anchors of each grid, ``(grids, anchors, 2)``."""
        if self.version == "v8":
            return np.zeros((grids, 1, 2), np.float32)
        given = np.array(self.anchors or _ANCHORS[self.version], np.float32).reshape(-1, 2)
        if len(given) % grids:
            raise SpecMismatch(
                f"{len(given)} anchors cannot be divided among {grids} grids: give the decoder its "
                f"anchors"
            )
        return given.reshape(grids, -1, 2)

    def _arrange_heads(self, outputs: Sequence[Array]) -> tuple[list[Array], int]:
        """Return the heads as ``(n, rows, columns, anchors, values)``, finest first, and the
        number of classes.
        """
        each = self._get_anchors(len(outputs)).shape[1]
        own = 4 * _BINS if self.version == "v8" else 5
        heads = []
        if len({output.ndim for output in outputs}) == 1 and outputs[0].ndim in (4, 5):
            for axis in (1, -1):
                if len({output.shape[axis] for output in outputs}) == 1:
                    heads = [_reshape_head(output, axis, each, own) for output in outputs]
                    break
        classes = {None if head is None else head.shape[-1] - own for head in heads}
        count = classes.pop() if len(classes) == 1 else None
        if count is None or count < 1:
            raise self._create_mismatch([output.shape for output in outputs])
        return sorted(
            (head for head in heads if head is not None), key=lambda head: -head.shape[1]
        ), count

    def _create_mismatch(self, shapes: Sequence[tuple[int | None, ...]]) -> SpecMismatch:
        return SpecMismatch(
            f"the outputs {', '.join(map(show_shape, shapes))} are not the heads of "
            f"YOLO{self.version}; if boxes are "
            "computed in the model, YOLODecoder reads them"
        )


def _reshape_head(output: Array, axis: int, anchors: int, own: int) -> Array | None:
    """Return a head as ``(n, rows, columns, anchors, values)``; ``None`` if it has another
    number of anchors.
    """
    if output.ndim == 5:  # anchors are the axis after samples, or the last but one
        found: Array = output.transpose(0, 2, 3, 1, 4) if output.shape[1] == anchors else output
        return found if found.shape[3] == anchors else None
    if axis == 1:
        output = output.transpose(0, 2, 3, 1)
    if output.shape[-1] % anchors or output.shape[-1] // anchors <= own:
        return None
    return output.reshape(*output.shape[:-1], anchors, output.shape[-1] // anchors)


class YOLOMasksDecoder(YOLODecoder):
    """YOLO with masks, as exported: each box has weights of the prototypes that the picture's masks
    are sums of.

    Outputs are boxes ``(n, boxes, values)`` or ``(n, values, boxes)``, as
    :class:`~nnpipe.decoders.yolo.YOLODecoder` reads them, with a weight for each prototype behind
    the classes, and prototypes ``(n, prototypes, rows, columns)`` or ``(n, rows, columns,
    prototypes)``.  Sums are interpolated to the picture's size, and a pixel belongs to the thing if
    it is in its box and the sum above 0, as in Ultralytics' ``process_mask_native``.
    """

    tasks: ClassVar[tuple[str, ...]] = (InstanceSegmentation.name,)

    max_boxes: int = argument(
        100, help="greatest number of masks in a picture, the most certain ones", minimum=1
    )

    def count_classes(self, io: IOSpec) -> int | None:
        """Return the number of values of a box without coordinates, objectness and weights of
        prototypes.
        """
        shapes = {spec.name: spec.shape for spec in io.outputs}
        flat, prototypes = _find_outputs(shapes)
        _, one, other = shapes[flat]
        number = shapes[prototypes][_find_prototype_axis(shapes[prototypes])]
        return (
            None
            if one is None or other is None or number is None
            else min(one, other) - 4 - self.objectness - number
        )

    def decode_candidates(
        self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing]
    ) -> Candidates:
        """Return all boxes."""
        values, prototypes = _split_outputs(outputs)
        return super().decode_candidates({"boxes": values[..., : -prototypes.shape[1]]}, io, inputs)

    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing] = ()) -> Batch:
        """Return ``masks``, ``boxes``, ``scores`` and ``class`` of the selected things, and the
        ``frame``.
        """
        values, prototypes = _split_outputs(outputs)
        pictures = self.select_boxes(outputs, io, inputs)
        found = pad_boxes(pictures)
        masks = np.zeros((*found["scores"].shape, *prototypes.shape[2:]), np.float32)
        for place, (which, *_) in enumerate(pictures):
            weights = values[place, which, -prototypes.shape[1] :].astype(np.float32)
            # Pixels of masks are those above 0.5.
            masks[place, : len(which)] = (
                np.tensordot(weights, prototypes[place].astype(np.float32), 1) + 0.5
            )
        return found | {"masks": masks, "frame": compute_frames(len(pictures), io, inputs)}


def _split_outputs(outputs: Batch) -> tuple[Array, Array]:
    """Return the values of boxes, ``(n, boxes, values)``, and prototypes, ``(n, prototypes,
    rows, columns)``.
    """
    flat, named = _find_outputs({name: each.shape for name, each in outputs.items()})
    values, prototypes = outputs[flat], outputs[named]
    if values.shape[1] < values.shape[2]:
        values = values.transpose(0, 2, 1)
    if _find_prototype_axis(prototypes.shape) == 3:
        prototypes = prototypes.transpose(0, 3, 1, 2)
    return values, prototypes


def _find_outputs(shapes: dict[str, tuple[int | None, ...]]) -> tuple[str, str]:
    """Return the names of the outputs with boxes and with prototypes."""
    flat = [name for name, shape in shapes.items() if len(shape) == 3]
    prototypes = [name for name, shape in shapes.items() if len(shape) == 4]
    if len(flat) != 1 or len(prototypes) != 1:
        given = ", ".join(f"{name} {show_shape(shape)}" for name, shape in shapes.items())
        raise SpecMismatch(
            f"expected boxes (n, values, boxes) and prototypes (n, prototypes, rows, columns); the "
            f"model gives {given}"
        )
    return flat[0], prototypes[0]


def _find_prototype_axis(shape: Sequence[int | None]) -> int:
    """Return the axis of prototypes, of which there are fewer than rows or columns of their
    cells.
    """
    first, last = shape[1] or 1 << 30, shape[3] or 1 << 30
    return 1 if first <= last else 3


_YOLOX_EXPECTED = "(n, cells, 5 + classes), of YOLOX"


class YOLOXDecoder(DetectionDecoder):
    """YOLOX: one box for each cell of several grids, relative to its cell.

    The output is ``(n, cells, 5 + classes)``: four numbers of the box, objectness, and the
    probabilities of the classes; the cells of the grids follow each other row by row, finest grid
    first.  As in Megvii-BaseDetection/YOLOX, ``yolox/utils/demo_utils.py``, ``demo_postprocess``.
    """

    strides: tuple[int, ...] = argument(
        (8, 16, 32), help="pixels between the cells of each grid", minimum=1
    )

    def count_classes(self, io: IOSpec) -> int | None:
        """Return the number of values of a cell without box and objectness."""
        values = get_only_shape(io, 3, _YOLOX_EXPECTED)[2]
        return None if values is None else values - 5

    def decode_candidates(
        self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing]
    ) -> Candidates:
        """Return the box of each cell."""
        output = get_only_output(outputs, io, 3, _YOLOX_EXPECTED).astype(np.float32)
        height, width = get_input_size(io, inputs)
        grids = [(list_cells(height // stride, width // stride), stride) for stride in self.strides]
        cell = np.concatenate([each for each, _ in grids])
        stride = np.concatenate([np.full((len(each), 1), step, np.float32) for each, step in grids])
        if output.shape[1] != len(cell):
            raise SpecMismatch(
                f"the model gives {output.shape[1]:,} boxes; strides "
                f"{', '.join(map(str, self.strides))} make {len(cell):,} cells of {height} x "
                f"{width} pixels: give its strides as decoder option"
            )
        extent = np.array([width, height], np.float32)
        with np.errstate(over="ignore"):  # boxes without end are dropped
            size = np.exp(output[..., 2:4]) * stride / extent
        centre = (output[..., :2] + cell) * stride / extent
        return Candidates(compute_corners(centre, size), output[..., 4:5] * output[..., 5:])


_FASTESTDET_EXPECTED = "(n, 5 + classes, rows, columns), of FastestDet"


class FastestDetDecoder(DetectionDecoder):
    """FastestDet: one box for each cell of one grid, its score from objectness and class.

    The output is ``(n, 5 + classes, rows, columns)``: objectness, four numbers of the box, and the
    probabilities of the classes.  As in dog-qiuqiu/FastestDet, ``utils/tool.py``, ``handle_preds``.
    """

    overlap: float = argument(
        0.45,
        help=(
            "intersection over union with a more certain box of the class above which a box is "
            "dropped"
        ),
        minimum=0.0,
        maximum=1.0,
    )

    def count_classes(self, io: IOSpec) -> int | None:
        """Return the number of channels without objectness and box."""
        channels = get_only_shape(io, 4, _FASTESTDET_EXPECTED)[1]
        return None if channels is None else channels - 5

    def decode_candidates(
        self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing]
    ) -> Candidates:
        """Return the box of each cell."""
        output = get_only_output(outputs, io, 4, _FASTESTDET_EXPECTED).astype(np.float32)
        count, channels, rows, columns = output.shape
        flat = output.reshape(count, channels, rows * columns).transpose(0, 2, 1)
        centre = (np.tanh(flat[..., 1:3]) + list_cells(rows, columns)) / np.array(
            [columns, rows], np.float32
        )
        scores = np.clip(flat[..., :1], 0, None) ** 0.6 * np.clip(flat[..., 5:], 0, None) ** 0.4
        return Candidates(compute_corners(centre, sigmoid(flat[..., 3:5])), scores)
