"""Masks drawn over pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.tensors import Batch, show_shape
from nnpipe.report.task_pictures import COLOURS, Picture, TaskPictures, class_name
from nnpipe.tasks.frames import cells_of_pixels
from nnpipe.tasks.predictions import only
from nnpipe.tasks.segmentation.task import Segmentation

_STRENGTH = 0.5  # of colours over the picture
_NAMED = 6


class SegmentationPictures(TaskPictures):
    """Colours the pixels of each class but the first."""

    task = Segmentation.name

    def drawn(self, picture: Picture, predictions: Batch, class_names: Sequence[str]) -> tuple[Picture, str]:
        """Return the picture with coloured classes, and the shares of the largest classes."""
        mask = _mask(predictions)
        size = np.array(picture.shape[:2], np.int64)
        frames = predictions.get("frame", np.array([[*mask.shape, 0]], np.float32))
        rows, columns = cells_of_pixels(frames[0], size, (mask.shape[0], mask.shape[1]))
        whole = mask[rows[:, None], columns]
        colours = np.array(COLOURS, np.float64)[whole % len(COLOURS)]
        mixed = np.where(whole[..., None] > 0, (1 - _STRENGTH) * picture + _STRENGTH * colours, picture)
        numbers, counts = np.unique(whole, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:_NAMED]
        told = ", ".join(f"{class_name(int(numbers[n]), class_names)} {counts[n] / whole.size:.0%}" for n in order)
        return np.rint(mixed).astype(np.uint8), told

    def difference(self, one: Batch, other: Batch) -> float:
        """Return the share of pixels with different classes."""
        first, second = _mask(one), _mask(other)
        return float(np.mean(first != second)) if first.shape == second.shape else float("inf")


def _mask(predictions: Batch) -> npt.NDArray[Any]:
    """Return the class of each pixel, ``(height, width)``."""
    found: npt.NDArray[Any] = only({n: a for n, a in predictions.items() if n != "frame"}, "mask")
    if found.ndim == 4:
        found = np.argmax(found, axis=3)
    if found.ndim != 3 or found.dtype.kind not in "iu":
        raise SpecMismatch(f"masks must be class numbers (n, height, width), not {show_shape(found.shape)}")
    return np.asarray(found[0])
