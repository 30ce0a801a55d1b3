"""A directory of images, with one folder per class."""

from __future__ import annotations

from pathlib import Path

from nnpipe.core.arguments import argument
from nnpipe.datasets._class_folders import Listing, class_folders
from nnpipe.datasets.image_files import SUFFIXES, ImageFilesDataset


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
        return class_folders(self.dataset_root, SUFFIXES, "images", self.class_list)
