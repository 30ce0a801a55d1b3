"""The base of data sets of pictures with boxes."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.core.evaluation import Ragged
from nnpipe.core.tensors import Batch, DatasetSpec, TensorSpec
from nnpipe.datasets.image_files import ListedPicturesDataset
from nnpipe.datasets.in_memory import check_indices
from nnpipe.tasks.detection.task import Detection

MOST_BOXES = 10_000
"""True boxes that a picture may have."""
_MOST_ROWS = 1 << 26  # of all pictures: 3 GB


@dataclass(frozen=True, eq=False)
class BoxListing:
    """Pictures with their boxes.

    Attributes
    ----------
    paths
        One image file per sample.
    boxes
        Left, top, width and height of the boxes of each picture, float64; in pixels, or in shares
        of the picture's width and height if ``shares`` is true.
    labels
        Their classes, int64.
    class_names
        Class names in order of their numbers.
    crowds
        Whether each box is one that need not be found: a crowd, or a thing that is hard to see.
    areas
        The area of each thing in pixels; ``None``: that of its box.
    sizes
        Height and width of each picture that annotations state, ``(n, 2)``; ``None`` if they do
        not.
    official
        ``(n,)`` published split: 0 for training, 1 for validation and 2 for test samples; ``None``
        without one.
    shares
        Whether boxes are in shares of the picture's size.
    verified
        The classes that were looked for in each picture; ``None``: all.
    """

    paths: tuple[Path, ...]
    boxes: Ragged
    labels: Ragged
    class_names: tuple[str, ...]
    crowds: Ragged
    areas: Ragged | None = None
    sizes: npt.NDArray[np.int64] | None = None
    official: npt.NDArray[np.integer] | None = None
    shares: bool = False
    verified: Ragged | None = None


@dataclass
class BoxTable:
    """Boxes as they are read, 50 bytes each, until they make a :class:`BoxListing`."""

    picture: array[int] = field(default_factory=lambda: array("q"))
    label: array[int] = field(default_factory=lambda: array("q"))
    numbers: array[float] = field(default_factory=lambda: array("d"))
    area: array[float] = field(default_factory=lambda: array("d"))
    crowd: array[int] = field(default_factory=lambda: array("b"))
    counts: dict[int, int] = field(default_factory=dict)

    def add(
        self,
        picture: int,
        label: int,
        box: Sequence[float],
        where: str,
        *,
        area: float | None = None,
        crowd: bool = False,
    ) -> None:
        """Add a box; ``where`` names its place in messages.

        Raises
        ------
        DatasetError
            If its numbers are not finite, its size is negative, or its picture has too many boxes.
        """
        if len(box) != 4 or not all(map(np.isfinite, box)) or box[2] < 0 or box[3] < 0:
            raise DatasetError(
                f"{where}: a box is four finite numbers, its size not negative; not {str(box)[:60]}"
            )
        self.counts[picture] = self.counts.get(picture, 0) + 1
        if self.counts[picture] > MOST_BOXES:
            raise DatasetError(
                f"{where}: a picture has more than {MOST_BOXES:,} boxes; remove some of them"
            )
        if len(self.picture) >= _MOST_ROWS:
            raise DatasetError(
                f"{where}: there are more than {_MOST_ROWS:,} boxes in all; use some of the "
                f"pictures"
            )
        self.picture.append(picture)
        self.label.append(label)
        self.numbers.extend(map(float, box))
        self.area.append(float(box[2]) * float(box[3]) if area is None else area)
        self.crowd.append(crowd)

    def extend(
        self, other: BoxTable, pictures: Mapping[int, int], labels: Mapping[int, int], where: str
    ) -> None:
        """Add the boxes of another table, whose pictures and classes have other numbers.

        Raises
        ------
        DatasetError
            If a picture or class of the other table is not among those that are mapped.
        """
        for row, (picture, label) in enumerate(zip(other.picture, other.label, strict=True), 1):
            if picture not in pictures or label not in labels:
                raise DatasetError(
                    f"{where}, annotation {row} of it: there is no image {picture} or no category "
                    f"{label}"
                )
            self.picture.append(pictures[picture])
            self.label.append(labels[label])
        self.numbers.extend(other.numbers)
        self.area.extend(other.area)
        self.crowd.extend(other.crowd)

    def rows(self, pictures: int) -> tuple[Ragged, Ragged, Ragged, Ragged]:
        """Return boxes, labels, crowds and areas by picture, in the order in which they were
        added.
        """
        owner = np.array(self.picture, np.int64)
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=pictures).astype(np.int64)
        columns = (
            np.array(self.numbers, np.float64).reshape(-1, 4),
            np.array(self.label, np.int64),
            np.array(self.crowd, np.uint8),
            np.array(self.area, np.float64),
        )
        boxes, labels, crowds, areas = (Ragged(column[order], counts) for column in columns)
        return boxes, labels, crowds, areas


class BoxedImagesDataset(ListedPicturesDataset[BoxListing]):
    """Base of data sets of pictures with boxes; a subclass writes :meth:`list_files`."""

    abstract: ClassVar[bool] = True
    protocol: Literal["coco", "pascal", "open_images"] = argument(
        "coco",
        help=(
            "whose rules of matching and mAP judge the boxes: those of COCO, Pascal VOC or Open "
            "Images"
        ),
    )

    @property
    def task(self) -> Detection:
        """Detection, by the rules of ``protocol``."""
        return Detection(protocol=self.protocol)

    @property
    def spec(self) -> DatasetSpec:
        """Pictures of any size, their sizes, and their boxes, padded to the greatest number in a
        picture.
        """
        found = self.files
        most = _find_largest_count(found.boxes)
        return DatasetSpec(
            Detection.name,
            inputs=self.pictures,
            targets=(
                TensorSpec("boxes", (None, most, 4), "float64"),
                TensorSpec("class", (None, most), "int64"),
                TensorSpec("crowd", (None, most), "uint8"),
                TensorSpec("area", (None, most), "float64"),
                TensorSpec("size", (None, 2), "int32"),
                *(
                    []
                    if found.verified is None
                    else [
                        TensorSpec("verified", (None, _find_largest_count(found.verified)), "int64")
                    ]
                ),
            ),
            class_names=found.class_names,
        )

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return some samples: decoded pictures and their boxes in pixels."""
        indices = check_indices(indices, len(self))
        inputs, sizes = self.decode_pictures(indices, self.files.sizes)
        return inputs, self._build_truth(indices, sizes)

    def _build_truth(self, indices: npt.NDArray[np.int64], sizes: npt.NDArray[np.int32]) -> Batch:
        found = self.files
        most = _find_largest_count(found.boxes)
        boxes = np.zeros((len(indices), most, 4))
        classes = np.full((len(indices), most), -1, np.int64)
        crowds = np.zeros((len(indices), most), np.uint8)
        areas = np.zeros((len(indices), most))
        for place, index in enumerate(indices.tolist()):
            count = int(found.boxes.counts[index])
            boxes[place, :count] = found.boxes[index]
            classes[place, :count] = found.labels[index]
            crowds[place, :count] = found.crowds[index]
            if found.areas is not None:
                areas[place, :count] = found.areas[index]
        if found.shares:
            boxes *= sizes[:, None, [1, 0, 1, 0]]
        if found.areas is None:
            areas = boxes[..., 2] * boxes[..., 3]
        truth = {
            "boxes": boxes,
            "class": classes,
            "crowd": crowds,
            "area": areas,
            "size": sizes.copy(),
        }
        if found.verified is not None:
            truth["verified"] = np.full(
                (len(indices), _find_largest_count(found.verified)), -1, np.int64
            )
            for place, index in enumerate(indices.tolist()):
                truth["verified"][place, : int(found.verified.counts[index])] = found.verified[
                    index
                ]
        return truth

    @property
    def strata(self) -> npt.NDArray[np.int64]:
        """Whether a picture has boxes, and the class of the first."""
        found = self.files
        firsts = np.full(len(found.paths), -1, np.int64)
        boxed = found.labels.counts > 0
        firsts[boxed] = found.labels.values[found.labels.starts[:-1][boxed]]
        return firsts


def _find_largest_count(rows: Ragged) -> int:
    return int(rows.counts.max(initial=1))
