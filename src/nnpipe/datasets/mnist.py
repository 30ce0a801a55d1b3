"""MNIST and Fashion-MNIST: 70,000 grey images of 28 x 28 pixels, in four IDX files each."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.core.tensors import DatasetSpec
from nnpipe.datasets._download import RemoteFile, fetch
from nnpipe.datasets._split import TEST, TRAIN
from nnpipe.datasets.extract import MalformedContent, open_unpacked
from nnpipe.datasets.in_memory import InMemoryDataset, Samples, make_image_classification_spec

# IDX files, the format of MNIST: a magic number of four bytes, the lengths of the axes, and the
# numbers.
#
# http://yann.lecun.com/exdb/mnist/ describes the format at its end.

_MAX_BYTES = 1 << 31
_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path, axes: int) -> npt.NDArray[Any]:
    """Read an IDX file, compressed with gzip if its name ends in ``.gz``.

    Parameters
    ----------
    path
        The file.
    axes
        Number of axes that it must have.

    Returns
    -------
    ndarray
        The numbers in native byte order.

    Raises
    ------
    DatasetError
        If the file is missing, damaged, of another format, incomplete or too
        long; the message names it.
    """
    with open_unpacked(path) as stream:
        return _parse(stream, axes)


def _parse(stream: IO[bytes], axes: int) -> npt.NDArray[Any]:
    magic = _read_exactly(stream, 4)
    if magic[:2] != b"\0\0" or magic[2] not in _TYPES:
        raise MalformedContent(f"it begins with {magic.hex(' ')}, which is no IDX file")
    if magic[3] != axes:
        raise MalformedContent(f"it has {magic[3]} axes instead of {axes}")
    shape = tuple(int(length) for length in np.frombuffer(_read_exactly(stream, 4 * axes), ">u4"))
    dtype = np.dtype(_TYPES[magic[2]])
    length = math.prod(shape) * dtype.itemsize
    if length > _MAX_BYTES:
        raise MalformedContent(f"its header claims {length} bytes")
    data = _read_exactly(stream, length)
    if stream.read(1):  # reading to the end makes gzip verify its checksum
        raise MalformedContent(f"it goes on after the {length} bytes that its header claims")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _read_exactly(stream: IO[bytes], count: int) -> bytes:
    # In blocks, so that a wrong length in the header allocates no memory for missing data.
    pieces = []
    left = count
    while left and (piece := stream.read(min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    if left:
        raise MalformedContent(f"it ends {left} bytes too early")
    return b"".join(pieces)


_SIDE = 28


def _make_remote_files(
    mirrors: tuple[str, ...], *described: tuple[str, int, str] | tuple[str, int, str, str]
) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(name, tuple(mirror + name for mirror in mirrors), sha256, size, *content)
        for name, size, sha256, *content in described
    )


# Checksums and sizes of the compressed files: tensorflow/datasets, url_checksums/mnist.txt.
# Checksums of the unpacked content: computed from files whose checksums several sources confirm.
_MNIST = _make_remote_files(
    (
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    (
        "train-images-idx3-ubyte.gz",
        9912422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    (
        "train-labels-idx1-ubyte.gz",
        28881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    (
        "t10k-images-idx3-ubyte.gz",
        1648877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    (
        "t10k-labels-idx1-ubyte.gz",
        4542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)

# Checksums and sizes: tensorflow/datasets, url_checksums/fashion_mnist.txt.
_FASHION = _make_remote_files(
    (
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    (
        "train-images-idx3-ubyte.gz",
        26421880,
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    ),
    (
        "train-labels-idx1-ubyte.gz",
        29515,
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    ),
    (
        "t10k-images-idx3-ubyte.gz",
        4422102,
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    ),
    (
        "t10k-labels-idx1-ubyte.gz",
        5148,
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
)


class _IdxImages(InMemoryDataset):
    """Base of data sets in the four files of MNIST's format: grey images and labels."""

    files: ClassVar[tuple[RemoteFile, ...]] = ()
    class_names: ClassVar[tuple[str, ...]] = ()

    @property
    def spec(self) -> DatasetSpec:
        """Images ``(n, 28, 28, 1)`` and ten classes."""
        return make_image_classification_spec(_SIDE, _SIDE, 1, self.class_names)

    def download(self) -> None:
        """Download the four files, 11 or 31 MB, except those that exist unpacked."""
        for file in self.files:
            if not self._get_unpacked_path(file.name).is_file():
                fetch(file, self.dataset_root)

    def load(self) -> Samples:
        """Return all samples of the four files, compressed with gzip or not."""
        train, test = (self._read_pair(start) for start in ("train", "t10k"))
        images, labels = (np.concatenate(both) for both in zip(train, test, strict=True))
        official = np.repeat(np.array([TRAIN, TEST], np.int8), [len(train[1]), len(test[1])])
        return Samples(
            {"image": images[..., None]},
            {"label": labels.astype(np.int64)},
            self.class_names,
            official,
        )

    def _read_pair(self, start: str) -> tuple[np.ndarray, np.ndarray]:
        images_path, labels_path = (
            self._find_file(f"{start}-images-idx3-ubyte"),
            self._find_file(f"{start}-labels-idx1-ubyte"),
        )
        images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
        if images.shape[1:] != (_SIDE, _SIDE) or images.dtype != np.uint8:
            raise DatasetError(
                f"{images_path} holds {images.dtype} images of {images.shape[1:]}, not uint8 of "
                f"(28, 28)"
            )
        if len(images) != len(labels):
            raise DatasetError(
                f"{images_path} holds {len(images)} images, but {labels_path} {len(labels)} labels"
            )
        if labels.size and (labels.dtype != np.uint8 or int(labels.max()) >= len(self.class_names)):
            raise DatasetError(f"{labels_path} holds labels that are no class numbers from 0 to 9")
        return images, labels

    def _get_unpacked_path(self, name: str) -> Path:
        return self.dataset_root / name.removesuffix(".gz")

    def _find_file(self, name: str) -> Path:
        packed = self.dataset_root / f"{name}.gz"
        for path in (self._get_unpacked_path(name), packed):
            if path.is_file():
                return path
        raise DatasetError(f"{packed} is not there; add --download-dataset, or put it there")

    @abstractmethod
    def origin(self) -> Mapping[str, Any]:
        """Return the source of the images."""


class MNISTDataset(_IdxImages):
    """70,000 handwritten digits of 28 x 28 pixels; 10,000 of them are the official test set."""

    dataset_root: Path = argument(
        Path("data/mnist"), help="folder of the data set's files, present or to download"
    )

    files: ClassVar[tuple[RemoteFile, ...]] = _MNIST
    class_names: ClassVar[tuple[str, ...]] = tuple("0123456789")

    def origin(self) -> Mapping[str, Any]:
        """Return the name and licence of MNIST."""
        return {
            "name": "MNIST (LeCun, Cortes, Burges)",
            "url": "http://yann.lecun.com/exdb/mnist/",
            "licence": "CC BY-SA 3.0",
        }


class FashionMNISTDataset(_IdxImages):
    """70,000 pictures of clothes of 28 x 28 pixels; 10,000 of them are the official test set."""

    dataset_root: Path = argument(
        Path("data/fashion-mnist"), help="folder of the data set's files, present or to download"
    )

    files: ClassVar[tuple[RemoteFile, ...]] = _FASHION
    class_names: ClassVar[tuple[str, ...]] = (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    )

    def origin(self) -> Mapping[str, Any]:
        """Return the name and licence of Fashion-MNIST."""
        return {
            "name": "Fashion-MNIST (Xiao, Rasul, Vollgraf 2017)",
            "url": "https://github.com/zalandoresearch/fashion-mnist",
            "licence": "MIT",
        }
