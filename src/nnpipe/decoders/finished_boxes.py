"""The decoder of models that suppress overlapping boxes themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import SpecMismatch
from nnpipe.core.tensor_meaning import InputMeaning
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.decoders._box_outputs import ORDERS, BoxOrder, corners_in_shares
from nnpipe.decoders._class_numbers import coco_classes
from nnpipe.decoders.detection_decoder import Array, Candidates, DetectionDecoder

_EXPECTED = "boxes (n, k, 4), scores (n, k), classes (n, k), and perhaps their number (n,); or one output (n, k, 6)"


class FinishedBoxesDecoder(DetectionDecoder):
    """Models with the suppression inside: TensorFlow Lite's detection postprocessing, EfficientNMS, YOLOv10.

    Outputs are boxes ``(n, k, 4)``, scores and classes ``(n, k)``, and perhaps the number of boxes ``(n,)``; or a
    single one ``(n, k, 6)`` of boxes, score and class; or the same without the first axis, for one picture, as in
    torchvision's files.  If the names of outputs do not tell scores from classes, those
    which are not all whole numbers are the scores.  The defaults are those of TensorFlow Lite.
    """

    suppression: Literal["outside", "inside"] = argument(
        "inside", help="whether overlapping boxes are dropped here, or inside the model already"
    )
    box_order: BoxOrder = argument("tlbr", help=ORDERS)
    coordinates: Literal["pixels", "shares"] = argument(
        "shares", help="whether boxes are in pixels of the input, or in shares of its size"
    )
    numbering: Literal["own", "coco-ids"] = argument(
        "own", help="coco-ids: classes are COCO's 90 category numbers, and become the 80 classes in use"
    )
    class_offset: int = argument(0, help="number of the first class, 1 if 0 is the background", minimum=0)
    scores_output: str | None = argument(None, help="name of the output with scores, if it cannot be told from classes")
    classes_output: str | None = argument(None, help="name of the output with classes, likewise")

    def candidates(self, outputs: Batch, io: IOSpec, inputs: Sequence[InputMeaning]) -> Candidates:
        """Return the boxes that the model gives."""
        if max((output.ndim for output in outputs.values()), default=0) == 2:
            outputs = {name: output[None] for name, output in outputs.items()}
        if len(outputs) == 1:
            output = next(iter(outputs.values()))
            if output.ndim == 4 and output.shape[1] == 1:
                output = output[:, 0]
            if output.ndim != 3 or output.shape[2] != 6:
                raise self._misfit(outputs)
            boxes, scores, classes = output[..., :4], output[..., 4], output[..., 5]
            counts = np.full(len(boxes), boxes.shape[1])
        else:
            boxes, scores, classes, counts = self._parts(outputs)
        boxes = corners_in_shares(boxes, self.box_order, self.coordinates, io, inputs)
        known = np.isfinite(classes)
        numbers = np.rint(np.nan_to_num(classes, posinf=0, neginf=0)).astype(np.int64) - self.class_offset
        if self.numbering == "coco-ids":
            numbers = coco_classes(numbers + 1)
        numbers, scores = np.where(known, numbers, 0), np.where(known, scores, np.nan)
        numbers = np.where(np.arange(boxes.shape[1]) < np.asarray(counts).reshape(-1, 1), numbers, -1)
        return Candidates(boxes, scores.astype(np.float32), numbers)

    def _parts(self, outputs: Batch) -> tuple[Array, Array, Array, Array]:
        boxes = [output for output in outputs.values() if output.ndim == 3 and output.shape[2] == 4]
        if len(boxes) != 1:
            raise self._misfit(outputs)
        count, most = boxes[0].shape[:2]
        flat = {name: output for name, output in outputs.items() if output.shape == (count, most)}
        numbers = [output for output in outputs.values() if output.size == count and output.shape != (count, most)]
        named = self.scores_output, self.classes_output
        if any(name is not None and name not in flat for name in named):
            raise self._misfit(outputs)
        scores, classes = named
        for name in flat:
            if scores is None and "score" in name.lower():
                scores = name
            elif classes is None and any(word in name.lower() for word in ("class", "label")):
                classes = name
        if scores is None or classes is None:
            # Class numbers of an empty picture are whole, and so may be its scores: integers of any type come first.
            order = sorted(
                flat, key=lambda name: (flat[name].dtype.kind in "iu", _whole(flat[name]), _most(flat[name]))
            )
            scores = scores or next((name for name in order if name != classes), None)
            classes = classes or next((name for name in reversed(order) if name != scores), None)
        if scores is None or classes is None or len(flat) != 2:
            raise self._misfit(outputs)
        found = numbers[0] if len(numbers) == 1 else np.full(count, most)
        found = np.where(np.isfinite(found), found, most)
        return boxes[0], flat[scores], flat[classes], np.rint(found).astype(np.int64).reshape(-1)

    def _misfit(self, outputs: Batch) -> SpecMismatch:
        given = ", ".join(f"{name} {output.shape}" for name, output in outputs.items())
        return SpecMismatch(f"expected {_EXPECTED}; the model gives {given}")


def _whole(values: Array) -> bool:
    return bool(np.all(values == np.rint(values)))


def _most(values: Array) -> float:
    return float(values.max(initial=0))
