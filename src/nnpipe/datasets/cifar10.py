"""CIFAR-10: 60,000 colour images of 32 x 32 pixels, in the binary version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.core.tensors import DatasetSpec
from nnpipe.datasets._download import RemoteFile, fetch
from nnpipe.datasets._split import TEST, TRAIN
from nnpipe.datasets.extract import MalformedContent, extract, open_unpacked
from nnpipe.datasets.in_memory import InMemoryDataset, Samples, make_image_classification_spec

_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_FOLDER = "cifar-10-batches-bin"
_RECORD = 1 + 3 * 32 * 32
_MAX_BYTES = 1 << 30

# Checksum and size: tensorflow/datasets, url_checksums/cifar10.txt.
_ARCHIVE = RemoteFile(
    "cifar-10-binary.tar.gz",
    (
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz",
    ),
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    170052171,
)


class CIFAR10Dataset(InMemoryDataset):
    """60,000 photographs of 32 x 32 pixels in ten classes; 10,000 of them are the official test
    set.

    ``dataset_root`` (or ``cifar-10-batches-bin`` in it) holds the files
    ``data_batch_1.bin`` ... ``test_batch.bin`` of the binary version, or parts of
    them in the same format: ``train*.bin`` and ``test*.bin``, optionally
    compressed as ``.bin.gz``.
    """

    dataset_root: Path = argument(
        Path("data/cifar10"), help="folder of the data set's files, present or to download"
    )

    @property
    def spec(self) -> DatasetSpec:
        """RGB images ``(n, 32, 32, 3)`` and ten classes."""
        return make_image_classification_spec(32, 32, 3, _CLASSES)

    def download(self) -> None:
        """Download and extract the archive, 170 MB, unless its content exists."""
        if not self._find_record_files():
            fetch(_ARCHIVE, self.dataset_root)

    def load(self) -> Samples:
        """Return all samples; the archive is extracted first if only that exists."""
        archive = self.dataset_root / _ARCHIVE.name
        if not self._find_record_files() and archive.is_file():
            extract(archive, self.dataset_root / _FOLDER, strip=1, max_bytes=_MAX_BYTES)
        batches = self._find_record_files()
        if not batches:
            raise DatasetError(
                f"{self.dataset_root} holds no data_batch_1.bin or other batches of CIFAR-10; "
                f"add --download-dataset, or put {_ARCHIVE.name} there"
            )
        labels, images, official = [], [], []
        for path, code in batches:
            records = _read_records(path)
            labels.append(records[:, 0].astype(np.int64))
            # From planes of red, green and blue to pixels.
            images.append(
                np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
            )
            official.append(np.full(len(records), code, np.int8))
        return Samples(
            {"image": np.concatenate(images)},
            {"label": np.concatenate(labels)},
            _CLASSES,
            np.concatenate(official),
        )

    def _find_record_files(self) -> list[tuple[Path, int]]:
        """Return the files of records with the split of each, sorted by name."""
        found = []
        for folder in (self.dataset_root, self.dataset_root / _FOLDER):
            for path in sorted(folder.glob("*.bin")) + sorted(folder.glob("*.bin.gz")):
                if path.name.startswith(("data_batch", "train")):
                    found.append((path, TRAIN))
                elif path.name.startswith("test"):
                    found.append((path, TEST))
        return found

    def origin(self) -> Mapping[str, Any]:
        """Return the name and licence of CIFAR-10."""
        return {
            "name": "CIFAR-10 (Krizhevsky 2009)",
            "url": "https://www.cs.toronto.edu/~kriz/cifar.html",
            "licence": "none stated; cite Krizhevsky 2009",
        }


def _read_records(path: Path) -> npt.NDArray[np.uint8]:
    """Return the records of a file, ``(n, 3073)`` uint8: a label and three planes each."""
    with open_unpacked(path) as stream:
        data = stream.read(_MAX_BYTES + 1)
        if not data or len(data) % _RECORD or len(data) > _MAX_BYTES:
            raise MalformedContent(f"its length of {len(data)} bytes is no multiple of {_RECORD}")
        records = np.frombuffer(data, np.uint8).reshape(-1, _RECORD)
        wrong = np.flatnonzero(records[:, 0] >= len(_CLASSES))
        if len(wrong):
            raise MalformedContent(
                f"record {wrong[0]} has the label {records[wrong[0], 0]}, not 0 to 9"
            )
    return records
