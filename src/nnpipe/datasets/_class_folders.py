"""Folders with one folder of files per class, optionally below train, validation and test."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import DatasetError
from nnpipe.datasets._class_list import ClassList
from nnpipe.datasets._split import TEST, TRAIN, VALIDATION

_SPLIT_FOLDERS = {"train": TRAIN, "validation": VALIDATION, "val": VALIDATION, "test": TEST}


@dataclass(frozen=True, eq=False)
class Listing:
    """The files of a data set.

    Attributes
    ----------
    paths
        One file per sample.
    labels
        ``(n,)`` int64 classes.
    class_names
        Class names in order of their numbers.
    official
        ``(n,)`` published split: 0 for training, 1 for validation and 2 for test
        samples; ``None`` without one.
    """

    paths: tuple[Path, ...]
    labels: npt.NDArray[np.int64]
    class_names: tuple[str, ...]
    official: npt.NDArray[np.integer] | None = None


def class_folders(root: Path, suffixes: Collection[str], kind: str, class_list: Path | None) -> Listing:
    """Return the files in folders of classes; no file is opened.

    Parameters
    ----------
    root
        The folder of the classes, or of the splits that hold them.
    suffixes
        The suffixes of the files, in lower case.
    kind
        What the files are, in messages: ``"images"``.
    class_list
        A text file of class names; by default, the folders' names are sorted.

    Raises
    ------
    DatasetError
        If a folder is missing or empty; the message names it.
    """
    if not root.is_dir():
        raise DatasetError(f"{root} is no folder; --dataset-root must hold one folder of {kind} for each class")
    known = ClassList.read(class_list) if class_list else None
    inside = {folder.name: folder for folder in folders_in(root)}
    if "train" not in inside and not _are_splits(inside):
        return _listing([(root, None)], suffixes, kind, known)
    strange = sorted(set(inside) - set(_SPLIT_FOLDERS))
    if strange or {"val", "validation"} <= set(inside):
        other = strange[0] if strange else "validation"
        raise DatasetError(f"{root} holds the folders train and {other if strange else 'val and ' + other}; "
                           "below it may be either classes or train, validation and test")  # fmt: skip
    parts: list[tuple[Path, int | None]] = []
    parts += [(inside[name], code) for name, code in _SPLIT_FOLDERS.items() if name in inside]
    return _listing(parts, suffixes, kind, known)


def files_in(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Return the files below ``folder`` with these suffixes, in the same order on every system.

    Hidden files and folders are left out, and links to folders are not followed.
    """
    found: list[str] = []
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if f".{entry.name.rpartition('.')[2].lower()}" in suffixes and entry.is_file():
                        found.append(entry.path)
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError as error:
            raise DatasetError(f"cannot look into {error.filename}: {error.strerror or error}") from None
    return [Path(path) for path in sorted(found, key=os.fsencode)]


def folders_in(folder: Path) -> list[Path]:
    """Return the folders in a folder, without hidden ones, sorted by name."""
    try:
        inside = list(folder.iterdir())
    except OSError as error:
        raise DatasetError(f"cannot look into {folder}: {error.strerror or error}") from None
    return sorted(path for path in inside if path.is_dir() and not path.name.startswith("."))


def _are_splits(inside: Mapping[str, Path]) -> bool:
    """Return whether folders are splits, which contain folders, and not classes with such names."""
    return bool(inside) and set(inside) <= set(_SPLIT_FOLDERS) and all(map(folders_in, inside.values()))


def _listing(
    parts: list[tuple[Path, int | None]], suffixes: Collection[str], kind: str, known: ClassList | None
) -> Listing:
    classes = [(folder, code) for part, code in parts for folder in folders_in(part)]
    if not classes:
        raise DatasetError(f"{parts[0][0]} holds no folders; it must hold one folder of {kind} for each class")
    names = known.names if known else tuple(sorted({folder.name for folder, _ in classes}))
    numbers = {name: number for number, name in enumerate(names)}
    paths: list[Path] = []
    labels: list[int] = []
    codes: list[int] = []
    for folder, code in classes:
        found = files_in(folder, suffixes)
        if not found:
            raise DatasetError(f"{folder} holds no {kind}; remove it if it is no class")
        paths += found
        labels += [known.number(folder.name) if known else numbers[folder.name]] * len(found)
        codes += [TRAIN if code is None else code] * len(found)
    official = None if parts[0][1] is None else np.array(codes, np.int8)
    return Listing(tuple(paths), np.array(labels, np.int64), names, official)
