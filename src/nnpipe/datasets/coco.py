"""Pictures with boxes in COCO's form: one JSON file for all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
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
            categories = _categories(file)
            here = tuple(name for _, name in sorted(categories.items()))
            if names is not None and here != names:
                raise DatasetError(f"{file} has other categories than the files before; name one with --annotations")
            names = here
            known = dict(_images(file, len(paths)))
            folder = self._folder(file, [entry[1] for entry in known.values()])
            for _, name, size in known.values():
                paths.append(folder / name)
                sizes.append(size)
                codes.append(TRAIN if "train" in file.name.lower() else TEST)
            numbers = {category: number for number, category in enumerate(sorted(categories))}
            _add_boxes(file, {image: entry[0] for image, entry in known.items()}, numbers, table)
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


def _categories(file: Path) -> dict[int, str]:
    found: dict[int, str] = {}
    for _, each in elements(file, {"categories"}):
        number, name = _whole(each, "id"), each.get("name") if isinstance(each, dict) else None
        if number is None or not isinstance(name, str) or not name or number in found or len(found) >= _MOST_CLASSES:
            raise DatasetError(f"{file}: a category has a number of its own and a name, not {str(each)[:80]}")
        found[number] = name
    if not found or len(set(found.values())) != len(found):
        raise DatasetError(f"{file} holds no categories, or several of one name")
    return found


def _images(file: Path, before: int) -> Iterator[tuple[int, tuple[int, str, tuple[int, int]]]]:
    """Yield the number of each picture, with its place, the name of its file, and its height and width."""
    seen: set[int] = set()
    for _, each in elements(file, {"images"}):
        number, height, width = (_whole(each, key) for key in ("id", "height", "width"))
        name = each.get("file_name") if isinstance(each, dict) else None
        if number is None or number in seen or not isinstance(name, str) or not _inside(name):
            raise DatasetError(f"{file}: an image has a number of its own and a file_name, not {str(each)[:80]}")
        if not (height and width and 0 < height <= _MOST_SIDE and 0 < width <= _MOST_SIDE):
            raise DatasetError(f"{file}: the image {name[:80]} has the size {width} x {height}")
        seen.add(number)
        yield number, (before + len(seen) - 1, name, (height, width))


def _add_boxes(file: Path, places: Mapping[int, int], numbers: Mapping[int, int], table: BoxTable) -> None:
    for _, each in elements(file, {"annotations"}):
        image, category = _whole(each, "image_id"), _whole(each, "category_id")
        box = each.get("bbox") if isinstance(each, dict) else None
        where = f"{file}, annotation {str(each.get('id') if isinstance(each, dict) else each)[:40]}"
        if image is None or image not in places or category is None or category not in numbers:
            raise DatasetError(f"{where}: there is no image {str(image)[:40]} or no category {str(category)[:40]}")
        if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):
            raise DatasetError(f"{where}: bbox should be four numbers, not {str(box)[:60]}")
        area = each.get("area")
        if area is not None and (not _is_number(area) or area < 0):
            raise DatasetError(f"{where}: area should be a number, not {str(area)[:60]}")
        table.add(
            places[image], numbers[category], box, where,
            area=None if area is None else float(area), crowd=each.get("iscrowd", 0) in (1, True),
        )  # fmt: skip


def _inside(name: str) -> bool:
    """Return whether a name of a file in annotations leads to a place inside the folder of pictures."""
    path = Path(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _whole(each: Any, key: str) -> int | None:
    value = each.get(key) if isinstance(each, dict) else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_number(value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
