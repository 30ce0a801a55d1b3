"""Sounds of machines, some of which are not as usual."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.core.tensors import Batch, TensorSpec
from nnpipe.datasets._class_folders import Listing, files_in, folders_in
from nnpipe.datasets._split import TRAIN, splits_named
from nnpipe.datasets.in_memory import checked_indices
from nnpipe.datasets.listed_files import ClassifiedFilesDataset
from nnpipe.datasets.wav_files import SUFFIXES, clip
from nnpipe.tasks.anomaly.metrics import CLIP
from nnpipe.tasks.anomaly.task import AnomalyDetection

_MOST_SAMPLES = 1 << 28


class AnomalySoundsDataset(ClassifiedFilesDataset):
    """Sounds of machines, as in DCASE's task 2 and MLPerf Tiny: wav files, cut into overlapping sections.

    ``dataset_root`` holds the folders ``train`` and ``test``; without them, the split follows the fractions.  A file
    is an anomaly if its name contains ``anomaly_text``, as in ``anomaly_id_01_00000000.wav``.  A sample is a section;
    the score of a clip is the mean of the scores of its sections.

    The defaults are those of MLPerf Tiny's autoencoder: five frames of 1,024 samples every 512, which ``--transform
    LogMel`` turns into 640 numbers.
    """

    dataset_root: Path = argument(Path("data/sounds"), help="folder of wav files, or of train and test")
    anomaly_text: str = argument("anomaly", help="text that the names of anomalies contain")
    sample_rate: int = argument(16000, help="samples per second to which sounds are resampled", minimum=1)
    seconds: float = argument(
        11.0, help="length to which sounds are cut, or padded with silence", minimum=0.001, maximum=3600
    )
    section: int = argument(3072, help="samples of a section", minimum=1, maximum=1 << 24)
    hop: int = argument(512, help="samples from one section to the next", minimum=1, maximum=1 << 24)
    margin: int = argument(512, help="samples of silence before and behind a sound", minimum=0, maximum=1 << 24)

    def validate(self) -> None:
        """Check that a clip has a section."""
        if not self.section <= self._length <= _MOST_SAMPLES:
            raise ConfigError(
                f"{self.seconds:g} seconds at {self.sample_rate} a second with a margin of {self.margin:,}: clips are "
                f"from {self.section:,} (a section) to {_MOST_SAMPLES:,} samples long"
            )

    @property
    def _length(self) -> int:
        return round(self.seconds * self.sample_rate) + 2 * self.margin

    @property
    def sections(self) -> int:
        """The number of sections of a clip."""
        return 1 + (self._length - self.section) // self.hop

    def listing(self) -> Listing:
        """Return the sound files, with label 1 for an anomaly."""
        root = self.dataset_root
        parts = splits_named(path.name for path in folders_in(root)) if root.is_dir() else {}
        found: list[tuple[Path, int]] = []
        for name, code in parts.items():
            found += [(path, code) for path in files_in(root / name, SUFFIXES)]
        if not parts and root.is_dir():
            found = [(path, TRAIN) for path in files_in(root, SUFFIXES)]
        if not found:
            raise DatasetError(f"{root} holds no wav files, neither by themselves nor in train and test")
        kinds = np.array([self.anomaly_text in path.name for path, _ in found], np.int64)
        official = np.array([code for _, code in found], np.int8) if parts else None
        return Listing(tuple(path for path, _ in found), kinds, ("usual", "anomalous"), official)

    @property
    def spec(self) -> DatasetSpec:
        """Sections ``(n, samples)``, float32 from -1 to 1, whether their clip is an anomaly, and its number."""
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
        owners, numbers = np.divmod(checked_indices(indices, len(self)), self.sections)
        sounds = np.zeros((len(owners), self.section), np.float32)
        whole = round(self.seconds * self.sample_rate)
        for place, owner, number in zip(sounds, owners, numbers, strict=True):
            start = int(number) * self.hop - self.margin
            first, end = max(0, start), min(start + self.section, whole)
            if end > first:
                place[first - start : end - start] = clip(self.files.paths[owner], self.sample_rate, end - first, first)
        return {"sound": sounds}, {"anomalous": self.files.labels[owners], CLIP: owners}

    def split(self, name: str) -> npt.NDArray[np.int64]:
        """Return the indices of one split; the sections of a clip stay together, in their order."""
        return (super().split(name)[:, None] * self.sections + np.arange(self.sections)).reshape(-1)
