"""Oxford-IIIT Pet: 7,349 photographs of cats and dogs of 37 breeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.datasets._class_folders import Listing, find_files
from nnpipe.datasets._download import RemoteFile, fetch
from nnpipe.datasets._split import TEST, TRAIN
from nnpipe.datasets.extract import extract
from nnpipe.datasets.image_files import SUFFIXES, ImageFilesDataset

_MAX_BYTES = 4 << 30
_OFFICIAL = {"trainval.txt": TRAIN, "test.txt": TEST}

# In the order of the published class numbers 1 to 37.  Names of cat breeds begin with a capital
# letter.
BREEDS = tuple(
    "Abyssinian american_bulldog american_pit_bull_terrier basset_hound beagle Bengal Birman "
    "Bombay boxer British_Shorthair chihuahua Egyptian_Mau english_cocker_spaniel english_setter "
    "german_shorthaired great_pyrenees havanese japanese_chin keeshond leonberger Maine_Coon "
    "miniature_pinscher newfoundland Persian pomeranian pug Ragdoll Russian_Blue saint_bernard "
    "samoyed scottish_terrier shiba_inu Siamese "
    "Sphynx staffordshire_bull_terrier wheaten_terrier yorkshire_terrier".split()
)
SPECIES = ("cat", "dog")


def _make_archive(name: str, size: int, sha256: str) -> RemoteFile:
    mirrors = (
        "https://thor.robots.ox.ac.uk/~vgg/data/pets/",
        "https://www.robots.ox.ac.uk/~vgg/data/pets/data/",
    )
    return RemoteFile(name, tuple(mirror + name for mirror in mirrors), sha256, size)


# Checksums and sizes: tensorflow/datasets, datasets/oxford_iiit_pet/checksums.tsv.
_ARCHIVES = {
    "images": _make_archive(
        "images.tar.gz",
        791918971,
        "67195c5e1c01f1ab5f9b6a5d22b8c27a580d896ece458917e61d459337fa318d",
    ),
    "annotations": _make_archive(
        "annotations.tar.gz",
        19173078,
        "52425fb6de5c424942b7626b428656fcbd798db970a937df61750c0f1d358e91",
    ),
}


class PetDataset(ImageFilesDataset):
    """7,349 photographs of cats and dogs of 37 breeds; 3,669 of them are the official test set.

    ``dataset_root`` holds the folders ``images`` (``Breed_123.jpg``) and
    ``annotations``, or the two archives.  Without ``annotations`` every image
    is a sample, and the split follows the fractions.
    """

    dataset_root: Path = argument(
        Path("data/pets"), help="folder of the data set's files, present or to download"
    )
    classification: Literal["breeds", "species"] = argument(
        "breeds", help="classes: the 37 breeds, or the species cat and dog"
    )

    def download(self) -> None:
        """Download and extract both archives, 811 MB, except those that exist as folders."""
        for name, file in _ARCHIVES.items():
            if not (self.dataset_root / name).is_dir():
                fetch(file, self.dataset_root)

    def list_files(self) -> Listing:
        """Return the image files; the archives are extracted first if only those exist."""
        folders = {name: self._find_or_extract(name) for name in _ARCHIVES}
        images, annotations = folders["images"], folders["annotations"]
        if images is None:
            raise DatasetError(
                f"{self.dataset_root / 'images'} is not there; add --download-dataset, or put "
                f"images.tar.gz and annotations.tar.gz into {self.dataset_root}"
            )
        if annotations is not None and all((annotations / name).is_file() for name in _OFFICIAL):
            return self._build_published_listing(images, annotations)
        paths = find_files(images, SUFFIXES)
        if not paths:
            raise DatasetError(f"{images} holds no images")
        return Listing(tuple(paths), self._encode_labels(paths), self._get_class_names())

    def _build_published_listing(self, images: Path, annotations: Path) -> Listing:
        paths: list[Path] = []
        codes: list[int] = []
        there = {path.stem: path for path in find_files(images, SUFFIXES)}
        for list_name, code in _OFFICIAL.items():
            for stem in _read_stems(annotations / list_name):
                if stem not in there:
                    raise DatasetError(
                        f"{annotations / list_name} names {stem}.jpg, which is not in {images}"
                    )
                paths.append(there[stem])
                codes.append(code)
        if len(set(paths)) != len(paths):
            raise DatasetError(
                f"trainval.txt and test.txt in {annotations} share images; get annotations.tar.gz "
                f"again"
            )
        return Listing(
            tuple(paths),
            self._encode_labels(paths),
            self._get_class_names(),
            np.array(codes, np.int8),
        )

    def _find_or_extract(self, name: str) -> Path | None:
        folder, archive = self.dataset_root / name, self.dataset_root / _ARCHIVES[name].name
        if not folder.is_dir() and archive.is_file():
            extract(archive, folder, [name], strip=1, max_bytes=_MAX_BYTES)
        return folder if folder.is_dir() else None

    def _get_class_names(self) -> tuple[str, ...]:
        return BREEDS if self.classification == "breeds" else SPECIES

    def _encode_labels(self, paths: list[Path]) -> np.ndarray:
        numbers = {breed: number for number, breed in enumerate(BREEDS)}
        labels = np.empty(len(paths), np.int64)
        for i, path in enumerate(paths):
            breed = path.stem.rpartition("_")[0]
            if breed not in numbers:
                raise DatasetError(
                    f"{path} is not named after one of the 37 breeds, as in Maine_Coon_12.jpg"
                )
            labels[i] = (
                numbers[breed] if self.classification == "breeds" else int(breed[0].islower())
            )
        return labels

    def origin(self) -> Mapping[str, Any]:
        """Return the name and licence of Oxford-IIIT Pet."""
        return {
            "name": "Oxford-IIIT Pet (Parkhi, Vedaldi, Zisserman, Jawahar 2012)",
            "url": "https://www.robots.ox.ac.uk/~vgg/data/pets/",
            "licence": "CC BY-SA 4.0",
        }


def _read_stems(path: Path) -> list[str]:
    """Return the first word of each line in a published list, without comments."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"cannot read {path}: {error}") from None
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
