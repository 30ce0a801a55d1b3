"""Pictures with boxes in COCO's form: one JSON file for all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.datasets._json_arrays import elements
from nnpipe.datasets._split import TEST, TRAIN
from nnpipe.datasets.boxed_images import BoxedImagesDataset, BoxListing, BoxTable

_MOST_SIDE = 1 << 16
_MOST_CLASSES = 1 << 16
_MOST_IMAGES = 1 << 22


class COCODataset(BoxedImagesDataset):
    """Pictures with boxes in COCO's form: COCO 2017 itself, or your own.

    ``ROOT/annotations`` holds ``instances_val2017.json`` and the like, ``ROOT/val2017`` or ``ROOT/images/val2017`` the
    pictures.  Files with ``train`` in their names are the training split, others the test split.  Classes are numbered
    in the order of their category numbers, so that COCO's 90 numbers become 80 classes.  Crowds are kept, as COCO's
    metrics need them.
    """

    formerly: ClassVar[tuple[str, ...]] = ("COCODataset2017",)

    annotations: tuple[Path, ...] | None = argument(
        None, help="JSON files of the pictures to use; by default ROOT/annotations/instances_*.json, or the only *.json"
    )
    images: Path | None = argument(
        None, help="folder of the pictures; by default they are looked for in folders below --dataset-root"
    )

    def listing(self) -> BoxListing:
        """Return the pictures and boxes of all files."""
        paths: list[Path] = []
        sizes: list[tuple[int, int]] = []
        codes: list[int] = []
        table = BoxTable()
        names: tuple[str, ...] | None = None
        for file in self._files():
            found = _Content(file)
            here = tuple(name for _, name in sorted(found.categories.items()))
            if names is not None and here != names:
                raise DatasetError(f"{file} has other categories than the files before; name one with --annotations")
            names = here
            places = {image: len(paths) + place for place, image in enumerate(found.images)}
            numbers = {category: number for number, category in enumerate(sorted(found.categories))}
            table.extend(found.table, places, numbers, str(file))
            folder = self._folder(file, [name for name, _ in found.images.values()])
            for name, size in found.images.values():
                paths.append(folder / name)
                sizes.append(size)
                codes.append(TRAIN if "train" in file.name.lower() else TEST)
        assert names is not None  # there is a file
        boxes, labels, crowds, areas = table.rows(len(paths))
        official = np.array(codes, np.int8) if TEST in codes else None
        return BoxListing(
            tuple(paths), boxes, labels, names, crowds, areas, np.array(sizes, np.int64).reshape(-1, 2), official
        )

    def _files(self) -> tuple[Path, ...]:
        if self.annotations is not None:
            if not self.annotations:
                raise DatasetError("--annotations names no file")
            return self.annotations
        found = sorted(self.dataset_root.glob("annotations/instances_*.json"))
        found = found or sorted({*self.dataset_root.glob("*.json"), *self.dataset_root.glob("annotations/*.json")})
        if not found or (len(found) > 1 and not all(path.name.startswith("instances_") for path in found)):
            told = f"holds {' and '.join(path.name for path in found[:3])}" if found else "holds no annotations/*.json"
            raise DatasetError(f"{self.dataset_root} {told}: name the files of the data set with --annotations")
        return tuple(found)

    def _folder(self, file: Path, names: list[str]) -> Path:
        """Return the folder that holds the pictures of a file."""
        if self.images is not None:
            return self.images
        part = file.stem.removeprefix("instances_")
        root = self.dataset_root
        folders = [root / part, root / "images" / part, root / "images", root, file.parent, file.parent / "images"]
        for folder in folders:
            if not names or (folder / names[0]).is_file():
                return folder
        raise DatasetError(
            f"{names[0]} of {file} is in none of {', '.join(map(str, folders[:3]))}: name its folder with --images"
        )

    def origin(self) -> Mapping[str, Any]:
        """Return the annotation files."""
        return {"name": "COCO's form", "annotations": [path.name for path in self._files()]}


class _Content:
    """What one file holds, read in a single pass: its parts come in any order."""

    def __init__(self, file: Path) -> None:
        self.categories: dict[int, str] = {}
        self.images: dict[int, tuple[str, tuple[int, int]]] = {}
        self.table = BoxTable()
        self._file = file
        for key, each in elements(file, {"categories", "images", "annotations"}):
            entry = each if isinstance(each, dict) else {}
            if key == "categories":
                self._add_category(entry)
            elif key == "images":
                self._add_image(entry)
            else:
                self._add_box(entry)
        if not self.categories or len(set(self.categories.values())) != len(self.categories):
            raise DatasetError(f"{file} holds no categories, or several of one name")

    def _add_category(self, entry: Mapping[str, Any]) -> None:
        number, name = _whole(entry, "id"), entry.get("name")
        there = number is None or number in self.categories or len(self.categories) >= _MOST_CLASSES
        if number is None or there or not isinstance(name, str) or not name:
            raise DatasetError(f"{self._file}: a category has a number of its own and a name, not {str(entry)[:80]}")
        self.categories[number] = name

    def _add_image(self, entry: Mapping[str, Any]) -> None:
        number, height, width = (_whole(entry, key) for key in ("id", "height", "width"))
        name = entry.get("file_name")
        if number is None or number in self.images or not isinstance(name, str) or not _inside(name):
            raise DatasetError(f"{self._file}: an image has a number of its own and a file_name, not {str(entry)[:80]}")
        if not (height and width and 0 < height <= _MOST_SIDE and 0 < width <= _MOST_SIDE):
            raise DatasetError(f"{self._file}: the image {name[:80]} has the size {width} x {height}")
        if len(self.images) >= _MOST_IMAGES:
            raise DatasetError(f"{self._file} holds more than {_MOST_IMAGES:,} images; divide it")
        self.images[number] = name, (height, width)

    def _add_box(self, entry: Mapping[str, Any]) -> None:
        where = f"{self._file}, annotation {str(entry.get('id'))[:40]}"
        image, category, box = _whole(entry, "image_id"), _whole(entry, "category_id"), entry.get("bbox")
        if image is None or category is None:
            raise DatasetError(f"{where}: image_id and category_id should be whole numbers")
        if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):
            raise DatasetError(f"{where}: bbox should be four numbers, not {str(box)[:60]}")
        area = entry.get("area")
        if area is not None and (not _is_number(area) or area < 0):
            raise DatasetError(f"{where}: area should be a number, not {str(area)[:60]}")
        crowd = entry.get("iscrowd", 0) in (1, True)
        self.table.add(image, category, box, where, area=None if area is None else float(area), crowd=crowd)


def _inside(name: str) -> bool:
    """Return whether a name of a file in annotations leads to a place inside the folder of pictures."""
    path = Path(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _whole(entry: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number of at most 63 bits, or ``None``."""
    value = entry.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def _is_number(value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
