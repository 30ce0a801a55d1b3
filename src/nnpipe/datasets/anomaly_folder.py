"""Folders of pictures, and of sounds of machines, of which some are not as usual."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset import SPLITS
from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.core.tensors import Batch, DatasetSpec, TensorSpec
from nnpipe.datasets._class_folders import Listing, find_files, list_folders
from nnpipe.datasets._split import TEST, TRAIN, find_splits
from nnpipe.datasets.image_files import (
    SUFFIXES,
    ImageFilesDataset,
    decode_image,
    decode_mask_values,
)
from nnpipe.datasets.in_memory import check_indices
from nnpipe.datasets.listed_files import ClassifiedFilesDataset
from nnpipe.datasets.wav_files import SUFFIXES as WAV_SUFFIXES
from nnpipe.datasets.wav_files import read_clip
from nnpipe.tasks.anomaly.task import CLIP, AnomalyDetection
from nnpipe.tasks.anomaly_map.task import AnomalyMaps
from nnpipe.tasks.frames import create_frames, find_pixel_cells

GOOD = "good"
"""The name of the folders of images without a defect."""


@dataclass(frozen=True, eq=False)
class DefectListing(Listing):
    """Images of good and defective things.

    Attributes
    ----------
    masks
        The file of each image's mask; ``None`` for an image without a defect, or where masks are
        not asked for.
    """

    masks: tuple[Path | None, ...] = ()


class AnomalyFolderDataset(ImageFilesDataset):
    """Images of good and defective things: ``train/good``, ``test/good`` and ``test/DEFECT``, as in
    MVTec AD.

    ``dataset_root`` is the folder of one kind of thing.  Images in ``train`` are for training and
    validation, those in ``test`` for testing; all are judged by whether they are ``good``.  With
    ``judged`` set to pixels, maps of models are judged, too, by the masks in
    ``ground_truth/DEFECT``, ``NAME_mask.png`` or ``NAME.png``, whose pixels of defects are not
    black.  Masks are brought to ``image_size`` by nearest neighbour, and pixels of that size are
    compared.
    """

    judged: Literal["images", "pixels"] = argument(
        "images",
        help="what is judged: whole images; or pixels as well, by the masks in ground_truth",
    )

    def list_files(self) -> DefectListing:
        """Return the image files; label 1 means a defect."""
        root = self.dataset_root
        paths: list[Path] = []
        masks: list[Path | None] = []
        labels, codes = [], []
        named = find_splits(path.name for path in list_folders(root)) if root.is_dir() else {}
        parts = {code: root / name for name, code in named.items()}
        for code in (TRAIN, TEST):
            folder = parts.get(code, root / SPLITS[code])
            if not folder.is_dir():
                raise DatasetError(
                    f"{folder} is not there; --dataset-root must hold train/good and test/good"
                )
            for kind in list_folders(folder):
                found = find_files(kind, SUFFIXES)
                if not found:
                    raise DatasetError(
                        f"{kind} holds no images; remove it if it is no kind of defect"
                    )
                paths += found
                labels += [int(kind.name != GOOD)] * len(found)
                codes += [code] * len(found)
                marked = self.judged == "pixels" and kind.name != GOOD
                masks += (
                    _find_masks(root / "ground_truth" / kind.name, kind, found)
                    if marked
                    else [None] * len(found)
                )
        official = np.array(codes, np.int8)
        if not paths or not (official == TRAIN).any() or not (official == TEST).any():
            raise DatasetError(
                f"{root} holds no images in {'train' if TRAIN not in codes else 'test'}/{GOOD}"
            )
        names = ("usual", "anomalous")
        return DefectListing(
            tuple(paths), np.array(labels, np.int64), names, official, masks=tuple(masks)
        )

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
        indices = check_indices(indices, len(self))
        found = self.files
        assert isinstance(found, DefectListing)
        channels = 3 if self.color == "rgb" else 1
        pixels = np.empty((len(indices), *self.image_size, channels), np.uint8)
        masks = np.zeros((len(indices), *self.image_size), np.int8)
        for place, index in enumerate(indices.tolist()):
            path = found.masks[index]
            # Any form of a mask will do, colours included: what is black is good.
            values = None if path is None else decode_mask_values(path, coloured=True)
            declared = None if values is None else (values.shape[0], values.shape[1])
            pixels[place] = decode_image(found.paths[index], self.image_size, channels, declared)
            if values is not None:
                cells = find_pixel_cells(
                    create_frames(1, 1, 1, "squeeze")[0], np.array(self.image_size), values.shape
                )
                masks[place] = values[cells[0][:, None], cells[1]] > 0
        return {"image": pixels}, {"mask": masks, "anomalous": found.labels[indices]}


def _find_masks(folder: Path, kind: Path, paths: list[Path]) -> list[Path | None]:
    """Return the mask of each image of a kind of defect."""
    if not folder.is_dir():
        raise DatasetError(
            f"{folder} is not there; it must hold the masks of {kind}, or give --judged images"
        )
    known = {
        path.relative_to(folder).with_suffix(""): path for path in find_files(folder, SUFFIXES)
    }
    masks: list[Path | None] = []
    for path in paths:
        name = path.relative_to(kind).with_suffix("")
        mask = known.get(name.with_name(f"{name.name}_mask"), known.get(name))
        if mask is None:
            raise DatasetError(
                f"{folder} holds no {name}_mask.png, the mask of {path}; or give --judged images"
            )
        masks.append(mask)
    return masks


_MOST_SAMPLES = 1 << 28


class AnomalySoundsDataset(ClassifiedFilesDataset):
    """Sounds of machines, as in DCASE's task 2 and MLPerf Tiny: wav files, cut into overlapping
    sections.

    ``dataset_root`` holds the folders ``train`` and ``test``; without them, the split follows the
    fractions.  A file is an anomaly if its name contains ``anomaly_text``, as in
    ``anomaly_id_01_00000000.wav``.  A sample is a section; the score of a clip is the mean of the
    scores of its sections.

    The defaults are those of MLPerf Tiny's autoencoder: five frames of 1,024 samples every 512,
    which ``--transform LogMel`` turns into 640 numbers.
    """

    dataset_root: Path = argument(
        Path("data/sounds"), help="folder of wav files, or of train and test"
    )
    anomaly_text: str = argument("anomaly", help="text that the names of anomalies contain")
    sample_rate: int = argument(
        16000, help="samples per second to which sounds are resampled", minimum=1
    )
    seconds: float = argument(
        11.0,
        help="length to which sounds are cut, or padded with silence",
        minimum=0.001,
        maximum=3600,
    )
    section: int = argument(3072, help="samples of a section", minimum=1, maximum=1 << 24)
    hop: int = argument(
        512, help="samples from one section to the next", minimum=1, maximum=1 << 24
    )
    margin: int = argument(
        512, help="samples of silence before and behind a sound", minimum=0, maximum=1 << 24
    )

    def validate(self) -> None:
        """Check that a clip has a section."""
        if not self.section <= self._length <= _MOST_SAMPLES:
            raise ConfigError(
                f"{self.seconds:g} seconds at {self.sample_rate} a second with a margin of "
                f"{self.margin:,}: clips are from {self.section:,} (a section) to "
                f"{_MOST_SAMPLES:,} samples long"
            )

    @property
    def _length(self) -> int:
        return round(self.seconds * self.sample_rate) + 2 * self.margin

    @property
    def sections(self) -> int:
        """The number of sections of a clip."""
        return 1 + (self._length - self.section) // self.hop

    def list_files(self) -> Listing:
        """Return the sound files, with label 1 for an anomaly."""
        root = self.dataset_root
        parts = find_splits(path.name for path in list_folders(root)) if root.is_dir() else {}
        found: list[tuple[Path, int]] = []
        for name, code in parts.items():
            found += [(path, code) for path in find_files(root / name, WAV_SUFFIXES)]
        if not parts and root.is_dir():
            found = [(path, TRAIN) for path in find_files(root, WAV_SUFFIXES)]
        if not found:
            raise DatasetError(
                f"{root} holds no wav files, neither by themselves nor in train and test"
            )
        kinds = np.array([self.anomaly_text in path.name for path, _ in found], np.int64)
        official = np.array([code for _, code in found], np.int8) if parts else None
        return Listing(tuple(path for path, _ in found), kinds, ("usual", "anomalous"), official)

    @property
    def spec(self) -> DatasetSpec:
        """Sections ``(n, samples)``, float32 from -1 to 1, whether their clip is an anomaly, and
        its number.
        """
        return DatasetSpec(
            AnomalyDetection.name,
            inputs=(TensorSpec("sound", (None, self.section), "float32"),),
            targets=(TensorSpec("anomalous", (None,), "int64"), TensorSpec(CLIP, (None,), "int64")),
            class_names=self.files.class_names,
            sample_rates={"sound": self.sample_rate},
        )

    def __len__(self) -> int:
        return len(self.files.paths) * self.sections

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return some sections, and what their clips are."""
        owners, numbers = np.divmod(check_indices(indices, len(self)), self.sections)
        sounds = np.zeros((len(owners), self.section), np.float32)
        whole = round(self.seconds * self.sample_rate)
        for place, owner, number in zip(sounds, owners, numbers, strict=True):
            start = int(number) * self.hop - self.margin
            first, end = max(0, start), min(start + self.section, whole)
            if end > first:
                place[first - start : end - start] = read_clip(
                    self.files.paths[owner], self.sample_rate, end - first, first
                )
        return {"sound": sounds}, {"anomalous": self.files.labels[owners], CLIP: owners}

    def split(self, name: str) -> npt.NDArray[np.int64]:
        """Return the indices of one split; the sections of a clip stay together, in their order."""
        return (super().split(name)[:, None] * self.sections + np.arange(self.sections)).reshape(-1)
