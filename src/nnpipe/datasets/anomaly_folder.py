"""A directory of images of good and defective things, as in MVTec AD."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import DatasetError
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.datasets._class_folders import Listing, files_in, folders_in
from nnpipe.datasets._split import TEST, TRAIN
from nnpipe.datasets.image_files import SUFFIXES, ImageFilesDataset
from nnpipe.tasks.anomaly.task import AnomalyDetection

GOOD = "good"
"""The name of the folders of images without a defect."""


class AnomalyFolderDataset(ImageFilesDataset):
    """Images of good and defective things: ``train/good``, ``test/good`` and ``test/DEFECT``, as in MVTec AD.

    ``dataset_root`` is the folder of one kind of thing.  Images in ``train`` are for training and validation, those in
    ``test`` for testing; all are judged by whether they are ``good``.  The masks in ``ground_truth`` are not read.
    """

    def listing(self) -> Listing:
        """Return the image files; label 1 means a defect."""
        root = self.dataset_root
        paths, labels, codes = [], [], []
        for name, code in (("train", TRAIN), ("test", TEST)):
            folder = root / name
            if not folder.is_dir():
                raise DatasetError(f"{folder} is not there; --dataset-root must hold train/good and test/good")
            for kind in folders_in(folder):
                found = files_in(kind, SUFFIXES)
                if not found:
                    raise DatasetError(f"{kind} holds no images; remove it if it is no kind of defect")
                paths += found
                labels += [int(kind.name != GOOD)] * len(found)
                codes += [code] * len(found)
        official = np.array(codes, np.int8)
        if not paths or not (official == TRAIN).any() or not (official == TEST).any():
            raise DatasetError(f"{root} holds no images in {'train' if TRAIN not in codes else 'test'}/{GOOD}")
        return Listing(tuple(paths), np.array(labels, np.int64), ("usual", "anomalous"), official)

    @property
    def spec(self) -> DatasetSpec:
        """Images of ``image_size``, and whether they show a defect."""
        return DatasetSpec(
            AnomalyDetection.name,
            inputs=super().spec.inputs,
            targets=(TensorSpec("anomalous", (None,), "int64"),),
            class_names=self.files.class_names,
        )

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return decoded images, and whether they show a defect."""
        images, truth = super().read(indices)
        return images, {"anomalous": truth["label"]}
