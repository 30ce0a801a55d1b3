"""Folders with one folder of files per class, optionally below train, validation and test."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnpipe.core.dataset import SPLITS
from nnpipe.core.errors import DatasetError
from nnpipe.core.messages import suggest_name
from nnpipe.datasets._split import TRAIN, find_splits

_LIMIT = 16 << 20


@dataclass(frozen=True)
class ClassList:
    """Class names in order of their numbers."""

    path: Path
    names: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> ClassList:
        """Read a text file with one name per line.

        Raises
        ------
        DatasetError
            If there is no such file, or it is not a list of names.
        """
        try:
            if path.stat().st_size > _LIMIT:
                raise DatasetError(f"{path} is too large for a list of classes")
            lines = path.read_text("utf-8-sig").splitlines()
        except FileNotFoundError:
            raise DatasetError(
                f"{path} is not there; --class-list names a text file with one class a line"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise DatasetError(f"{path} cannot be read as a list of classes: {error}") from None
        names = tuple(line.strip() for line in lines)
        while names and not names[-1]:
            names = names[:-1]
        if not names:
            raise DatasetError(f"{path} names no classes")
        return cls(path, names)

    def number(self, folder: str) -> int:
        """Return the class of a folder, which is named by number, by name, or by the name's part
        before a comma.

        Raises
        ------
        DatasetError
            If no class of the list matches, or several do.
        """
        if folder.isdecimal() and folder.isascii():
            if int(folder) < len(self.names):
                return int(folder)
            raise DatasetError(
                f"the folder {folder} is no class of {self.path}, which names {len(self.names)} "
                f"from 0"
            )
        for names in (self.names, tuple(name.partition(",")[0] for name in self.names)):
            found = [number for number, name in enumerate(names) if name == folder]
            if len(found) > 1:
                raise DatasetError(
                    f"the folder {folder!r} may be class {' or '.join(map(str, found))} of "
                    f"{self.path}; "
                    "call it by its number"
                )
            if found:
                return found[0]
        hint = suggest_name(folder, (name.partition(",")[0] for name in self.names))
        raise DatasetError(f"the folder {folder!r} is no class of {self.path}{hint}")


_IGNORED = frozenset(("__MACOSX",))  # what archives hold beside the data


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
    notes
        What was found in the folders and is not plain from their names, for people.
    """

    paths: tuple[Path, ...]
    labels: npt.NDArray[np.int64]
    class_names: tuple[str, ...]
    official: npt.NDArray[np.integer] | None = None
    notes: tuple[str, ...] = ()


def list_class_files(
    root: Path, suffixes: Collection[str], kind: str, class_list: Path | None
) -> Listing:
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
        raise DatasetError(
            f"{root} is no folder; --dataset-root must hold one folder of {kind} for each class"
        )
    known = ClassList.read(class_list) if class_list else None
    root = _unwrap_folder(root, suffixes)
    inside = {folder.name: folder for folder in list_folders(root)}
    splits = _find_split_folders(root, inside, suffixes, kind, known)
    if not splits:
        _refuse_wrapper(root, inside, suffixes, known)
        return _build_listing([(root, None)], suffixes, kind, known)
    parts: list[tuple[Path, int | None]] = [(inside[name], code) for name, code in splits.items()]
    return _build_listing(parts, suffixes, kind, known)


def find_files(folder: Path, suffixes: Collection[str]) -> list[Path]:
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
            raise DatasetError(
                f"cannot look into {error.filename}: {error.strerror or error}"
            ) from None
    return [Path(path) for path in sorted(found, key=os.fsencode)]


def list_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, without hidden ones, sorted by name."""
    try:
        inside = list(folder.iterdir())
    except OSError as error:
        raise DatasetError(f"cannot look into {folder}: {error.strerror or error}") from None
    folders = (path for path in inside if path.is_dir() and not path.name.startswith("."))
    return sorted(path for path in folders if path.name not in _IGNORED)


def _find_split_folders(
    root: Path,
    inside: Mapping[str, Path],
    suffixes: Collection[str],
    kind: str,
    known: ClassList | None,
) -> dict[str, int]:
    """Return the folders that are splits, with their codes; none if the folders are classes."""
    splits = dict(sorted(find_splits(inside).items(), key=lambda named: named[1]))
    classes_below = {name for name in splits if list_folders(inside[name])}
    directly = [
        name for name in splits if name not in classes_below and _has_files(inside[name], suffixes)
    ]
    if not classes_below:
        if not directly or len(splits) < len(inside) or (known and set(inside) <= set(known.names)):
            return {}
        raise DatasetError(
            f"{root} holds {kind} directly in {' and '.join(directly)}, which are called like "
            f"splits: put those of "
            "each class into a folder of its own there; if these are classes, name them in a file "
            "for --class-list"
        )
    if strange := sorted(inside.keys() - splits.keys()):
        raise DatasetError(
            f"{root} holds the folders {', '.join(splits)} and {strange[0]}; below it may be "
            f"either classes or train, "
            "validation and test"
        )
    if directly:
        raise DatasetError(
            f"{inside[directly[0]]} holds {kind} and no folders of classes, so nothing tells what "
            f"is in them; move "
            "it elsewhere, or sort them into folders of classes"
        )
    for code in splits.values():
        twins = [other for other in splits if splits[other] == code]
        if len(twins) > 1:
            raise DatasetError(
                f"{root} holds {' and '.join(twins)}, which are one split ({SPLITS[code]}); join "
                f"them"
            )
    return splits


def _unwrap_folder(folder: Path, suffixes: Collection[str]) -> Path:
    """Return the folder itself, or the one that archives put into it: of its own name, or with
    the splits.
    """
    inside = list_folders(folder)
    while len(inside) == 1 and not _has_files(folder, suffixes):
        below = list_folders(inside[0])
        named_so = inside[0].name.lower() == folder.name.lower() and below
        if not named_so and not (
            find_splits(path.name for path in below) and not find_splits([inside[0].name])
        ):
            break
        folder, inside = inside[0], below
    return folder


def _refuse_wrapper(
    root: Path, inside: Mapping[str, Path], suffixes: Collection[str], known: ClassList | None
) -> None:
    """Raise :class:`DatasetError` if the only class would be a folder of folders, which are the
    classes.
    """
    for name, folder in inside.items() if len(inside) == 1 and known is None else ():
        below = list_folders(folder)
        if len(below) > 1 and not _has_files(folder, suffixes):
            raise DatasetError(
                f"{root} holds the folder {name} alone, which holds "
                f"{', '.join(path.name for path in below[:5])}: if these are the classes, give "
                f"--dataset-root {folder}"
            )


def _has_files(folder: Path, suffixes: Collection[str]) -> bool:
    with os.scandir(folder) as entries:
        return any(
            entry.is_file()
            and not entry.name.startswith(".")
            and Path(entry.name).suffix.lower() in suffixes
            for entry in entries
        )


def _build_listing(
    parts: list[tuple[Path, int | None]],
    suffixes: Collection[str],
    kind: str,
    known: ClassList | None,
) -> Listing:
    classes = [
        (folder, code)
        for part, code in parts
        for folder in list_folders(_unwrap_folder(part, suffixes))
    ]
    if not classes:
        raise DatasetError(
            f"{parts[0][0]} holds no folders; it must hold one folder of {kind} for each class"
        )
    names = known.names if known else tuple(sorted({folder.name for folder, _ in classes}))
    numbers = {name: number for number, name in enumerate(names)}
    paths: list[Path] = []
    labels: list[int] = []
    codes: list[int] = []
    for folder, code in classes:
        found = find_files(folder, suffixes)
        if not found:
            raise DatasetError(f"{folder} holds no {kind}; remove it if it is no class")
        paths += found
        labels += [known.number(folder.name) if known else numbers[folder.name]] * len(found)
        codes += [TRAIN if code is None else code] * len(found)
    if parts[0][1] is None:
        return Listing(tuple(paths), np.array(labels, np.int64), names)
    _refuse_other_case(names if known is None else ())
    told = "; ".join(
        f"{part.name} is {SPLITS[code or 0]}, {codes.count(code or 0):,} {kind}"
        for part, code in parts
    )
    official = np.array(codes, np.int8)
    return Listing(tuple(paths), np.array(labels, np.int64), names, official, (f"splits: {told}",))


def _refuse_other_case(names: Collection[str]) -> None:
    """Raise :class:`DatasetError` if the splits write a class in different ways."""
    written: dict[str, str] = {}
    for name in names:
        if written.setdefault(name.casefold(), name) != name:
            raise DatasetError(
                f"the class {name} is called {written[name.casefold()]} in another split; rename "
                f"one"
            )
