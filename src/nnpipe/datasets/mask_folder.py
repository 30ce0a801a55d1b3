"""A folder of pictures with a folder of masks."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.datasets._class_folders import ClassList, find_files
from nnpipe.datasets._split import TEST, TRAIN, VALIDATION
from nnpipe.datasets.coco import COCO_CATEGORIES
from nnpipe.datasets.image_files import SUFFIXES
from nnpipe.datasets.segmented_images import (
    MaskListing,
    PixelClasses,
    SegmentedImagesDataset,
    read_table,
)


class MaskFolderDataset(SegmentedImagesDataset):
    """Your own pictures with masks: ``ROOT/images/...`` and ``ROOT/masks/...`` with the same names.

    A mask is an image file whose pixels are numbers, grey or of a palette, or colours if the table
    of classes has such. If there are folders below ``images``, those with ``train``, ``val`` and
    ``test`` in their names are the splits (``val`` alone is the test split); otherwise the split
    follows the fractions.

    Pixels are class numbers unless a table says otherwise, or ``numbering`` is that of COCO.
    """

    images: tuple[Path, ...] | None = argument(
        None, help="folder of the pictures, by default ROOT/images; or the pictures themselves"
    )
    masks: tuple[Path, ...] | None = argument(
        None,
        help=(
            "folder of the masks, by default ROOT/masks; or the masks of the pictures, in the same "
            "order"
        ),
    )
    class_list: Path | None = argument(
        None, help="text file with all classes of the model, one per line in order of number"
    )
    pixel_classes_file: Path | None = argument(
        None,
        help=(
            "JSON file of an object, or CSV file, with the class (name, number or ignored) of each "
            "pixel value"
        ),
    )
    pixel_classes: tuple[str, ...] | None = argument(
        None,
        help=(
            "class of each pixel value, such as 0=12 1=background 255=ignored other=0; overrides "
            "the file"
        ),
        metavar="VALUE=CLASS",
    )
    ignored: tuple[int, ...] = argument((255,), help="pixel values that do not count", minimum=0)
    numbering: Literal["own", "coco-ids"] = argument(
        "own",
        help=(
            "coco-ids: pixels are COCO's category numbers; they become its 80 classes, 0 and stuff "
            "do not count"
        ),
    )

    def classes(self) -> PixelClasses:
        """Return the classes that the table, the numbering or the list states."""
        names = None if self.class_list is None else ClassList.read(self.class_list).names
        ignored = set(self.ignored)
        entries = [] if self.pixel_classes_file is None else read_table(self.pixel_classes_file)
        for entry in self.pixel_classes or ():
            value, sign, called = entry.rpartition("=")
            if not sign:
                raise ConfigError(
                    f"--pixel-classes {entry[:40]!r} should be a pixel value and a class, as in "
                    f"12=cat"
                )
            entries.append((value, called))
        if self.numbering == "coco-ids":
            known = names or tuple(COCO_CATEGORIES.values())
            # With other classes than COCO's 80, the table says which of its categories are which.
            own = [(str(value), name) for value, name in COCO_CATEGORIES.items() if names is None]
            stuff = [("0", "ignored"), ("other", "ignored")]
            return PixelClasses.from_table(
                [*stuff, *own, *entries], known, ignored, "--pixel-classes"
            )
        if entries:
            where = (
                "--pixel-classes"
                if self.pixel_classes_file is None
                else str(self.pixel_classes_file)
            )
            return PixelClasses.from_table(entries, names, ignored, where)
        if names is None:
            raise DatasetError(
                f"{self.dataset_root}: name the classes with --class-list, or say which pixel "
                f"values are which with "
                "--pixel-classes or --pixel-classes-file"
            )
        return PixelClasses.from_names(names, ignored)

    def list_files(self) -> MaskListing:
        """Return the pictures with their masks."""
        images = self.images or (self.dataset_root / "images",)
        masks = self.masks or (self.dataset_root / "masks",)
        if all(path.suffix.lower() in SUFFIXES and not path.is_dir() for path in (*images, *masks)):
            if len(images) != len(masks):
                raise DatasetError(
                    f"--images names {len(images)} pictures, and --masks {len(masks)} masks"
                )
            return MaskListing(images, masks)
        if len(images) != 1 or len(masks) != 1:
            raise DatasetError(
                "--images and --masks name one folder each, or as many pictures as masks"
            )
        return _list_pictures(images[0], masks[0])


def _list_pictures(images: Path, masks: Path) -> MaskListing:
    """Return the pictures in a folder, and the masks of the same names in another."""
    for folder, kind in ((images, "pictures"), (masks, "masks")):
        if not folder.is_dir():
            raise DatasetError(f"{folder} is no folder; it must hold {kind}")
    paths = find_files(images, SUFFIXES)
    names = [path.relative_to(images) for path in paths]
    known = {path.relative_to(masks).with_suffix(""): path for path in find_files(masks, SUFFIXES)}
    if missing := [name for name in names if name.with_suffix("") not in known]:
        raise DatasetError(
            f"{masks} has no mask {missing[0].with_suffix('.png')} for {images / missing[0]}"
            + (f", and for {len(missing) - 1:,} more pictures" if len(missing) > 1 else "")
        )
    codes = [_find_split_code(name.parts[0]) if len(name.parts) > 1 else None for name in names]
    official = None
    if codes and None not in codes:
        official = np.array(codes, np.int8)
        if TEST not in official:
            official[official == VALIDATION] = TEST
    return MaskListing(tuple(paths), tuple(known[name.with_suffix("")] for name in names), official)


def _find_split_code(folder: str) -> int | None:
    """Return the code of the split that a folder is named after; ``None`` if it is named
    otherwise.
    """
    for word, code in (("train", TRAIN), ("val", VALIDATION), ("test", TEST)):
        if word in folder.lower():
            return code
    return None
