"""A directory of images, with one folder per class."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.datasets._class_list import ClassList
from nnpipe.datasets._split import TEST, TRAIN, VALIDATION
from nnpipe.datasets.image_files import ImageFilesDataset, Listing, images_in

_SPLIT_FOLDERS = {"train": TRAIN, "validation": VALIDATION, "val": VALIDATION, "test": TEST}


class ImageFolderDataset(ImageFilesDataset):
    """Your own images: one folder per class, optionally below train, validation and test.

    With ``ROOT/CLASS/*.jpg``, the split follows the fractions.  With
    ``ROOT/train/CLASS/*.jpg``, ``ROOT/test/CLASS/*.jpg`` and
    ``ROOT/validation/CLASS/*.jpg`` (or ``val``), some of which may be missing or
    empty, the folders define the split.  Class names are sorted.

    If a model has more classes than there are folders, ``class_list`` names the
    file with the model's classes and their order.
    """

    class_list: Path | None = argument(
        None,
        help="text file with all classes of the model, one per line in order of number; folders then have these "
        "names or numbers",
    )

    def listing(self) -> Listing:
        """Return the image files in the folders."""
        root = self.dataset_root
        if not root.is_dir():
            raise DatasetError(f"{root} is no folder; --dataset-root must hold one folder of images for each class")
        inside = {folder.name: folder for folder in _folders(root)}
        if "train" not in inside and not _are_splits(inside):
            return self._listing([(root, None)])
        strange = sorted(set(inside) - set(_SPLIT_FOLDERS))
        if strange or {"val", "validation"} <= set(inside):
            other = strange[0] if strange else "validation"
            raise DatasetError(f"{root} holds the folders train and {other if strange else 'val and ' + other}; "
                               "below it may be either classes or train, validation and test")  # fmt: skip
        return self._listing([(inside[name], code) for name, code in _SPLIT_FOLDERS.items() if name in inside])

    def _listing(self, parts: list[tuple[Path, int | None]]) -> Listing:
        return _listing(parts, ClassList.read(self.class_list) if self.class_list else None)


def _are_splits(inside: Mapping[str, Path]) -> bool:
    """Return whether folders are splits, which contain folders, and not classes with such names."""
    return bool(inside) and set(inside) <= set(_SPLIT_FOLDERS) and all(map(_folders, inside.values()))


def _listing(parts: list[tuple[Path, int | None]], known: ClassList | None) -> Listing:
    classes = [(folder, code) for part, code in parts for folder in _folders(part)]
    if not classes:
        raise DatasetError(f"{parts[0][0]} holds no folders; it must hold one folder of images for each class")
    names = known.names if known else tuple(sorted({folder.name for folder, _ in classes}))
    paths: list[Path] = []
    labels: list[int] = []
    codes: list[int] = []
    for folder, code in classes:
        found = images_in(folder)
        if not found:
            raise DatasetError(f"{folder} holds no images; remove it if it is no class")
        paths += found
        labels += [known.number(folder.name) if known else names.index(folder.name)] * len(found)
        codes += [TRAIN if code is None else code] * len(found)
    official = None if parts[0][1] is None else np.array(codes, np.int8)
    return Listing(tuple(paths), np.array(labels, np.int64), names, official)


def _folders(folder: Path) -> list[Path]:
    try:
        inside = list(folder.iterdir())
    except OSError as error:
        raise DatasetError(f"cannot look into {folder}: {error.strerror or error}") from None
    return sorted(path for path in inside if path.is_dir() and not path.name.startswith("."))
