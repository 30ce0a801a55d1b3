"""The section of reports about a segmentation, and masks drawn over pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensors import Batch, show_shape
from nnpipe.report.document import Cell, Section, Table
from nnpipe.report.formatting import clean, format_share
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.task_section import (
    COLOURS,
    Picture,
    TaskPictures,
    TaskSection,
    blend_colours,
    build_evaluation_section,
    get_class_label,
)
from nnpipe.tasks.frames import map_to_picture
from nnpipe.tasks.predictions import get_tensor
from nnpipe.tasks.segmentation.metrics import prepare_class_pixels
from nnpipe.tasks.segmentation.task import Segmentation

_MANY = 40  # classes that a table shows
_CONFUSIONS = 10


class SegmentationSection(TaskSection):
    """Shows the metrics with their intervals, and for each class how much of it is right and
    what it is taken for.
    """

    task = Segmentation.name

    def build_section(self, candidates: Sequence[Candidate]) -> Section:
        """Return the section; candidates without judged masks have a row of dashes only."""
        return build_evaluation_section(
            Segmentation(),
            candidates,
            lambda _, found, __: (_build_class_table(found), _build_confusions_table(found)),
        )


def _build_class_table(found: Evaluation) -> Table:
    """Return the table of the classes in the truth; of many, those with the least IoU."""
    numbers, counted = prepare_class_pixels(found)
    pixels = counted(np.ones(len(found)))
    there = np.flatnonzero(pixels.true > 0)
    chosen = (
        there[np.argsort(pixels.iou[there], kind="stable")][:_MANY] if len(there) > _MANY else there
    )
    total = max(1.0, float(pixels.true.sum()))
    with np.errstate(invalid="ignore", divide="ignore"):
        precision, recall = pixels.right / pixels.called, pixels.right / pixels.true
    rows = tuple(
        (
            Cell(_format_class_name(found, int(numbers[n]))),
            *(
                _format_share_cell(values[n])
                for values in (
                    pixels.iou,
                    pixels.dice,
                    pixels.boundary_iou,
                    precision,
                    recall,
                    pixels.true / total,
                )
            ),
        )
        for n in chosen
    )
    header = ("Class", "IoU", "Dice", "Boundary IoU", "Precision", "Recall", "Of all pixels")
    few = f"; the {_MANY} with the least IoU of {len(there):,}" if len(there) > _MANY else ""
    return Table(header, rows, sortable=True, caption=f"Every class in the truth{few}")


def _build_confusions_table(found: Evaluation) -> Table:
    """Return the table of the classes that are most often taken for others."""
    rows: npt.NDArray[np.int64] = found.ragged["pixels"].values.astype(np.int64)
    kinds, places = np.unique(rows[:, :2], axis=0, return_inverse=True)
    counts = np.bincount(places.reshape(-1), rows[:, 2].astype(np.float64), len(kinds))
    of_class = {
        int(label): float(counts[kinds[:, 0] == label].sum()) for label in np.unique(kinds[:, 0])
    }
    wrong = np.flatnonzero((kinds[:, 0] != kinds[:, 1]) & (counts > 0))
    chosen = wrong[np.argsort(-counts[wrong], kind="stable")][:_CONFUSIONS]
    cells = tuple(
        (
            _format_class_name(found, int(kinds[n, 0])),
            _format_class_name(found, int(kinds[n, 1])),
            Cell(f"{int(counts[n]):,}", float(counts[n])),
            _format_share_cell(counts[n] / of_class[int(kinds[n, 0])]),
        )
        for n in chosen
    )
    header = ("True class", "Predicted class", "Pixels", "Of the true class")
    return Table(header, cells, sortable=True, caption="Most common confusions")


def _format_class_name(found: Evaluation, number: int) -> str:
    return (
        clean(found.class_names[number], 80)
        if number < len(found.class_names)
        else f"class {number}"
    )


def _format_share_cell(value: float) -> Cell:
    value = float(value)
    return Cell(format_share(value, 1), value if np.isfinite(value) else None)


_NAMED = 6


class SegmentationPictures(TaskPictures):
    """Colours the pixels of each class but the first."""

    task = Segmentation.name

    def draw(
        self, picture: Picture, predictions: Batch, class_names: Sequence[str]
    ) -> tuple[Picture, str]:
        """Return the picture with coloured classes, and the shares of the largest classes."""
        whole = _map_mask_to_picture(predictions, picture)
        coloured = whole > 0
        drawn = blend_colours(picture, coloured, np.array(COLOURS)[whole[coloured] % len(COLOURS)])
        numbers, counts = np.unique(whole, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:_NAMED]
        told = ", ".join(
            f"{get_class_label(int(numbers[n]), class_names)} {counts[n] / whole.size:.0%}"
            for n in order
        )
        return drawn, told

    def measure_difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return the share of pixels with different classes."""
        return float(
            np.mean(_map_mask_to_picture(one, picture) != _map_mask_to_picture(other, picture))
        )


def _map_mask_to_picture(predictions: Batch, picture: Picture) -> npt.NDArray[Any]:
    """Return the class of each pixel of the picture, ``(height, width)``."""
    found: npt.NDArray[Any] = get_tensor(
        {n: a for n, a in predictions.items() if n != "frame"}, "mask"
    )
    if found.ndim == 4:
        found = np.argmax(found, axis=3)
    if found.ndim != 3 or found.dtype.kind not in "iu":
        raise SpecMismatch(
            f"masks must be class numbers (n, height, width), not {show_shape(found.shape)}"
        )
    return np.asarray(map_to_picture(found[0], predictions.get("frame"), picture.shape))
