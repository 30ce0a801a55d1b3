"""Pictures with boxes in YOLO's form: a text file for each picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.datasets._class_folders import ClassList, find_files
from nnpipe.datasets._split import TEST, TRAIN, VALIDATION
from nnpipe.datasets.boxed_images import BoxedImagesDataset, BoxListing, BoxTable
from nnpipe.datasets.image_files import SUFFIXES
from nnpipe.experiment.settings import parse_yaml

_LABELS = 16 << 20  # bytes of a label file
_LIST = 1 << 28  # bytes of a list of pictures
_LINE = 1 << 20  # characters: an outline of some 50,000 points
_CONFIGURATION = 1 << 20
_KEYS = {"train": TRAIN, "val": VALIDATION, "test": TEST}
_SLACK = 0.01  # by which rounded numbers may exceed the picture


class YOLOFolderDataset(BoxedImagesDataset):
    """Your own pictures with boxes in YOLO's form.

    ``ROOT/images`` holds pictures and ``ROOT/labels`` a text file of the same name for each, with a
    line for each box: its class number, and x and y of its centre, width and height in shares of
    the picture.  Lines with more numbers are outlines, and stand for the box around them.  A
    picture without a text file has no boxes.

    A YAML file in ``ROOT`` names the classes, and the folders of ``train``, ``val`` and ``test`` or
    text files that list their pictures; without one, classes are in ``classes.txt`` or
    ``--class-list``, and the split follows the fractions.  Where there is no ``test``, ``val`` is
    the test split.
    """

    configuration: Path | None = argument(
        None,
        help=(
            "YAML file with the names of the classes and the folders; by default the only one in "
            "--dataset-root"
        ),
    )
    class_list: Path | None = argument(
        None, help="text file with all classes of the model, one per line in order of number"
    )

    def list_files(self) -> BoxListing:
        """Return the pictures in the folders, with the boxes of their label files."""
        root = self.dataset_root
        if not root.is_dir():
            raise DatasetError(
                f"{root} is no folder; --dataset-root must hold the folders images and labels"
            )
        where, said = self._read_configuration()
        names = self._find_class_names(where, said)
        parts = list(_iter_split_folders(where, said, root)) or [(root / "images", TRAIN)]
        drawn = len(parts) == 1 and parts[0][1] == TRAIN
        if not any(code == TEST for _, code in parts):
            parts = [(folder, TEST if code == VALIDATION else code) for folder, code in parts]
        paths: list[Path] = []
        codes: list[int] = []
        table = BoxTable()
        for place, code in parts:
            for path, label_file in _iter_pictures(place, root):
                _read(label_file, len(paths), len(names), table)
                paths.append(path)
                codes.append(code)
        boxes, labels, crowds, _ = table.rows(len(paths))
        official = None if drawn else np.array(codes, np.int8)
        return BoxListing(
            tuple(paths), boxes, labels, names, crowds, official=official, shares=True
        )

    def _read_configuration(self) -> tuple[Path, Mapping[str, Any]]:
        where = self.configuration
        if where is None:
            found = sorted({*self.dataset_root.glob("*.yaml"), *self.dataset_root.glob("*.yml")})
            if len(found) > 1:
                raise DatasetError(
                    f"{self.dataset_root} holds {' and '.join(path.name for path in found[:3])}: "
                    f"say with "
                    "--configuration which of them describes the data set"
                )
            if not found:
                return self.dataset_root, {}
            where = found[0]
        try:
            if where.stat().st_size > _CONFIGURATION:
                raise DatasetError(f"{where} is too large for the description of a data set")
            said = parse_yaml(where.read_text("utf-8-sig"), str(where))
        except (OSError, UnicodeDecodeError) as error:
            raise DatasetError(f"{where} cannot be read: {error}") from None
        except ConfigError as error:
            raise DatasetError(str(error)) from None
        if not isinstance(said, dict):
            raise DatasetError(f"{where} should hold names, and folders of train, val and test")
        return where, said

    def _find_class_names(self, where: Path, said: Mapping[str, Any]) -> tuple[str, ...]:
        if self.class_list is not None:
            return ClassList.read(self.class_list).names
        names = said.get("names")
        if isinstance(names, dict):
            if set(names) != set(map(str, range(len(names)))):
                raise DatasetError(
                    f"{where}: the numbers of the names should be 0 to {len(names) - 1}"
                )
            names = [names[str(number)] for number in range(len(names))]
        if (
            isinstance(names, list)
            and names
            and all(isinstance(name, (str, int, float)) for name in names)
        ):
            return tuple(map(str, names))
        if (self.dataset_root / "classes.txt").is_file():
            return ClassList.read(self.dataset_root / "classes.txt").names
        raise DatasetError(
            f"{where} does not name the classes: give --class-list, or a YAML file with names in "
            f"{self.dataset_root}"
        )


def _iter_split_folders(
    where: Path, said: Mapping[str, Any], root: Path
) -> Iterator[tuple[Path, int]]:
    """Yield the folders of a configuration that are there, with the codes of their splits."""
    missing = []
    there = False
    for key, code in _KEYS.items():
        given = said.get(key)
        for folder in (
            [given] if isinstance(given, str) else given if isinstance(given, list) else []
        ):
            # What a file names outside the data set's folder is not looked into.  Some programs
            # name the folders beside the file as ../train/images.
            if isinstance(folder, str) and folder.startswith("../") and folder.endswith("/images"):
                folder = folder[3:]
            place = (root / str(folder)).resolve()
            if not place.is_relative_to(root.resolve()) or not isinstance(folder, str):
                raise DatasetError(
                    f"{where}: {key} should be a folder inside {root}, not {str(folder)[:80]!r}"
                )
            if place.is_dir() or (place.is_file() and place.suffix.lower() == ".txt"):
                there = True
                yield root / folder, code
            else:
                missing.append(folder)
    if missing and not there:
        raise DatasetError(f"{where} names {missing[0]}, which is not in {root}")


def _iter_pictures(place: Path, root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the pictures of a folder, or those that a text file lists, each with its label file."""
    if place.is_file():
        for line in _read_lines(place, _LIST, "a list of pictures"):
            path = root / line.strip()
            if not path.resolve().is_relative_to(root.resolve()):
                raise DatasetError(
                    f"{place} lists {line.strip()[:80]!r}, which is not inside {root}"
                )
            if line.strip():
                yield path, _get_label_folder(path.parent) / f"{path.stem}.txt"
        return
    if not place.is_dir():
        raise DatasetError(
            f"{place} is no folder; it must hold pictures, with their boxes in "
            f"{_get_label_folder(place)}"
        )
    for path in find_files(place, SUFFIXES):
        yield path, _get_label_folder(place) / path.relative_to(place).with_suffix(".txt")


def _read_lines(path: Path, most: int, what: str) -> list[str]:
    """Return the lines of a text file of some greatest number of bytes."""
    try:
        if path.stat().st_size > most:
            raise DatasetError(f"{path} is too large for {what}")
        return path.read_text("utf-8-sig").splitlines()
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from None


def _get_label_folder(folder: Path) -> Path:
    """Return the folder of labels for a folder of pictures: the last ``images`` in its path
    becomes ``labels``.
    """
    parts = list(folder.parts)
    for place in range(len(parts) - 1, -1, -1):
        if parts[place] == "images":
            parts[place] = "labels"
            return Path(*parts)
    return folder


def _parse_class_number(word: str) -> int:
    """Return a class number, which some programs write as ``3.0``; raise :class:`ValueError` if
    it is none.
    """
    if not (number := float(word)).is_integer():
        raise ValueError(word)
    return int(number)


def _read(path: Path, picture: int, classes: int, table: BoxTable) -> None:
    """Add the boxes of a label file, if it is there."""
    try:
        lines = _read_lines(path, _LABELS, "the boxes of a picture")
    except FileNotFoundError:
        return
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        if len(line) > _LINE:
            raise DatasetError(
                f"{where}: it has more than {_LINE:,} characters, too many for a box or an outline"
            )
        words = line.split()
        try:
            label, shares = _parse_class_number(words[0]), list(map(float, words[1:]))
        except ValueError:
            raise DatasetError(
                f"{where}: expected a class number and numbers of a box, not {line[:60]!r}"
            ) from None
        if not 0 <= label < classes:
            raise DatasetError(
                f"{where}: class {words[0][:40]} is none of the {classes} classes, from 0 to "
                f"{classes - 1}"
            )
        if len(shares) >= 6 and len(shares) % 2 == 0:
            across, down = shares[::2], shares[1::2]
            left, top, right, bottom = min(across), min(down), max(across), max(down)
        elif len(shares) == 4:
            x, y, width, height = shares
            left, top, right, bottom = x - width / 2, y - height / 2, x + width / 2, y + height / 2
        else:
            raise DatasetError(
                f"{where}: expected four numbers of a box, or an outline of three points at least"
            )
        if not (
            left >= -_SLACK and top >= -_SLACK and right <= 1 + _SLACK and bottom <= 1 + _SLACK
        ):
            raise DatasetError(
                f"{where}: the box leaves the picture; its numbers should be shares from 0 to 1"
            )
        table.add(picture, label, (left, top, right - left, bottom - top), where)
