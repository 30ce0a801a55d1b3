"""What annotation files in COCO's form have in common, whatever is annotated."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnpipe.core.errors import DatasetError
from nnpipe.datasets._json_arrays import elements

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
        for key, each in elements(file, {"categories", "images", "annotations"}):
            entry = each if isinstance(each, dict) else {}
            if key == "categories":
                self.add_category(entry)
            elif key == "images":
                self._add_image(entry)
            else:
                where = f"{file}, annotation {str(entry.get('id'))[:40]}"
                image, category = whole_number(entry, "image_id"), whole_number(entry, "category_id")
                if image is None or category is None:
                    raise DatasetError(f"{where}: image_id and category_id should be whole numbers")
                self.add_annotation(entry, image, category, where)
        if not self.categories or len(set(self.categories.values())) != len(self.categories):
            raise DatasetError(f"{file} holds no categories, or several of one name")

    @abstractmethod
    def add_annotation(self, entry: Mapping[str, Any], image: int, category: int, where: str) -> None:
        """Keep what an annotation says; ``where`` names its place in messages.

        Raises
        ------
        DatasetError
            If it is malformed.
        """

    def add_category(self, entry: Mapping[str, Any]) -> None:
        """Keep the number and the name of a category."""
        number, name = whole_number(entry, "id"), entry.get("name")
        there = number is None or number in self.categories or len(self.categories) >= _MOST_CLASSES
        if number is None or there or not isinstance(name, str) or not name:
            raise DatasetError(f"{self.file}: a category has a number of its own and a name, not {str(entry)[:80]}")
        self.categories[number] = name

    def _add_image(self, entry: Mapping[str, Any]) -> None:
        number, height, width = (whole_number(entry, key) for key in ("id", "height", "width"))
        name = entry.get("file_name")
        if number is None or number in self.images or not isinstance(name, str) or not _inside(name):
            raise DatasetError(f"{self.file}: an image has a number of its own and a file_name, not {str(entry)[:80]}")
        if not (height and width and 0 < height <= _MOST_SIDE and 0 < width <= _MOST_SIDE):
            raise DatasetError(f"{self.file}: the image {name[:80]} has the size {width} x {height}")
        if len(self.images) >= _MOST_IMAGES:
            raise DatasetError(f"{self.file} holds more than {_MOST_IMAGES:,} images; divide it")
        self.images[number] = name, (height, width)


def annotation_files(root: Path, given: Sequence[Path] | None, prefix: str) -> tuple[Path, ...]:
    """Return the annotation files that are given, or those in a folder whose names begin with ``prefix``, or the only.

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
        told = f"holds {' and '.join(path.name for path in found[:3])}" if found else "holds no annotations/*.json"
        raise DatasetError(f"{root} {told}: name the files of the data set with --annotations")
    return tuple(found)


def picture_folder(root: Path, given: Path | None, file: Path, prefix: str, names: Sequence[str]) -> Path:
    """Return the folder that holds the pictures of an annotation file.

    Raises
    ------
    DatasetError
        If the first of them is in none of the usual ones.
    """
    if given is not None:
        return given
    part = file.stem.removeprefix(prefix)
    folders = [root / part, root / "images" / part, root / "images", root, file.parent, file.parent / "images"]
    for folder in folders:
        if not names or (folder / names[0]).is_file():
            return folder
    raise DatasetError(
        f"{names[0]} of {file} is in none of {', '.join(map(str, folders[:3]))}: name its folder with --images"
    )


def _inside(name: str) -> bool:
    """Return whether a name of a file in annotations leads to a place inside the folder of pictures."""
    path = Path(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def whole_number(entry: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number of at most 63 bits, or ``None``."""
    value = entry.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
