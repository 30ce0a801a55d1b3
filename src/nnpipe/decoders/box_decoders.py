"""Decoders of detectors that give boxes: with scores, suppressed, of SSD's anchors, or with
masks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.layout import Shape
from nnpipe.core.tensor_metadata import InputProcessing
from nnpipe.core.tensors import Batch, DatasetSpec, IOSpec, show_shape
from nnpipe.decoders._input_frames import compute_frames, map_coco_classes
from nnpipe.decoders._input_frames import get_input_size as frame_size
from nnpipe.decoders.detection_decoder import (
    ORDERS,
    Array,
    BoxOrder,
    Candidates,
    DetectionDecoder,
    apply_activation,
    compute_corners,
    find_box_outputs,
    get_input_size,
    normalize_boxes,
    pad_boxes,
)
from nnpipe.tasks.instance_segmentation.task import InstanceSegmentation


class ScoredBoxesDecoder(DetectionDecoder):
    """Boxes in one output, scores of all classes in another: DETR, RT-DETR, YOLOv4, and SSD with
    its boxes computed.

    Outputs are boxes ``(n, k, 4)`` or ``(n, k, 1, 4)``, and scores ``(n, k, classes)``, perhaps
    with one of the background.  DETR has ``box_order=centre activation=softmax background=last
    suppression=inside``, and its successors ``activation=sigmoid background=none``; SSD as PyTorch
    programs export it has ``background=first``.
    """

    box_order: BoxOrder = argument("ltrb", help=ORDERS)
    coordinates: Literal["pixels", "shares"] = argument(
        "shares", help="whether boxes are in pixels of the input, or in shares of its size"
    )
    activation: Literal["sigmoid", "softmax", "none"] = argument(
        "none", help="how scores become probabilities"
    )
    background: Literal["none", "first", "last"] = argument(
        "none", help="whether the first or the last score is that of the background"
    )
    numbering: Literal["own", "coco-ids"] = argument(
        "own",
        help=(
            "coco-ids: classes are COCO's 90 category numbers, from 0 on, and become the 80 "
            "classes in use"
        ),
    )

    def count_classes(self, io: IOSpec) -> int | None:
        """Return the number of scores without the background's."""
        if self.numbering == "coco-ids":
            return 80
        shapes = {spec.name: spec.shape for spec in io.outputs}
        found = shapes[self._find_outputs(shapes)[1]][-1]
        return None if found is None else found - (self.background != "none")

    def decode_candidates(
        self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing]
    ) -> Candidates:
        """Return all boxes."""
        pair = self._find_outputs({name: output.shape for name, output in outputs.items()})
        boxes, scores = (_flatten_boxes(outputs[name]) for name in pair)
        if boxes.shape[:2] != scores.shape[:2]:
            raise self._create_mismatch({name: output.shape for name, output in outputs.items()})
        scores = apply_activation(scores, self.activation)
        if self.background == "last":
            scores = scores[..., :-1]
        elif self.background == "first":
            scores = scores[..., 1:]
        if self.numbering == "coco-ids":
            numbers = np.arange(scores.shape[-1]) + (self.background == "first")
            scores = scores[..., map_coco_classes(numbers) >= 0]
        return Candidates(
            normalize_boxes(boxes, self.box_order, self.coordinates, io, inputs), scores
        )

    def _find_outputs(self, shapes: dict[str, Shape]) -> tuple[str, str]:
        pair = find_box_outputs(shapes)
        if pair is None:
            raise self._create_mismatch(shapes)
        return pair

    def _create_mismatch(self, shapes: dict[str, Shape]) -> SpecMismatch:
        given = ", ".join(f"{name} {show_shape(shape)}" for name, shape in shapes.items())
        return SpecMismatch(
            f"expected boxes (n, k, 4) and scores (n, k, classes); the model gives {given}"
        )


def _flatten_boxes(output: Array) -> Array:
    return output.reshape(len(output), math.prod(output.shape[1:-1]), output.shape[-1])


_EXPECTED = (
    "boxes (n, k, 4), scores (n, k), classes (n, k), and perhaps their number (n,); or one output "
    "(n, k, 6)"
)


class FinishedBoxesDecoder(DetectionDecoder):
    """Models with the suppression inside: TensorFlow Lite's detection postprocessing, EfficientNMS,
    YOLOv10.

    Outputs are boxes ``(n, k, 4)``, scores and classes ``(n, k)``, and perhaps the number of boxes
    ``(n,)``; or a single one ``(n, k, 6)`` of boxes, score and class; or the same without the first
    axis, for one picture, as in torchvision's files.  If the names of outputs do not tell scores
    from classes, those which are not all whole numbers are the scores.  The defaults are those of
    TensorFlow Lite.
    """

    suppression: Literal["outside", "inside"] = argument(
        "inside", help="whether overlapping boxes are dropped here, or inside the model already"
    )
    box_order: BoxOrder = argument("tlbr", help=ORDERS)
    coordinates: Literal["pixels", "shares"] = argument(
        "shares", help="whether boxes are in pixels of the input, or in shares of its size"
    )
    numbering: Literal["own", "coco-ids"] = argument(
        "own",
        help="coco-ids: classes are COCO's 90 category numbers, and become the 80 classes in use",
    )
    class_offset: int = argument(
        0, help="number of the first class, 1 if 0 is the background", minimum=0
    )
    scores_output: str | None = argument(
        None, help="name of the output with scores, if it cannot be told from classes"
    )
    classes_output: str | None = argument(None, help="name of the output with classes, likewise")

    def decode_candidates(
        self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing]
    ) -> Candidates:
        """Return the boxes that the model gives."""
        if max((output.ndim for output in outputs.values()), default=0) == 2:
            outputs = {name: output[None] for name, output in outputs.items()}
        if len(outputs) == 1:
            output = next(iter(outputs.values()))
            if output.ndim == 4 and output.shape[1] == 1:
                output = output[:, 0]
            if output.ndim != 3 or output.shape[2] != 6:
                raise self._create_mismatch(outputs)
            boxes, scores, classes = output[..., :4], output[..., 4], output[..., 5]
            counts = np.full(len(boxes), boxes.shape[1])
        else:
            boxes, scores, classes, counts = self._find_outputs(outputs)
        boxes = normalize_boxes(boxes, self.box_order, self.coordinates, io, inputs)
        known = np.isfinite(classes)
        numbers = (
            np.rint(np.nan_to_num(classes, posinf=0, neginf=0)).astype(np.int64) - self.class_offset
        )
        if self.numbering == "coco-ids":
            numbers = map_coco_classes(numbers + 1)
        numbers, scores = np.where(known, numbers, 0), np.where(known, scores, np.nan)
        numbers = np.where(
            np.arange(boxes.shape[1]) < np.asarray(counts).reshape(-1, 1), numbers, -1
        )
        return Candidates(boxes, scores.astype(np.float32), numbers)

    def _find_outputs(self, outputs: Batch) -> tuple[Array, Array, Array, Array]:
        boxes = [output for output in outputs.values() if output.ndim == 3 and output.shape[2] == 4]
        if len(boxes) != 1:
            raise self._create_mismatch(outputs)
        count, most = boxes[0].shape[:2]
        flat = {name: output for name, output in outputs.items() if output.shape == (count, most)}
        numbers = [
            output
            for output in outputs.values()
            if output.size == count and output.shape != (count, most)
        ]
        named = self.scores_output, self.classes_output
        if any(name is not None and name not in flat for name in named):
            raise self._create_mismatch(outputs)
        scores, classes = named
        for name in flat:
            if scores is None and "score" in name.lower():
                scores = name
            elif classes is None and any(word in name.lower() for word in ("class", "label")):
                classes = name
        if scores is None or classes is None:
            # Class numbers of an empty picture are whole, and so may be its scores: integers of any
            # type come first.
            order = sorted(
                flat,
                key=lambda name: (
                    flat[name].dtype.kind in "iu",
                    _is_whole(flat[name]),
                    _compute_max(flat[name]),
                ),
            )
            scores = scores or next((name for name in order if name != classes), None)
            classes = classes or next((name for name in reversed(order) if name != scores), None)
        if scores is None or classes is None or len(flat) != 2:
            raise self._create_mismatch(outputs)
        found = numbers[0] if len(numbers) == 1 else np.full(count, most)
        found = np.where(np.isfinite(found), found, most)
        return boxes[0], flat[scores], flat[classes], np.rint(found).astype(np.int64).reshape(-1)

    def _create_mismatch(self, outputs: Batch) -> SpecMismatch:
        given = ", ".join(f"{name} {output.shape}" for name, output in outputs.items())
        return SpecMismatch(f"expected {_EXPECTED}; the model gives {given}")


def _is_whole(values: Array) -> bool:
    return bool(np.all(values == np.rint(values)))


def _compute_max(values: Array) -> float:
    return float(values.max(initial=0))


class SSDDecoder(DetectionDecoder):
    """SSD with raw outputs: offsets ``(n, anchors, 4)`` and class scores ``(n, anchors, classes +
    background)``.

    Anchors and offsets are those of TensorFlow's object detection
    (``multiple_grid_anchor_generator.py``, ``create_ssd_anchors``; ``faster_rcnn_box_coder.py``):
    y, x, height and width relative to the anchor, multiplied by 10, 10, 5, 5.  Files that end with
    TensorFlow Lite's own postprocessing are for ``FinishedBoxesDecoder``.
    """

    overlap: float = argument(
        0.6,
        help=(
            "intersection over union with a more certain box of the class above which a box is "
            "dropped"
        ),
        minimum=0.0,
        maximum=1.0,
    )
    strides: tuple[int, ...] = argument(
        (16, 32, 64, 128, 256, 512),
        help="pixels between the cells of each grid, finest grid first",
        minimum=1,
    )
    least_scale: float = argument(
        0.2, help="size of the anchors of the finest grid, as a share", minimum=0.0
    )
    greatest_scale: float = argument(
        0.95, help="size of the anchors of the coarsest grid, as a share", minimum=0.0
    )
    aspect_ratios: tuple[float, ...] = argument(
        (1.0, 2.0, 0.5, 3.0, 0.3333), help="width by height of the anchors of a cell", minimum=0.01
    )
    few_in_finest: bool = argument(
        True, help="whether the finest grid has three anchors in a cell only"
    )
    activation: Literal["sigmoid", "softmax", "none"] = argument(
        "sigmoid", help="how scores become probabilities"
    )
    background: bool = argument(True, help="whether the first score is that of the background")
    numbering: Literal["own", "coco-ids"] = argument(
        "own",
        help="coco-ids: classes are COCO's 90 category numbers, and become the 80 classes in use",
    )

    def validate(self) -> None:
        """Check that scales ascend."""
        if not self.least_scale <= self.greatest_scale:
            raise ConfigError("least_scale should not exceed greatest_scale")

    def count_classes(self, io: IOSpec) -> int | None:
        """Return the number of scores without the background's."""
        if self.numbering == "coco-ids":
            return 80
        shapes = {spec.name: spec.shape for spec in io.outputs}
        pair = find_box_outputs(shapes)
        found = None if pair is None else shapes[pair[1]][-1]
        return None if found is None else found - self.background

    def decode_candidates(
        self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing]
    ) -> Candidates:
        """Return the box of each anchor."""
        pair = find_box_outputs({name: output.shape for name, output in outputs.items()})
        anchors = self.compute_anchors(*get_input_size(io, inputs))
        if pair is None or any(outputs[name].shape[1] != len(anchors) for name in pair):
            shapes = ", ".join(f"{name} {output.shape}" for name, output in outputs.items())
            raise SpecMismatch(
                f"expected offsets (n, {len(anchors)}, 4) and scores (n, {len(anchors)}, classes); "
                f"the model gives {shapes}"
            )
        offsets, scores = (_reshape_anchors(outputs[name], len(anchors)) for name in pair)
        moved = offsets.astype(np.float32) / np.array([10, 10, 5, 5], np.float32)
        centre = moved[..., :2] * anchors[:, 2:] + anchors[:, :2]
        with np.errstate(over="ignore"):  # boxes without end are dropped
            size = np.exp(moved[..., 2:]) * anchors[:, 2:]
        scores = apply_activation(scores, self.activation)[..., int(self.background) :]
        if self.numbering == "coco-ids":
            numbers = map_coco_classes(np.arange(1, scores.shape[-1] + 1))
            scores = scores[..., numbers >= 0]
        return Candidates(compute_corners(centre[..., ::-1], size[..., ::-1]), scores)

    def compute_anchors(self, height: int, width: int) -> npt.NDArray[np.float32]:
        """Return y, x, height and width of each anchor, in shares of the input's size;
        ``(anchors, 4)``.
        """
        grids, least = len(self.strides), min(height, width)
        steps = [*np.linspace(self.least_scale, self.greatest_scale, grids).tolist(), 1.0]
        found = []
        for number, stride in enumerate(self.strides):
            if number == 0 and self.few_in_finest:
                sizes = [(0.1, 1.0), (steps[0], 2.0), (steps[0], 0.5)]
            else:
                sizes = [(steps[number], ratio) for ratio in self.aspect_ratios]
                sizes.append((math.sqrt(steps[number] * steps[number + 1]), 1.0))
            # A size is a share of the shorter side.
            extents = np.array(
                [
                    (
                        scale / math.sqrt(ratio) * least / height,
                        scale * math.sqrt(ratio) * least / width,
                    )
                    for scale, ratio in sizes
                ]
            )
            rows, columns = math.ceil(height / stride), math.ceil(width / stride)
            y, x = np.meshgrid(
                (np.arange(rows) + 0.5) / rows, (np.arange(columns) + 0.5) / columns, indexing="ij"
            )
            middle = np.stack([y, x], axis=-1).reshape(-1, 1, 2)
            both = np.concatenate(np.broadcast_arrays(middle, extents[None]), axis=-1)
            found.append(both.reshape(-1, 4))
        return np.concatenate(found).astype(np.float32)


def _reshape_anchors(output: npt.NDArray[Any], anchors: int) -> npt.NDArray[Any]:
    return output.reshape(len(output), anchors, output.shape[-1])


class MaskRCNNDecoder(FinishedBoxesDecoder):
    """Mask R-CNN and its like, as torchvision, the ONNX model zoo and MMDetection export them.

    Outputs are boxes ``(n, k, 4)``, classes, scores ``(n, k)`` and masks ``(n, k, rows, columns)``,
    perhaps with an axis of length 1; or the same without the first axis, for one picture; or boxes
    with their scores, ``(n, k, 5)``. Masks of the input's size cover the picture, and smaller ones,
    such as 28 x 28, each cover its box, into which they are drawn as torchvision does it.  The
    defaults are torchvision's.
    """

    tasks: ClassVar[tuple[str, ...]] = (InstanceSegmentation.name,)

    box_order: Literal["tlbr", "ltrb", "centre"] = argument(
        "ltrb",
        help=(
            "top left bottom right, left top right bottom, or x and y of the centre with width and "
            "height"
        ),
    )
    coordinates: Literal["pixels", "shares"] = argument(
        "pixels", help="whether boxes are in pixels of the input, or in shares of its size"
    )
    class_offset: int = argument(
        1, help="number of the first class, 1 if 0 is the background", minimum=0
    )
    max_boxes: int = argument(
        100, help="greatest number of masks in a picture, the most certain ones", minimum=1
    )
    covers: Literal["auto", "box", "picture"] = argument(
        "auto",
        help=(
            "what a mask covers: its box, or the whole picture; auto: the picture if it has the "
            "input's size"
        ),
    )

    def check(self, io: IOSpec, inputs: Sequence[InputProcessing], spec: DatasetSpec) -> None:
        """Check that there is an output with masks."""
        if not any(len(each.shape) in (3, 4, 5) for each in io.outputs):
            shapes = ", ".join(f"{each.name} {show_shape(each.shape)}" for each in io.outputs)
            raise ConfigError(
                f"{type(self).__name__} reads boxes, classes, scores and masks; the model gives "
                f"{shapes}"
            )

    def decode(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputProcessing] = ()) -> Batch:
        """Return ``masks`` or ``box_masks`` with ``boxes``, ``scores`` and ``class``, and the
        ``frame``.
        """
        rest, masks = _split_masks(outputs)
        pictures = self.select_boxes(rest, io, inputs)
        found = pad_boxes(pictures) | {"frame": compute_frames(len(pictures), io, inputs)}
        chosen = np.zeros((*found["scores"].shape, *masks.shape[2:]), np.float32)
        for place, (which, *_) in enumerate(pictures):
            chosen[place, : len(which)] = masks[place][which]
        whole = (
            masks.shape[2:] == frame_size(io, inputs)
            if self.covers == "auto"
            else self.covers == "picture"
        )
        if whole:
            return {name: each for name, each in found.items() if name != "boxes"} | {
                "masks": chosen
            }
        return found | {"box_masks": chosen}


def _split_masks(outputs: Batch) -> tuple[Batch, Array]:
    """Return the outputs other than masks with an axis of pictures, and the masks ``(n, k, rows,
    columns)``.
    """
    name, masks = max(outputs.items(), key=lambda item: item[1].ndim)
    rest = {other: each for other, each in outputs.items() if other != name}
    boxes = [each for each in rest.values() if each.ndim in (2, 3) and each.shape[-1] in (4, 5)]
    if not boxes:
        raise _create_mismatch(outputs)
    if max(each.ndim for each in boxes) == 2:  # of one picture, without an axis of pictures
        rest, masks = {other: each[None] for other, each in rest.items()}, masks[None]
    if masks.ndim == 5 and 1 in (masks.shape[2], masks.shape[4]):
        masks = masks[:, :, 0] if masks.shape[2] == 1 else masks[..., 0]
    for other, each in list(rest.items()):
        if each.ndim == 3 and each.shape[2] == 5:
            rest |= {other: each[..., :4], f"{other} scores": each[..., 4]}
    counts = {each.shape[:2] for each in rest.values() if each.ndim > 1}
    if masks.ndim != 4 or counts != {masks.shape[:2]} or 0 in masks.shape[2:]:
        raise _create_mismatch(outputs)
    return rest, masks


def _create_mismatch(outputs: Batch) -> SpecMismatch:
    given = ", ".join(f"{name} {show_shape(each.shape)}" for name, each in outputs.items())
    return SpecMismatch(
        f"expected boxes (n, k, 4), classes and scores (n, k), and masks (n, k, rows, columns); "
        f"the model gives {given}"
    )
