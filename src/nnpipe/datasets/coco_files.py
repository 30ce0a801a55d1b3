"""What data sets in COCO's form have in common, whatever is annotated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.core.arguments import argument
from nnpipe.core.dataset import Dataset
from nnpipe.datasets._coco_content import COCOContent, annotation_files, picture_folder
from nnpipe.datasets._split import TEST, TRAIN, VALIDATION, splits_named


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
        help="JSON files of the pictures to use; by default those in ROOT/annotations that are named as COCO's own, or "
        "the only *.json",
    )
    images: Path | None = argument(
        None, help="folder of the pictures; by default they are looked for in folders below --dataset-root"
    )

    def annotation_files(self) -> tuple[Path, ...]:
        """Return the annotation files.

        Raises
        ------
        DatasetError
            If there are none, or several that may be meant.
        """
        return annotation_files(self.dataset_root, self.annotations, self.prefix)

    def picture_paths(self, found: COCOContent, numbers: Sequence[int] | None = None) -> list[Path]:
        """Return the pictures of an annotation file, or those with some of its numbers, in this order.

        Raises
        ------
        DatasetError
            If the first of them is in none of the usual folders.
        """
        names = [found.images[number][0] for number in (found.images if numbers is None else numbers)]
        folder = picture_folder(self.dataset_root, self.images, found.file, self.prefix, names)
        return [folder / name for name in names]

    @staticmethod
    def split_code(file: Path) -> int:
        """Return the code of the split that an annotation file is of: as its name or folder says, otherwise test."""
        if file.name.startswith("_"):  # the folder is named after the split
            tested = any(file.parent.parent.glob("test*/_annotations*.json"))
            valid = VALIDATION if tested else TEST
            code = splits_named([file.parent.name]).get(file.parent.name, TEST)
            return valid if code == VALIDATION else code
        return TRAIN if "train" in file.name.lower() else TEST

    def origin(self) -> Mapping[str, Any]:
        """Return the annotation files."""
        return {"name": "COCO's form", "annotations": [path.name for path in self.annotation_files()]}
