"""A directory of images, with one folder per class."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from nnpipe.core.arguments import argument
from nnpipe.datasets._class_folders import Listing, class_folders
from nnpipe.datasets.image_files import SUFFIXES, ImageFilesDataset


class ImageFolderDataset(ImageFilesDataset):
    """Your own images: one folder per class, optionally below train, validation and test.

    With ``ROOT/CLASS/*.jpg``, the split follows the fractions.  With
    ``ROOT/train/CLASS/*.jpg``, ``ROOT/test/CLASS/*.jpg`` and
    ``ROOT/validation/CLASS/*.jpg``, some of which may be missing or empty, the
    folders define the split; they may also be called ``val``, ``Training``,
    ``test_set`` and the like.  Class names are sorted.

    If a model has more classes than there are folders, ``class_list`` names the
    file with the model's classes and their order.
    """

    answers: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "ImageNetDataset": "use ImageFolderDataset with --dataset-root FOLDER of one folder of pictures for each "
            "class, --class-list FILE with the 1,000 classes in the model's order, and --test-fraction 1",
            "VisualWakeWordsDataset": "use ImageFolderDataset with --dataset-root FOLDER that holds pictures in "
            "'non_person' and 'person', --image-size 96 96, and --test-fraction 1 to measure them all; pictures with "
            "COCO's annotations are read by COCODataset",
        }
    )

    class_list: Path | None = argument(
        None,
        help="text file with all classes of the model, one per line in order of number; folders then have these "
        "names or numbers",
    )

    def listing(self) -> Listing:
        """Return the image files in the folders."""
        return class_folders(self.dataset_root, SUFFIXES, "images", self.class_list)
