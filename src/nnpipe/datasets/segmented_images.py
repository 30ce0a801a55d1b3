"""The base of data sets of pictures with masks."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.image_conversion import resized_bytes
from nnpipe.core.preprocessing import IMAGE_SIZE
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.datasets._pixel_classes import IGNORED, PixelClasses
from nnpipe.datasets.image_files import decoded_values, decoded_whole, side_by_side
from nnpipe.datasets.in_memory import checked_indices
from nnpipe.datasets.listed_pictures import ListedPicturesDataset
from nnpipe.tasks.frames import cells_of_pixels, frame
from nnpipe.tasks.segmentation.task import Segmentation


@dataclass(frozen=True, eq=False)
class MaskListing:
    """Pictures with their masks.

    Attributes
    ----------
    paths, masks
        One image file each per sample.
    official
        ``(n,)`` published split: 0 for training, 1 for validation and 2 for test samples; ``None`` without one.
    """

    paths: tuple[Path, ...]
    masks: tuple[Path, ...]
    official: npt.NDArray[np.integer] | None = None


class SegmentedImagesDataset(ListedPicturesDataset[MaskListing]):
    """Base of data sets of pictures with masks, which are decoded when they are read.

    A subclass writes :meth:`listing` and :meth:`classes`.  Masks of a batch are padded with -1 as its pictures are with
    black.  With ``side_lengths``, pictures (bilinear) and masks (nearest neighbour) are resized here instead, as a
    training needs it, and pixels of that size are compared.
    """

    abstract: ClassVar[bool] = True
    side_lengths: tuple[int, int] | None = argument(
        None, help="height and width to which pictures and masks are resized; by default they keep theirs", minimum=1
    )
    contour_width: float = argument(
        0.02, help="distance from a contour up to which the boundary IoU counts pixels, in shares of the diagonal",
        minimum=0.0, maximum=1.0,
    )  # fmt: skip

    @abstractmethod
    def classes(self) -> PixelClasses:
        """Return which pixel values are which class.

        Raises
        ------
        DatasetError
            If a file of classes is missing or damaged; the message names it.
        """

    @cached_property
    def classes_of_pixels(self) -> PixelClasses:
        """The classes of pixels, found at the first use."""
        return self.classes()

    @property
    def task(self) -> Segmentation:
        """Segmentation; here, pixels that do not count are negative, so that each number may be a class."""
        return Segmentation(ignored=IGNORED, contour_width=self.contour_width)

    def prepare(self) -> None:
        """Download the files if asked for, then list them, and find the classes."""
        super().prepare()
        _ = self.classes_of_pixels

    @property
    def spec(self) -> DatasetSpec:
        """Pictures, and the class of each pixel."""
        height, width = self.side_lengths or (None, None)
        return DatasetSpec(
            Segmentation.name,
            inputs=(TensorSpec("image", (None, height, width, 3), "uint8"),) if self.side_lengths else self.pictures,
            targets=(TensorSpec("mask", (None, height, width), "int64"), TensorSpec("size", (None, 2), "int32")),
            class_names=self.classes_of_pixels.names,
        )

    @property
    def strata(self) -> npt.NDArray[np.int64]:
        """All pictures are of one stratum: their masks are not opened for the split."""
        return np.zeros(len(self), np.int64)

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return some samples: decoded pictures and the class of each of their pixels."""
        pairs = [self._pair(int(index)) for index in checked_indices(indices, len(self))]
        canvas, sizes = side_by_side([image for image, _ in pairs])
        if not pairs and self.side_lengths:
            canvas = np.zeros((0, *self.side_lengths, 3), np.uint8)
        masks = np.full(canvas.shape[:3], IGNORED, np.int64)
        for place, (_, mask) in zip(masks, pairs, strict=True):
            place[: mask.shape[0], : mask.shape[1]] = mask
        inputs = {"image": canvas} | ({} if self.side_lengths else {IMAGE_SIZE: sizes})
        return inputs, {"mask": masks, "size": sizes.copy()}

    def _pair(self, index: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
        """Return a decoded picture, ``(height, width, 3)``, and its mask, ``(height, width)``."""
        path = self.files.masks[index]
        pixels = decoded_values(path, coloured=self.classes_of_pixels.coloured)
        rows, columns = pixels.shape
        image = decoded_whole(self.files.paths[index], 3, (rows, columns))
        if self.side_lengths is not None:
            height, width = self.side_lengths
            image = resized_bytes(image[None], height, width)[0]
            # Each pixel of the small mask is the one at its centre, as Pillow's nearest neighbour.
            cells = cells_of_pixels(frame(1, 1, 1, "squeeze")[0], np.array([height, width]), (rows, columns))
            pixels = pixels[cells[0][:, None], cells[1]]
        return image, self.classes_of_pixels.apply(pixels, path)
