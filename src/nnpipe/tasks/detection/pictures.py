"""Boxes drawn into pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.tensors import Batch
from nnpipe.report.task_pictures import COLOURS, Picture, TaskPictures, class_name, first_of
from nnpipe.tasks.detection.overlaps import overlaps
from nnpipe.tasks.detection.task import Detection
from nnpipe.tasks.frames import in_pixels

_SURE = 0.25  # least score of boxes that are drawn
_MOST = 100


class DetectionPictures(TaskPictures):
    """Draws the boxes with scores from 0.25 on, with their classes."""

    task = Detection.name

    def drawn(self, picture: Picture, predictions: Batch, class_names: Sequence[str]) -> tuple[Picture, str]:
        """Return the picture with boxes, and how many there are."""
        from PIL import Image, ImageDraw

        image = Image.fromarray(picture)
        pen, width = ImageDraw.Draw(image), max(2, picture.shape[1] // 300)
        boxes, labels, scores = _sure(predictions, picture.shape[:2])
        for box, label, score in zip(boxes, labels.tolist(), scores.tolist(), strict=True):
            ends = np.clip([*box[:2], *(box[:2] + box[2:])], 0, [*picture.shape[1::-1]] * 2).tolist()
            colour = COLOURS[int(label) % len(COLOURS)]
            pen.rectangle(ends, outline=colour, width=width)
            text = f"{class_name(int(label), class_names)} {score:.2f}"
            place = (ends[0] + width, max(ends[1] - 11, 0))
            pen.rectangle(pen.textbbox(place, text), fill=colour)
            pen.text(place, text, fill=(255, 255, 255))
        return np.asarray(image), f"{len(boxes)} box{'es' * (len(boxes) != 1)} with scores from {_SURE} on"

    def difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return the number of boxes of either model that overlap none of the other's, of their class, by half."""
        (first, labels, _), (second, others, _) = (_sure(each, picture.shape[:2]) for each in (one, other))
        if not len(first) or not len(second):
            return float(len(first) + len(second))
        rows, columns = (grid.ravel() for grid in np.indices((len(first), len(second))))
        alike = overlaps(first[rows], second[columns], np.zeros(len(rows), bool)) >= 0.5
        pairs = (alike & (labels[rows] == others[columns])).reshape(len(first), len(second))
        return float((~pairs.any(axis=1)).sum() + (~pairs.any(axis=0)).sum())


def _sure(
    predictions: Batch, size: tuple[int, ...]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[Any], npt.NDArray[np.float64]]:
    """Return boxes in pixels, with classes and scores, the most certain first."""
    if missing := [name for name in ("boxes", "class", "scores") if name not in predictions]:
        raise SpecMismatch(f"a detector's predictions hold {', '.join(missing)}; name its decoder with --decoder")
    boxes = predictions["boxes"]
    if "frame" in predictions:
        boxes = in_pixels(boxes, predictions["frame"], np.array([size], np.int64))
    found, scores, labels = first_of(boxes), first_of(predictions["scores"]), predictions["class"][0]
    order = np.argsort(-scores, kind="stable")
    usable = (labels >= 0) & (scores >= _SURE) & np.isfinite(found).all(axis=1) & (found[:, 2:] > 0).all(axis=1)
    order = order[usable[order]][:_MOST]
    return found[order], labels[order], scores[order]
