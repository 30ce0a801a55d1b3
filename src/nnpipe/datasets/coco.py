"""Pictures with boxes in COCO's form: one JSON file for all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.errors import DatasetError
from nnpipe.datasets._coco_content import COCOContent, is_number
from nnpipe.datasets._split import TEST
from nnpipe.datasets.boxed_images import BoxedImagesDataset, BoxListing, BoxTable
from nnpipe.datasets.coco_files import COCOFilesDataset


class COCODataset(COCOFilesDataset, BoxedImagesDataset):
    """Pictures with boxes in COCO's form: COCO 2017 itself, or your own.

    ``ROOT/annotations`` holds ``instances_val2017.json`` and the like, ``ROOT/val2017`` or ``ROOT/images/val2017`` the
    pictures; or there is a folder of each split with the pictures and ``_annotations.coco.json``.  Files with ``train``
    in their names are the training split, others the test split.  Classes are numbered
    in the order of their category numbers, so that COCO's 90 numbers become 80 classes.  Crowds are kept, as COCO's
    metrics need them.
    """

    formerly: ClassVar[tuple[str, ...]] = ("COCODataset2017",)

    def listing(self) -> BoxListing:
        """Return the pictures and boxes of all files."""
        paths: list[Path] = []
        sizes: list[tuple[int, int]] = []
        codes: list[int] = []
        table = BoxTable()
        names: tuple[str, ...] | None = None
        for file in self.annotation_files():
            found = COCOBoxes(file)
            here = tuple(name for _, name in sorted(found.categories.items()))
            if names is not None and here != names:
                raise DatasetError(f"{file} has other categories than the files before; name one with --annotations")
            names = here
            places = {image: len(paths) + place for place, image in enumerate(found.images)}
            numbers = {category: number for number, category in enumerate(sorted(found.categories))}
            table.extend(found.table, places, numbers, str(file))
            paths += self.picture_paths(found)
            sizes += [size for _, size in found.images.values()]
            codes += [self.split_code(file)] * len(found.images)
        assert names is not None  # there is a file
        boxes, labels, crowds, areas = table.rows(len(paths))
        official = np.array(codes, np.int8) if TEST in codes else None
        return BoxListing(
            tuple(paths), boxes, labels, names, crowds, areas, np.array(sizes, np.int64).reshape(-1, 2), official
        )


class COCOBoxes(COCOContent):
    """What one file of boxes holds.

    Attributes
    ----------
    table
        The boxes, whose pictures and classes are numbered as in the file.
    """

    def __init__(self, file: Path) -> None:
        self.table = BoxTable()
        super().__init__(file)

    def add_annotation(self, entry: Mapping[str, Any], image: int, category: int, where: str) -> None:
        """Keep a box."""
        box = entry.get("bbox")
        if not isinstance(box, list) or len(box) != 4 or not all(map(is_number, box)):
            raise DatasetError(f"{where}: bbox should be four numbers, not {str(box)[:60]}")
        area = entry.get("area")
        if area is not None and (not is_number(area) or area < 0):
            raise DatasetError(f"{where}: area should be a number, not {str(area)[:60]}")
        crowd = entry.get("iscrowd", 0) in (1, True)
        self.table.add(image, category, box, where, area=None if area is None else float(area), crowd=crowd)
