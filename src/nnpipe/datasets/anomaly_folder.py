"""A directory of images of good and defective things, as in MVTec AD."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset import SPLITS
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import DatasetError
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.datasets._class_folders import Listing, files_in, folders_in
from nnpipe.datasets._split import TEST, TRAIN, splits_named
from nnpipe.datasets.image_files import SUFFIXES, ImageFilesDataset, decoded, decoded_values
from nnpipe.datasets.in_memory import checked_indices
from nnpipe.tasks.anomaly.task import AnomalyDetection
from nnpipe.tasks.anomaly_map.task import AnomalyMaps
from nnpipe.tasks.frames import cells_of_pixels, frame

GOOD = "good"
"""The name of the folders of images without a defect."""


@dataclass(frozen=True, eq=False)
class DefectListing(Listing):
    """Images of good and defective things.

    Attributes
    ----------
    masks
        The file of each image's mask; ``None`` for an image without a defect, or where masks are not asked for.
    """

    masks: tuple[Path | None, ...] = ()


class AnomalyFolderDataset(ImageFilesDataset):
    """Images of good and defective things: ``train/good``, ``test/good`` and ``test/DEFECT``, as in MVTec AD.

    ``dataset_root`` is the folder of one kind of thing.  Images in ``train`` are for training and validation, those in
    ``test`` for testing; all are judged by whether they are ``good``.  With ``judged`` set to pixels, maps of models
    are judged, too, by the masks in ``ground_truth/DEFECT``, ``NAME_mask.png`` or ``NAME.png``, whose pixels of defects
    are not black.  Masks are brought to ``image_size`` by nearest neighbour, and pixels of that size are compared.
    """

    judged: Literal["images", "pixels"] = argument(
        "images", help="what is judged: whole images; or pixels as well, by the masks in ground_truth"
    )

    def listing(self) -> DefectListing:
        """Return the image files; label 1 means a defect."""
        root = self.dataset_root
        paths: list[Path] = []
        masks: list[Path | None] = []
        labels, codes = [], []
        named = splits_named(path.name for path in folders_in(root)) if root.is_dir() else {}
        parts = {code: root / name for name, code in named.items()}
        for code in (TRAIN, TEST):
            folder = parts.get(code, root / SPLITS[code])
            if not folder.is_dir():
                raise DatasetError(f"{folder} is not there; --dataset-root must hold train/good and test/good")
            for kind in folders_in(folder):
                found = files_in(kind, SUFFIXES)
                if not found:
                    raise DatasetError(f"{kind} holds no images; remove it if it is no kind of defect")
                paths += found
                labels += [int(kind.name != GOOD)] * len(found)
                codes += [code] * len(found)
                marked = self.judged == "pixels" and kind.name != GOOD
                masks += _masks(root / "ground_truth" / kind.name, kind, found) if marked else [None] * len(found)
        official = np.array(codes, np.int8)
        if not paths or not (official == TRAIN).any() or not (official == TEST).any():
            raise DatasetError(f"{root} holds no images in {'train' if TRAIN not in codes else 'test'}/{GOOD}")
        names = ("usual", "anomalous")
        return DefectListing(tuple(paths), np.array(labels, np.int64), names, official, masks=tuple(masks))

    @property
    def spec(self) -> DatasetSpec:
        """Images of ``image_size``, whether they show a defect, and which of their pixels do."""
        pixels = self.judged == "pixels"
        mask = (TensorSpec("mask", (None, *self.image_size), "int8"),) if pixels else ()
        return DatasetSpec(
            AnomalyMaps.name if pixels else AnomalyDetection.name,
            inputs=super().spec.inputs,
            targets=(*mask, TensorSpec("anomalous", (None,), "int64")),
            class_names=self.files.class_names,
        )

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return decoded images, and whether and where they show a defect."""
        if self.judged == "images":
            images, truth = super().read(indices)
            return images, {"anomalous": truth["label"]}
        indices = checked_indices(indices, len(self))
        found = self.files
        assert isinstance(found, DefectListing)
        channels = 3 if self.color == "rgb" else 1
        pixels = np.empty((len(indices), *self.image_size, channels), np.uint8)
        masks = np.zeros((len(indices), *self.image_size), np.int8)
        for place, index in enumerate(indices.tolist()):
            path = found.masks[index]
            # Any form of a mask will do, colours included: what is black is good.
            values = None if path is None else decoded_values(path, coloured=True)
            declared = None if values is None else (values.shape[0], values.shape[1])
            pixels[place] = decoded(found.paths[index], self.image_size, channels, declared)
            if values is not None:
                cells = cells_of_pixels(frame(1, 1, 1, "squeeze")[0], np.array(self.image_size), values.shape)
                masks[place] = values[cells[0][:, None], cells[1]] > 0
        return {"image": pixels}, {"mask": masks, "anomalous": found.labels[indices]}


def _masks(folder: Path, kind: Path, paths: list[Path]) -> list[Path | None]:
    """Return the mask of each image of a kind of defect."""
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not there; it must hold the masks of {kind}, or give --judged images")
    known = {path.relative_to(folder).with_suffix(""): path for path in files_in(folder, SUFFIXES)}
    masks: list[Path | None] = []
    for path in paths:
        name = path.relative_to(kind).with_suffix("")
        mask = known.get(name.with_name(f"{name.name}_mask"), known.get(name))
        if mask is None:
            raise DatasetError(f"{folder} holds no {name}_mask.png, the mask of {path}; or give --judged images")
        masks.append(mask)
    return masks
