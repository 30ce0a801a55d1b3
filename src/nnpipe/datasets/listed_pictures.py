"""The base of data sets of pictures that keep their own sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import DatasetError
from nnpipe.core.preprocessing import IMAGE_SIZE
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.datasets.image_files import decoded_whole, side_by_side
from nnpipe.datasets.listed_files import L, ListedFilesDataset

Sizes = npt.NDArray[np.int32]


class ListedPicturesDataset(ListedFilesDataset[L]):
    """Base of data sets of pictures that keep their own sizes, and are decoded when they are read.

    Those of a batch are padded with black, below and on the right, and ``image_size`` tells where each ends.  How they
    are brought to a model's size is said for the model (``--fit``, ``--resize``), and predictions are compared with the
    truth in pixels of the picture.
    """

    abstract: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("PIL",)
    install: ClassVar[str] = "nnpipe[data]"

    pictures: ClassVar[tuple[TensorSpec, ...]] = (
        TensorSpec("image", (None, None, None, 3), "uint8"), TensorSpec(IMAGE_SIZE, (None, 2), "int32"),
    )  # fmt: skip
    """The inputs."""

    def prepare(self) -> None:
        """Download the files if asked for, then list them."""
        super().prepare()
        if not self.files.paths:
            raise DatasetError(f"{self.dataset_root} holds no pictures for {type(self).__name__}")

    def decoded(
        self, indices: npt.NDArray[np.integer], sizes: npt.NDArray[np.integer] | None = None
    ) -> tuple[Batch, Sizes]:
        """Return some pictures as a batch of inputs, and their heights and widths, ``(n, 2)``.

        Parameters
        ----------
        indices
            The numbers of the samples.
        sizes
            Height and width of each picture of the data set, where annotations state them; others are refused.
        """
        stated: Sequence[tuple[int, int] | None] = [
            None if sizes is None else (int(sizes[index, 0]), int(sizes[index, 1])) for index in indices
        ]
        paths = self.files.paths
        canvas, found = side_by_side(
            [decoded_whole(paths[index], 3, size) for index, size in zip(indices, stated, strict=True)]
        )
        return {"image": canvas, IMAGE_SIZE: found}, found
