"""Pictures with boxes in COCO's form: one JSON file for all."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import DatasetError
from nnpipe.datasets._json_arrays import iter_keyed_elements
from nnpipe.datasets._split import TEST, TRAIN, VALIDATION, find_splits
from nnpipe.datasets.boxed_images import BoxedImagesDataset, BoxListing, BoxTable

_MOST_SIDE = 1 << 16
_MOST_CLASSES = 1 << 16
_MOST_IMAGES = 1 << 22


class COCOContent(ABC):
    """What one file holds, read in a single pass: its parts come in any order.

    Attributes
    ----------
    categories
        Names of the categories by number.
    images
        Name, height and width of the pictures by number.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.categories: dict[int, str] = {}
        self.images: dict[int, tuple[str, tuple[int, int]]] = {}
        for key, each in iter_keyed_elements(file, {"categories", "images", "annotations"}):
            entry = each if isinstance(each, dict) else {}
            if key == "categories":
                self.add_category(entry)
            elif key == "images":
                self._add_image(entry)
            else:
                where = f"{file}, annotation {str(entry.get('id'))[:40]}"
                image, category = (
                    get_whole_number(entry, "image_id"),
                    get_whole_number(entry, "category_id"),
                )
                if image is None or category is None:
                    raise DatasetError(f"{where}: image_id and category_id should be whole numbers")
                self.add_annotation(entry, image, category, where)
        if not self.categories or len(set(self.categories.values())) != len(self.categories):
            raise DatasetError(f"{file} holds no categories, or several of one name")

    @abstractmethod
    def add_annotation(
        self, entry: Mapping[str, Any], image: int, category: int, where: str
    ) -> None:
        """Keep what an annotation says; ``where`` names its place in messages.

        Raises
        ------
        DatasetError
            If it is malformed.
        """

    def add_category(self, entry: Mapping[str, Any]) -> None:
        """Keep the number and the name of a category."""
        number, name = get_whole_number(entry, "id"), entry.get("name")
        there = number is None or number in self.categories or len(self.categories) >= _MOST_CLASSES
        if number is None or there or not isinstance(name, str) or not name:
            raise DatasetError(
                f"{self.file}: a category has a number of its own and a name, not {str(entry)[:80]}"
            )
        self.categories[number] = name

    def _add_image(self, entry: Mapping[str, Any]) -> None:
        number, height, width = (get_whole_number(entry, key) for key in ("id", "height", "width"))
        name = entry.get("file_name")
        if (
            number is None
            or number in self.images
            or not isinstance(name, str)
            or not _is_inside_folder(name)
        ):
            raise DatasetError(
                f"{self.file}: an image has a number of its own and a file_name, not "
                f"{str(entry)[:80]}"
            )
        if not (height and width and 0 < height <= _MOST_SIDE and 0 < width <= _MOST_SIDE):
            raise DatasetError(
                f"{self.file}: the image {name[:80]} has the size {width} x {height}"
            )
        if len(self.images) >= _MOST_IMAGES:
            raise DatasetError(f"{self.file} holds more than {_MOST_IMAGES:,} images; divide it")
        self.images[number] = name, (height, width)


def find_annotation_files(
    root: Path, given: Sequence[Path] | None, prefix: str
) -> tuple[Path, ...]:
    """Return the annotation files that are given, or those in a folder whose names begin with
    ``prefix``, or the only.

    Raises
    ------
    DatasetError
        If there are none, or several that may be meant.
    """
    if given is not None:
        if not given:
            raise DatasetError("--annotations names no file")
        return tuple(given)
    found = sorted(root.glob(f"annotations/{prefix}*.json"))
    found = found or sorted({*root.glob("*.json"), *root.glob("annotations/*.json")})
    if not found:  # a file in the folder of each split
        found = sorted(root.glob("*/_annotations*.json"))
        if found:
            return tuple(found)
    if not found or (len(found) > 1 and not all(path.name.startswith(prefix) for path in found)):
        told = (
            f"holds {' and '.join(path.name for path in found[:3])}"
            if found
            else "holds no annotations/*.json"
        )
        raise DatasetError(f"{root} {told}: name the files of the data set with --annotations")
    return tuple(found)


def find_picture_folder(
    root: Path, given: Path | None, file: Path, prefix: str, names: Sequence[str]
) -> Path:
    """Return the folder that holds the pictures of an annotation file.

    Raises
    ------
    DatasetError
        If the first of them is in none of the usual ones.
    """
    if given is not None:
        return given
    part = file.stem.removeprefix(prefix)
    folders = [
        root / part,
        root / "images" / part,
        root / "images",
        root,
        file.parent,
        file.parent / "images",
    ]
    for folder in folders:
        if not names or (folder / names[0]).is_file():
            return folder
    raise DatasetError(
        f"{names[0]} of {file} is in none of {', '.join(map(str, folders[:3]))}: name its folder "
        f"with --images"
    )


def _is_inside_folder(name: str) -> bool:
    """Return whether a name of a file in annotations leads to a place inside the folder of
    pictures.
    """
    path = Path(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def get_whole_number(entry: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number of at most 63 bits, or ``None``."""
    value = entry.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
        else None
    )


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


class COCOFilesDataset(Dataset):
    """Base of data sets of pictures that JSON files in COCO's form list.

    Attributes
    ----------
    prefix
        How the names of COCO's own files of this kind begin.
    """

    abstract: ClassVar[bool] = True
    prefix: ClassVar[str] = "instances_"

    annotations: tuple[Path, ...] | None = argument(
        None,
        help="JSON files of the pictures to use; by default those in ROOT/annotations that are "
        "named as COCO's own, or the only *.json",
    )
    images: Path | None = argument(
        None,
        help=(
            "folder of the pictures; by default they are looked for in folders below --dataset-root"
        ),
    )

    def list_annotation_files(self) -> tuple[Path, ...]:
        """Return the annotation files.

        Raises
        ------
        DatasetError
            If there are none, or several that may be meant.
        """
        return find_annotation_files(self.dataset_root, self.annotations, self.prefix)

    def find_pictures(self, found: COCOContent, numbers: Sequence[int] | None = None) -> list[Path]:
        """Return the pictures of an annotation file, or those with some of its numbers, in this
        order.

        Raises
        ------
        DatasetError
            If the first of them is in none of the usual folders.
        """
        names = [
            found.images[number][0] for number in (found.images if numbers is None else numbers)
        ]
        folder = find_picture_folder(self.dataset_root, self.images, found.file, self.prefix, names)
        return [folder / name for name in names]

    @staticmethod
    def split_code(file: Path) -> int:
        """Return the code of the split that an annotation file is of: as its name or folder
        says, otherwise test.
        """
        if file.name.startswith("_"):  # the folder is named after the split
            tested = any(file.parent.parent.glob("test*/_annotations*.json"))
            valid = VALIDATION if tested else TEST
            code = find_splits([file.parent.name]).get(file.parent.name, TEST)
            return valid if code == VALIDATION else code
        return TRAIN if "train" in file.name.lower() else TEST

    def origin(self) -> Mapping[str, Any]:
        """Return the annotation files."""
        return {
            "name": "COCO's form",
            "annotations": [path.name for path in self.list_annotation_files()],
        }


class COCODataset(COCOFilesDataset, BoxedImagesDataset):
    """Pictures with boxes in COCO's form: COCO 2017 itself, or your own.

    ``ROOT/annotations`` holds ``instances_val2017.json`` and the like, ``ROOT/val2017`` or
    ``ROOT/images/val2017`` the pictures; or there is a folder of each split with the pictures and
    ``_annotations.coco.json``.  Files with ``train`` in their names are the training split, others
    the test split.  Classes are numbered in the order of their category numbers, so that COCO's 90
    numbers become 80 classes.  Crowds are kept, as COCO's metrics need them.
    """

    formerly: ClassVar[tuple[str, ...]] = ("COCODataset2017",)

    def list_files(self) -> BoxListing:
        """Return the pictures and boxes of all files."""
        paths: list[Path] = []
        sizes: list[tuple[int, int]] = []
        codes: list[int] = []
        table = BoxTable()
        names: tuple[str, ...] | None = None
        for file in self.list_annotation_files():
            found = COCOBoxes(file)
            here = tuple(name for _, name in sorted(found.categories.items()))
            if names is not None and here != names:
                raise DatasetError(
                    f"{file} has other categories than the files before; name one with "
                    f"--annotations"
                )
            names = here
            places = {image: len(paths) + place for place, image in enumerate(found.images)}
            numbers = {category: number for number, category in enumerate(sorted(found.categories))}
            table.extend(found.table, places, numbers, str(file))
            paths += self.find_pictures(found)
            sizes += [size for _, size in found.images.values()]
            codes += [self.split_code(file)] * len(found.images)
        assert names is not None  # there is a file
        boxes, labels, crowds, areas = table.rows(len(paths))
        official = np.array(codes, np.int8) if TEST in codes else None
        return BoxListing(
            tuple(paths),
            boxes,
            labels,
            names,
            crowds,
            areas,
            np.array(sizes, np.int64).reshape(-1, 2),
            official,
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

    def add_annotation(
        self, entry: Mapping[str, Any], image: int, category: int, where: str
    ) -> None:
        """Keep a box."""
        box = entry.get("bbox")
        if not isinstance(box, list) or len(box) != 4 or not all(map(is_number, box)):
            raise DatasetError(f"{where}: bbox should be four numbers, not {str(box)[:60]}")
        area = entry.get("area")
        if area is not None and (not is_number(area) or area < 0):
            raise DatasetError(f"{where}: area should be a number, not {str(area)[:60]}")
        crowd = entry.get("iscrowd", 0) in (1, True)
        self.table.add(
            image, category, box, where, area=None if area is None else float(area), crowd=crowd
        )


COCO_CATEGORIES = {
    1: "person", 2: "bicycle", 3: "car", 4: "motorcycle", 5: "airplane", 6: "bus", 7: "train", 8: "truck", 9: "boat",
    10: "traffic light", 11: "fire hydrant", 13: "stop sign", 14: "parking meter", 15: "bench", 16: "bird", 17: "cat",
    18: "dog", 19: "horse", 20: "sheep", 21: "cow", 22: "elephant", 23: "bear", 24: "zebra", 25: "giraffe",
    27: "backpack", 28: "umbrella", 31: "handbag", 32: "tie", 33: "suitcase", 34: "frisbee", 35: "skis",
    36: "snowboard", 37: "sports ball", 38: "kite", 39: "baseball bat", 40: "baseball glove", 41: "skateboard",
    42: "surfboard", 43: "tennis racket", 44: "bottle", 46: "wine glass", 47: "cup", 48: "fork", 49: "knife",
    50: "spoon", 51: "bowl", 52: "banana", 53: "apple", 54: "sandwich", 55: "orange", 56: "broccoli", 57: "carrot",
    58: "hot dog", 59: "pizza", 60: "donut", 61: "cake", 62: "chair", 63: "couch", 64: "potted plant", 65: "bed",
    67: "dining table", 70: "toilet", 72: "tv", 73: "laptop", 74: "mouse", 75: "remote", 76: "keyboard",
    77: "cell phone", 78: "microwave", 79: "oven", 80: "toaster", 81: "sink", 82: "refrigerator", 84: "book",
    85: "clock", 86: "vase", 87: "scissors", 88: "teddy bear", 89: "hair drier", 90: "toothbrush",
}  # fmt: skip
