"""Pictures with masks in Pascal VOC's form."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.datasets._class_list import ClassList
from nnpipe.datasets._image_sets import listed
from nnpipe.datasets._pixel_classes import PixelClasses
from nnpipe.datasets.pascal_voc import VOC_CLASSES
from nnpipe.datasets.segmented_images import MaskListing, SegmentedImagesDataset

_BORDER = 255


class PascalVOCMasksDataset(SegmentedImagesDataset):
    """Pictures with masks in Pascal VOC's form: VOC 2007 and 2012, or your own.

    ``ROOT`` holds ``SegmentationClass/NAME.png``, whose palette's indices are the classes, and ``JPEGImages/NAME.jpg``,
    and perhaps ``ImageSets/Segmentation/train.txt`` and so on with names: ``train`` (or ``trainval``) is the training
    split, ``val`` (or ``test``) the test split.  Without lists, the split follows the fractions.  Borders of things,
    255, do not count.
    """

    class_list: Path | None = argument(
        None, help="text file with all classes, background first, one per line; by default those of VOC"
    )

    def classes(self) -> PixelClasses:
        """Return that pixels are class numbers, those of VOC or of the list."""
        names = ("background", *VOC_CLASSES) if self.class_list is None else ClassList.read(self.class_list).names
        return PixelClasses.of_names(names, (_BORDER,))

    def listing(self) -> MaskListing:
        """Return the pictures of all masks, or of those that lists name."""
        folder = self.dataset_root / "SegmentationClass"
        if not folder.is_dir():
            raise DatasetError(f"{folder} is no folder; it must hold a mask NAME.png for each picture")
        published = listed(self.dataset_root, "Segmentation")
        stems = list(published) or sorted(path.stem for path in folder.glob("*.png"))
        return MaskListing(
            tuple(self.dataset_root / "JPEGImages" / f"{stem}.jpg" for stem in stems),
            tuple(folder / f"{stem}.png" for stem in stems),
            np.array([published[stem] for stem in stems], np.int8) if published else None,
        )
