"""The base of data sets of pictures with key points."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TextIO

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.core.evaluation import Ragged
from nnpipe.core.tensors import Batch, DatasetSpec, TensorSpec
from nnpipe.datasets._class_folders import ClassList
from nnpipe.datasets._split import TEST
from nnpipe.datasets.coco import COCOContent, COCOFilesDataset, is_number
from nnpipe.datasets.image_files import ListedPicturesDataset
from nnpipe.datasets.in_memory import check_indices
from nnpipe.tasks.pose.pairing import PoseSettings
from nnpipe.tasks.pose.task import Pose

MOST_PERSONS = 1000
"""Persons that a picture may have."""
MOST_POINTS = 1000
"""Key points that a person may have."""
MOST_NUMBERS = 1 << 26
"""Numbers of all key points: 256 MiB."""

COCO_POINTS = (
    "nose", "left_eye", "right_eye", "left_ear", "right_ear", "left_shoulder", "right_shoulder", "left_elbow",
    "right_elbow", "left_wrist", "right_wrist", "left_hip", "right_hip", "left_knee", "right_knee", "left_ankle",
    "right_ankle",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class PoseListing:
    """Pictures with the key points of the persons in them.

    Attributes
    ----------
    paths
        One image file per sample.
    points
        x, y and visibility of each person's key points, ``(persons, points, 3)`` float32; in
        pixels, or in shares of the picture's width and height if ``shares`` is true.
    names
        Names of the key points.
    boxes
        Left, top, width and height of each person, in pixels; ``None``: those around the visible
        points.
    areas
        The area of each person in pixels; ``None``: 0.53 of the box.
    crowds
        Whether a person need not be found; ``None``: no one.
    official
        ``(n,)`` published split: 0 for training, 1 for validation and 2 for test samples; ``None``
        without one.
    shares
        Whether points are in shares of the picture's size.
    """

    paths: tuple[Path, ...]
    points: Ragged
    names: tuple[str, ...]
    boxes: Ragged | None = None
    areas: Ragged | None = None
    crowds: Ragged | None = None
    official: npt.NDArray[np.integer] | None = None
    shares: bool = False


class PosedImagesDataset(PoseSettings, ListedPicturesDataset[PoseListing]):
    """Base of data sets of pictures with key points; a subclass writes :meth:`list_files`."""

    abstract: ClassVar[bool] = True

    @property
    def task(self) -> Pose:
        """Poses, with these deviations and lengths."""
        return Pose(sigmas=self.sigmas, pck_fraction=self.pck_fraction, pck_length=self.pck_length)

    @property
    def spec(self) -> DatasetSpec:
        """Pictures of any size, their sizes, and the key points, padded to the greatest number
        of persons.
        """
        found = self.files
        most, number = self._most, len(found.names)
        boxes, areas, crowds = (
            TensorSpec("boxes", (None, most, 4), "float32"),
            TensorSpec("area", (None, most), "float64"),
            TensorSpec("crowd", (None, most), "uint8"),
        )
        known = zip((boxes, areas, crowds), (found.boxes, found.areas, found.crowds), strict=True)
        return DatasetSpec(
            Pose.name,
            inputs=self.pictures,
            targets=(
                TensorSpec("points", (None, most, number, 3), "float32"),
                TensorSpec("count", (None,), "int64"),
                TensorSpec("size", (None, 2), "int32"),
                *(spec for spec, rows in known if rows is not None),
            ),
            class_names=found.names,
        )

    @property
    def strata(self) -> npt.NDArray[np.int64]:
        """Whether a picture has none, one or several persons."""
        return np.minimum(self.files.points.counts, 2)

    @property
    def _most(self) -> int:
        return int(self.files.points.counts.max(initial=1))

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return some samples: decoded pictures and their key points in pixels."""
        indices = check_indices(indices, len(self))
        found = self.files
        inputs, sizes = self.decode_pictures(indices)
        points = self._pad_rows(found.points, indices).astype(np.float32)
        if found.shares:
            points[..., :2] *= sizes[:, None, None, ::-1]
        truth: dict[str, npt.NDArray[np.generic]] = {
            "points": points,
            "count": found.points.counts[indices],
            "size": sizes.copy(),
        }
        for name, rows in (("boxes", found.boxes), ("area", found.areas), ("crowd", found.crowds)):
            if rows is not None:
                truth[name] = self._pad_rows(rows, indices)
        return inputs, truth

    def _pad_rows(self, rows: Ragged, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.generic]:
        padded = np.zeros((len(indices), self._most, *rows.values.shape[1:]), rows.values.dtype)
        for place, index in zip(padded, indices.tolist(), strict=True):
            place[: int(rows.counts[index])] = rows[index]
        return padded


_NEEDED = ("keypoint_id", "keypoint_x", "keypoint_y")
_LINE = 1 << 12


class KeypointsTableDataset(PosedImagesDataset):
    """Pictures with key points from a CSV file with a row for each point.

    The columns are ``keypoint_id``, ``keypoint_x`` and ``keypoint_y``, and perhaps ``image``: the
    picture's file below ``images``, ``pose_id``: the number of the person in the picture, and
    ``visibility``: 0 for points that are not known.  Points that are not in the file are not known
    either; other columns are not read.
    """

    table: Path | None = argument(None, help="the CSV file; by default ROOT/keypoints.csv")
    image: Path | None = argument(None, help="the picture of all rows, if there is no column image")
    images: Path | None = argument(
        None, help="folder of the pictures; by default that of the table"
    )
    coordinates: Literal["shares", "pixels"] = argument(
        "shares",
        help="whether x and y are in shares of the picture's width and height, or in pixels",
    )
    point_list: Path | None = argument(
        None,
        help=(
            "text file with the names of the key points, one per line; by default COCO's, for 17 "
            "points"
        ),
    )

    def list_files(self) -> PoseListing:
        """Return the pictures and key points of the table."""
        path = self.table or self.dataset_root / "keypoints.csv"
        persons: dict[tuple[str, int], dict[int, tuple[float, float, float]]] = {}
        counts: dict[str, int] = {}
        number = 0
        for line, row in enumerate(_iter_rows(path), 2):
            where = f"{path}, line {line}"
            if (picture := row.get("image") or "") == "" and self.image is None:
                raise DatasetError(
                    f"{where}: there is no column image: name the picture with --image"
                )
            key = picture, _parse_whole_number(row.get("pose_id") or "0", where)
            if key not in persons:
                counts[picture] = counts.get(picture, 0) + 1
                if counts[picture] > MOST_PERSONS:
                    raise DatasetError(
                        f"{where}: a picture has more than {MOST_PERSONS:,} persons; remove some"
                    )
            point = _parse_whole_number(row["keypoint_id"] or "", where)
            if not 0 <= point < MOST_POINTS:
                raise DatasetError(
                    f"{where}: keypoint_id should be from 0 to {MOST_POINTS - 1}, not {point}"
                )
            x, y, seen = (
                _parse_number(row.get(name) or default, where)
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
        names = self._find_point_names(number)
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
            tuple(self._resolve_picture(folder, name) for name in pictures),
            Ragged(values[order], np.bincount(owners, minlength=len(pictures)).astype(np.int64)),
            names,
            shares=self.coordinates == "shares",
        )

    def _resolve_picture(self, folder: Path, name: str) -> Path:
        if not name:
            assert self.image is not None  # listing() has checked it
            return self.image
        if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
            raise DatasetError(f"{name[:80]!r} should be a picture below {folder}")
        return folder / name

    def _find_point_names(self, number: int) -> tuple[str, ...]:
        if self.point_list is None:
            return (
                COCO_POINTS
                if number == len(COCO_POINTS)
                else tuple(f"point {place}" for place in range(number))
            )
        names = ClassList.read(self.point_list).names
        if len(names) < number:
            raise DatasetError(
                f"{self.point_list} names {len(names)} key points, and there are {number}"
            )
        return names


def _iter_rows(path: Path) -> Iterator[Mapping[str, str | None]]:
    """Yield the rows of a CSV file by the names of its columns."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(_iter_lines(file, path))
            missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
            if missing:
                raise DatasetError(
                    f"{path} has no column {missing[0]}; it needs {', '.join(_NEEDED)}"
                )
            yield from reader
    except FileNotFoundError:
        raise DatasetError(f"{path} is not there; --table names a CSV file of key points") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path} cannot be read: {str(error)[:100]}") from None


def _iter_lines(file: TextIO, path: Path) -> Iterator[str]:
    while line := file.readline(_LINE):
        if len(line) >= _LINE:
            raise DatasetError(f"{path} has lines that are too long for key points")
        yield line


def _parse_whole_number(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DatasetError(f"{where}: {text[:40]!r} should be a whole number") from None


def _parse_number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= 1 << 20:
        raise DatasetError(f"{where}: {text[:40]!r} should be a number")
    return value


class COCOKeypointsDataset(COCOFilesDataset, PosedImagesDataset):
    """Pictures with key points in COCO's form: COCO 2017 itself, or your own.

    ``ROOT/annotations`` holds ``person_keypoints_val2017.json`` and the like, ``ROOT/val2017`` or
    ``ROOT/images/val2017`` the pictures.  Files with ``train`` in their names are the training
    split, others the test split.  Crowds and persons without visible points are kept, as COCO's
    metrics need them.
    """

    prefix: ClassVar[str] = "person_keypoints_"

    only_with_persons: bool = argument(
        False, help="whether pictures without any person are left out"
    )

    def list_files(self) -> PoseListing:
        """Return the pictures and key points of all files."""
        paths: list[Path] = []
        codes: list[int] = []
        rows: list[tuple[np.ndarray, ...]] = []
        names: tuple[str, ...] = ()
        for file in self.list_annotation_files():
            found = _Content(file)
            if names not in ((), found.names):
                raise DatasetError(
                    f"{file} has other key points than the files before; name one with "
                    f"--annotations"
                )
            names = found.names
            owners = np.array(found.owner, np.int64)
            pictures = np.array(list(found.images), np.int64)
            if strange := set(owners.tolist()) - set(found.images):
                raise DatasetError(
                    f"{file}: there is no image {min(strange)}, which an annotation names"
                )
            if self.only_with_persons:
                pictures = pictures[np.isin(pictures, owners)]
            order = np.argsort(pictures, kind="stable")
            place = order[
                np.minimum(np.searchsorted(pictures[order], owners), max(0, len(pictures) - 1))
            ]
            rows.append((len(paths) + place, *found.rows()))
            paths += self.find_pictures(found, pictures.tolist())
            codes += [self.split_code(file)] * len(pictures)
        owner, points, boxes, areas, crowds = (
            np.concatenate(part) for part in zip(*rows, strict=True)
        )
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=len(paths)).astype(np.int64)
        if int(counts.max(initial=0)) > MOST_PERSONS:
            raise DatasetError(
                f"{paths[int(counts.argmax())]} has more than {MOST_PERSONS:,} persons; remove some"
            )
        return PoseListing(
            tuple(paths),
            Ragged(points[order], counts),
            names,
            Ragged(boxes[order], counts),
            Ragged(areas[order], counts),
            Ragged(crowds[order], counts),
            np.array(codes, np.int8) if TEST in codes else None,
        )


class _Content(COCOContent):
    """What one file says of key points; of each category, those of the first that names some."""

    def __init__(self, file: Path) -> None:
        self.names: tuple[str, ...] = ()
        self.owner = array("q")
        self._points, self._boxes, self._areas, self._crowds = (
            array("f"),
            array("f"),
            array("d"),
            array("b"),
        )
        super().__init__(file)
        number = len(self._points) // (3 * max(1, len(self.owner)))
        if not self.names and number:
            self.names = tuple(f"point {place}" for place in range(number))
        if not self.names or (len(self.owner) and number != len(self.names)):
            raise DatasetError(
                f"{file} names {len(self.names)} key points, and its persons have {number}"
            )

    def add_category(self, entry: Mapping[str, Any]) -> None:
        """Keep the category, and the names of its key points."""
        super().add_category(entry)
        names = entry.get("keypoints")
        if names is None:
            return
        if (
            not isinstance(names, list)
            or not names
            or not all(isinstance(name, str) and name for name in names)
        ):
            raise DatasetError(f"{self.file}: keypoints of a category should be names")
        if len(set(names)) != len(names) or len(names) > MOST_POINTS:
            raise DatasetError(
                f"{self.file}: a category has up to {MOST_POINTS:,} key points of different names"
            )
        if self.names not in ((), tuple(names)):
            raise DatasetError(
                f"{self.file} has categories with different key points; keep one of them"
            )
        self.names = tuple(names)

    def add_annotation(
        self, entry: Mapping[str, Any], image: int, category: int, where: str
    ) -> None:
        """Keep a person's key points, box and area."""
        points, box, area = entry.get("keypoints"), entry.get("bbox"), entry.get("area")
        if (
            not isinstance(points, list)
            or not points
            or len(points) % 3
            or len(points) > 3 * MOST_POINTS
        ):
            raise DatasetError(
                f"{where}: keypoints should be three numbers each, for at most {MOST_POINTS:,} "
                f"points"
            )
        if len(self.owner) and len(points) * len(self.owner) != len(self._points):
            raise DatasetError(
                f"{where}: the persons of a file should have the same number of key points"
            )
        if (
            not all(map(is_number, points))
            or not isinstance(box, list)
            or len(box) != 4
            or not all(map(is_number, box))
        ):
            raise DatasetError(
                f"{where}: keypoints should be finite numbers, and bbox four of them"
            )
        if (
            not is_number(area)
            or area is None
            or area < 0
            or max(map(abs, (*points, *box))) > 1 << 20
        ):
            raise DatasetError(f"{where}: area, keypoints and bbox should be numbers of pixels")
        if len(self._points) + len(points) > MOST_NUMBERS:
            raise DatasetError(
                f"{where}: there are more than {MOST_NUMBERS // 3:,} key points; use some of the "
                f"pictures"
            )
        self.owner.append(image)
        self._points.extend(points)
        self._boxes.extend(box)
        self._areas.append(area)
        self._crowds.append(entry.get("iscrowd", 0) in (1, True))

    def rows(self) -> tuple[np.ndarray, ...]:
        """Return points, boxes, areas and crowds of all persons."""
        return (
            np.array(self._points, np.float32).reshape(-1, len(self.names), 3),
            np.array(self._boxes, np.float32).reshape(-1, 4),
            np.array(self._areas, np.float64),
            np.array(self._crowds, np.uint8),
        )
