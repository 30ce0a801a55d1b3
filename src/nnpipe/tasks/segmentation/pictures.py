"""Masks drawn over pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.tensors import Batch, show_shape
from nnpipe.report.task_pictures import COLOURS, Picture, TaskPictures, class_name, mixed
from nnpipe.tasks.frames import on_picture
from nnpipe.tasks.predictions import only
from nnpipe.tasks.segmentation.task import Segmentation

_NAMED = 6


class SegmentationPictures(TaskPictures):
    """Colours the pixels of each class but the first."""

    task = Segmentation.name

    def drawn(self, picture: Picture, predictions: Batch, class_names: Sequence[str]) -> tuple[Picture, str]:
        """Return the picture with coloured classes, and the shares of the largest classes."""
        whole = _mask(predictions, picture)
        coloured = whole > 0
        drawn = mixed(picture, coloured, np.array(COLOURS)[whole[coloured] % len(COLOURS)])
        numbers, counts = np.unique(whole, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:_NAMED]
        told = ", ".join(f"{class_name(int(numbers[n]), class_names)} {counts[n] / whole.size:.0%}" for n in order)
        return drawn, told

    def difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return the share of pixels with different classes."""
        return float(np.mean(_mask(one, picture) != _mask(other, picture)))


def _mask(predictions: Batch, picture: Picture) -> npt.NDArray[Any]:
    """Return the class of each pixel of the picture, ``(height, width)``."""
    found: npt.NDArray[Any] = only({n: a for n, a in predictions.items() if n != "frame"}, "mask")
    if found.ndim == 4:
        found = np.argmax(found, axis=3)
    if found.ndim != 3 or found.dtype.kind not in "iu":
        raise SpecMismatch(f"masks must be class numbers (n, height, width), not {show_shape(found.shape)}")
    return np.asarray(on_picture(found[0], predictions.get("frame"), picture.shape))
