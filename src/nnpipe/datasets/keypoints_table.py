"""Pictures with key points from a CSV file."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TextIO

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.core.ragged import Ragged
from nnpipe.datasets._class_list import ClassList
from nnpipe.datasets.posed_images import (
    COCO_POINTS,
    MOST_NUMBERS,
    MOST_PERSONS,
    MOST_POINTS,
    PosedImagesDataset,
    PoseListing,
)  # fmt: skip

_NEEDED = ("keypoint_id", "keypoint_x", "keypoint_y")
_LINE = 1 << 12


class KeypointsTableDataset(PosedImagesDataset):
    """Pictures with key points from a CSV file with a row for each point.

    The columns are ``keypoint_id``, ``keypoint_x`` and ``keypoint_y``, and perhaps ``image``: the picture's file below
    ``images``, ``pose_id``: the number of the person in the picture, and ``visibility``: 0 for points that are not
    known.  Points that are not in the file are not known either; other columns are not read.
    """

    table: Path | None = argument(None, help="the CSV file; by default ROOT/keypoints.csv")
    image: Path | None = argument(None, help="the picture of all rows, if there is no column image")
    images: Path | None = argument(None, help="folder of the pictures; by default that of the table")
    coordinates: Literal["shares", "pixels"] = argument(
        "shares", help="whether x and y are in shares of the picture's width and height, or in pixels"
    )
    point_list: Path | None = argument(
        None, help="text file with the names of the key points, one per line; by default COCO's, for 17 points"
    )

    def listing(self) -> PoseListing:
        """Return the pictures and key points of the table."""
        path = self.table or self.dataset_root / "keypoints.csv"
        persons: dict[tuple[str, int], dict[int, tuple[float, float, float]]] = {}
        counts: dict[str, int] = {}
        number = 0
        for line, row in enumerate(_rows(path), 2):
            where = f"{path}, line {line}"
            if (picture := row.get("image") or "") == "" and self.image is None:
                raise DatasetError(f"{where}: there is no column image: name the picture with --image")
            key = picture, _whole(row.get("pose_id") or "0", where)
            if key not in persons:
                counts[picture] = counts.get(picture, 0) + 1
                if counts[picture] > MOST_PERSONS:
                    raise DatasetError(f"{where}: a picture has more than {MOST_PERSONS:,} persons; remove some")
            point = _whole(row["keypoint_id"] or "", where)
            if not 0 <= point < MOST_POINTS:
                raise DatasetError(f"{where}: keypoint_id should be from 0 to {MOST_POINTS - 1}, not {point}")
            x, y, seen = (
                _number(row.get(name) or default, where)
                for name, default in (("keypoint_x", ""), ("keypoint_y", ""), ("visibility", "1"))
            )
            own = persons.setdefault(key, {})
            if point in own:
                raise DatasetError(f"{where}: the key point {point} of a person is there twice")
            own[point] = x, y, seen
            number = max(number, point + 1)
            if len(persons) * number * 3 > MOST_NUMBERS:
                raise DatasetError(f"{where}: there are too many key points; divide the file")
        if not persons:
            raise DatasetError(f"{path} holds no key points")
        names = self._names(number)
        values = np.zeros((len(persons), len(names), 3), np.float32)
        for place, own in zip(values, persons.values(), strict=True):
            for point, numbers in own.items():
                place[point] = numbers
        pictures = list(counts)
        places = {name: place for place, name in enumerate(pictures)}
        owners = np.array([places[name] for name, _ in persons], np.int64)
        order = np.argsort(owners, kind="stable")
        folder = self.images or path.parent
        return PoseListing(
            tuple(self._file(folder, name) for name in pictures),
            Ragged(values[order], np.bincount(owners, minlength=len(pictures)).astype(np.int64)),
            names,
            shares=self.coordinates == "shares",
        )

    def _file(self, folder: Path, name: str) -> Path:
        if not name:
            assert self.image is not None  # listing() has checked it
            return self.image
        if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
            raise DatasetError(f"{name[:80]!r} should be a picture below {folder}")
        return folder / name

    def _names(self, number: int) -> tuple[str, ...]:
        if self.point_list is None:
            return COCO_POINTS if number == len(COCO_POINTS) else tuple(f"point {place}" for place in range(number))
        names = ClassList.read(self.point_list).names
        if len(names) < number:
            raise DatasetError(f"{self.point_list} names {len(names)} key points, and there are {number}")
        return names


def _rows(path: Path) -> Iterator[Mapping[str, str | None]]:
    """Yield the rows of a CSV file by the names of its columns."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(_bounded(file, path))
            missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
            if missing:
                raise DatasetError(f"{path} has no column {missing[0]}; it needs {', '.join(_NEEDED)}")
            yield from reader
    except FileNotFoundError:
        raise DatasetError(f"{path} is not there; --table names a CSV file of key points") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path} cannot be read: {str(error)[:100]}") from None


def _bounded(file: TextIO, path: Path) -> Iterator[str]:
    while line := file.readline(_LINE):
        if len(line) >= _LINE:
            raise DatasetError(f"{path} has lines that are too long for key points")
        yield line


def _whole(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DatasetError(f"{where}: {text[:40]!r} should be a whole number") from None


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= 1 << 20:
        raise DatasetError(f"{where}: {text[:40]!r} should be a number")
    return value
