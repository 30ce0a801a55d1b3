"""The lists of Pascal VOC, which say which pictures are for training and which for testing."""

from __future__ import annotations

from pathlib import Path

from nnpipe.core.errors import DatasetError
from nnpipe.datasets._class_list import ClassList
from nnpipe.datasets._split import TEST, TRAIN

_LISTS = {"train": TRAIN, "trainval": TRAIN, "val": TEST, "test": TEST}


def listed(root: Path, purpose: str) -> dict[str, int]:
    """Return the names in ``ImageSets/PURPOSE/*.txt`` with the codes of their splits; of two, the first counts.

    Raises
    ------
    DatasetError
        If a line names no picture.
    """
    found: dict[str, int] = {}
    for name, code in _LISTS.items():
        path = root / "ImageSets" / purpose / f"{name}.txt"
        if not path.is_file():
            continue
        for line in ClassList.read(path).names:
            stem = line.split()[0] if line else ""
            if not stem or "/" in stem or "\\" in stem or "\0" in stem or stem == "..":
                raise DatasetError(f"{path} should name a picture in each line, not {line[:60]!r}")
            found.setdefault(stem, code)
    return found
