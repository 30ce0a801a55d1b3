"""Pictures with key points in COCO's form: one JSON file for all."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.core.ragged import Ragged
from nnpipe.datasets._coco_content import COCOContent, is_number
from nnpipe.datasets._split import TEST
from nnpipe.datasets.coco_files import COCOFilesDataset
from nnpipe.datasets.posed_images import MOST_NUMBERS, MOST_PERSONS, MOST_POINTS, PosedImagesDataset, PoseListing


class COCOKeypointsDataset(COCOFilesDataset, PosedImagesDataset):
    """Pictures with key points in COCO's form: COCO 2017 itself, or your own.

    ``ROOT/annotations`` holds ``person_keypoints_val2017.json`` and the like, ``ROOT/val2017`` or
    ``ROOT/images/val2017`` the pictures.  Files with ``train`` in their names are the training split, others the test
    split.  Crowds and persons without visible points are kept, as COCO's metrics need them.
    """

    prefix: ClassVar[str] = "person_keypoints_"

    only_with_persons: bool = argument(False, help="whether pictures without any person are left out")

    def listing(self) -> PoseListing:
        """Return the pictures and key points of all files."""
        paths: list[Path] = []
        codes: list[int] = []
        rows: list[tuple[np.ndarray, ...]] = []
        names: tuple[str, ...] = ()
        for file in self.annotation_files():
            found = _Content(file)
            if names not in ((), found.names):
                raise DatasetError(f"{file} has other key points than the files before; name one with --annotations")
            names = found.names
            owners = np.array(found.owner, np.int64)
            pictures = np.array(list(found.images), np.int64)
            if strange := set(owners.tolist()) - set(found.images):
                raise DatasetError(f"{file}: there is no image {min(strange)}, which an annotation names")
            if self.only_with_persons:
                pictures = pictures[np.isin(pictures, owners)]
            order = np.argsort(pictures, kind="stable")
            place = order[np.minimum(np.searchsorted(pictures[order], owners), max(0, len(pictures) - 1))]
            rows.append((len(paths) + place, *found.rows()))
            paths += self.picture_paths(found, pictures.tolist())
            codes += [self.split_code(file)] * len(pictures)
        owner, points, boxes, areas, crowds = (np.concatenate(part) for part in zip(*rows, strict=True))
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=len(paths)).astype(np.int64)
        if int(counts.max(initial=0)) > MOST_PERSONS:
            raise DatasetError(f"{paths[int(counts.argmax())]} has more than {MOST_PERSONS:,} persons; remove some")
        return PoseListing(
            tuple(paths),
            Ragged(points[order], counts),
            names,
            Ragged(boxes[order], counts),
            Ragged(areas[order], counts),
            Ragged(crowds[order], counts),
            np.array(codes, np.int8) if TEST in codes else None,
        )


class _Content(COCOContent):
    """What one file says of key points; of each category, those of the first that names some."""

    def __init__(self, file: Path) -> None:
        self.names: tuple[str, ...] = ()
        self.owner = array("q")
        self._points, self._boxes, self._areas, self._crowds = array("f"), array("f"), array("d"), array("b")
        super().__init__(file)
        number = len(self._points) // (3 * max(1, len(self.owner)))
        if not self.names and number:
            self.names = tuple(f"point {place}" for place in range(number))
        if not self.names or (len(self.owner) and number != len(self.names)):
            raise DatasetError(f"{file} names {len(self.names)} key points, and its persons have {number}")

    def add_category(self, entry: Mapping[str, Any]) -> None:
        """Keep the category, and the names of its key points."""
        super().add_category(entry)
        names = entry.get("keypoints")
        if names is None:
            return
        if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
            raise DatasetError(f"{self.file}: keypoints of a category should be names")
        if len(set(names)) != len(names) or len(names) > MOST_POINTS:
            raise DatasetError(f"{self.file}: a category has up to {MOST_POINTS:,} key points of different names")
        if self.names not in ((), tuple(names)):
            raise DatasetError(f"{self.file} has categories with different key points; keep one of them")
        self.names = tuple(names)

    def add_annotation(self, entry: Mapping[str, Any], image: int, category: int, where: str) -> None:
        """Keep a person's key points, box and area."""
        points, box, area = entry.get("keypoints"), entry.get("bbox"), entry.get("area")
        if not isinstance(points, list) or not points or len(points) % 3 or len(points) > 3 * MOST_POINTS:
            raise DatasetError(f"{where}: keypoints should be three numbers each, for at most {MOST_POINTS:,} points")
        if len(self.owner) and len(points) * len(self.owner) != len(self._points):
            raise DatasetError(f"{where}: the persons of a file should have the same number of key points")
        if (
            not all(map(is_number, points))
            or not isinstance(box, list)
            or len(box) != 4
            or not all(map(is_number, box))
        ):
            raise DatasetError(f"{where}: keypoints should be finite numbers, and bbox four of them")
        if not is_number(area) or area is None or area < 0 or max(map(abs, (*points, *box))) > 1 << 20:
            raise DatasetError(f"{where}: area, keypoints and bbox should be numbers of pixels")
        if len(self._points) + len(points) > MOST_NUMBERS:
            raise DatasetError(
                f"{where}: there are more than {MOST_NUMBERS // 3:,} key points; use some of the pictures"
            )
        self.owner.append(image)
        self._points.extend(points)
        self._boxes.extend(box)
        self._areas.append(area)
        self._crowds.append(entry.get("iscrowd", 0) in (1, True))

    def rows(self) -> tuple[np.ndarray, ...]:
        """Return points, boxes, areas and crowds of all persons."""
        return (
            np.array(self._points, np.float32).reshape(-1, len(self.names), 3),
            np.array(self._boxes, np.float32).reshape(-1, 4),
            np.array(self._areas, np.float64),
            np.array(self._crowds, np.uint8),
        )
