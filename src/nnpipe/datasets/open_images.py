"""Open Images V6: pictures with boxes of 600 classes, which form a hierarchy."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ConfigError, DatasetError
from nnpipe.core.evaluation import Ragged
from nnpipe.datasets._class_folders import ClassList, find_files
from nnpipe.datasets._download import RemoteFile, fetch
from nnpipe.datasets._split import TEST, TRAIN, VALIDATION
from nnpipe.datasets.boxed_images import BoxedImagesDataset, BoxListing, BoxTable
from nnpipe.datasets.image_files import SUFFIXES, decode_whole_image

_PARTS = {"train": TRAIN, "validation": VALIDATION, "test": TEST}
_CLASSES, _HIERARCHY = "class-descriptions-boxable.csv", "bbox_labels_600_hierarchy.json"
_BOX_COLUMNS = ("ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax", "IsGroupOf")
_SMALL = 16 << 20  # bytes of the lists of classes
_PICTURE = 64 << 20  # bytes of a picture


class OpenImagesDataset(BoxedImagesDataset):
    """Open Images V6: pictures with boxes of 600 classes, which form a hierarchy.

    ``ROOT`` (or ``ROOT/annotations``) holds ``validation-annotations-bbox.csv`` and the like,
    ``class-descriptions-boxable.csv``, and perhaps ``bbox_labels_600_hierarchy.json`` and
    ``validation-annotations-human-imagelabels-boxable.csv``; ``ROOT/validation`` holds the
    pictures, ``ID.jpg``. Pictures that are there are used, or those of ``picture_list``, of which
    missing ones can be downloaded. ``validation`` is the test split where ``test`` is not used.
    """

    formerly: ClassVar[tuple[str, ...]] = ("OpenImagesDatasetV6",)
    annotations_at: ClassVar[str] = "https://storage.googleapis.com/openimages"
    pictures_at: ClassVar[str] = "https://open-images-dataset.s3.amazonaws.com"

    dataset_root: Path = argument(
        Path("data/open_images"), help="folder of the data set's files, present or to download"
    )
    parts: tuple[Literal["train", "validation", "test"], ...] = argument(
        ("validation",), help="published parts of the data set to use"
    )
    picture_list: Path | None = argument(
        None, help="text file that names pictures, one in a line: PART/ID, or ID with a single part"
    )
    hierarchy: bool = argument(
        True, help="whether a box also counts for the classes above its own, as Open Images has it"
    )
    protocol: Literal["coco", "pascal", "open_images"] = argument(
        "open_images",
        help=(
            "whose rules of matching and mAP judge the boxes: those of COCO, Pascal VOC or Open "
            "Images"
        ),
    )

    def validate(self) -> None:
        """Check that parts are named, each once."""
        if not self.parts or len(set(self.parts)) != len(self.parts):
            raise ConfigError("--parts names one part or several, each once")

    def download(self) -> None:
        """Download the annotations, some 50 MB for validation, and the pictures of
        ``picture_list``.
        """
        if self.picture_list is None:
            raise DatasetError(
                "Open Images has 1.9 million pictures: name those to download with --picture-list, "
                "PART/ID in each line"
            )
        root, at = self.dataset_root, self.annotations_at
        fetch(_make_text_file(_CLASSES, f"{at}/v5/{_CLASSES}", "/m/"), root)
        fetch(_make_text_file(_HIERARCHY, f"{at}/2018_04/{_HIERARCHY}", "{"), root)
        for part, stems in self._read_picture_list().items():
            name = (
                "oidv6-train-annotations-bbox.csv"
                if part == "train"
                else f"{part}-annotations-bbox.csv"
            )
            labels = f"{part}-annotations-human-imagelabels-boxable.csv"
            fetch(
                _make_text_file(
                    name, f"{at}/{'v6' if part == 'train' else 'v5'}/{name}", "ImageID,"
                ),
                root,
            )
            fetch(_make_text_file(labels, f"{at}/v5/{labels}", "ImageID,"), root)
            for stem in stems:
                picture = f"{self.pictures_at}/{part}/{stem}.jpg"
                fetch(
                    RemoteFile(f"{stem}.jpg", (picture,), None, check=_is_picture),
                    root / part,
                    limit=_PICTURE,
                )

    def list_files(self) -> BoxListing:
        """Return the pictures and boxes of the parts."""
        identifiers = self._read_classes()
        above = self._find_ancestors(identifiers) if self.hierarchy else {}
        listed = self._read_picture_list() if self.picture_list is not None else None
        paths: list[Path] = []
        codes: list[int] = []
        table = BoxTable()
        verified: list[list[int]] = []
        labelled = False
        for part in self.parts:
            folder = self._find_folder(part)
            stems = (
                [path.stem for path in find_files(folder, SUFFIXES)]
                if listed is None
                else listed.get(part, [])
            )
            places = {stem: len(paths) + number for number, stem in enumerate(stems)}
            paths += [folder / f"{stem}.jpg" for stem in stems]
            codes += [_PARTS[part]] * len(stems)
            _add_boxes(
                self._require_file(f"*{part}-annotations-bbox.csv"),
                places,
                identifiers,
                above,
                table,
            )
            labels = self._find(f"*{part}-annotations-human-imagelabels-boxable.csv")
            labelled |= labels is not None
            looked = (
                _read_verified_classes(labels, places, identifiers, above)
                if labels is not None
                else {}
            )
            verified += [sorted(looked.get(stem, range(len(identifiers)))) for stem in stems]
        boxes, classes, crowds, _ = table.rows(len(paths))
        if TEST not in codes:
            codes = [TEST if code == VALIDATION else code for code in codes]
        counts = np.array([len(each) for each in verified], np.int64)
        flat = np.array([label for each in verified for label in each], np.int64)
        return BoxListing(
            tuple(paths),
            boxes,
            classes,
            tuple(identifiers.values()),
            crowds,
            official=np.array(codes, np.int8),
            shares=True,
            verified=Ragged(flat, counts) if labelled else None,
        )

    def _find(self, pattern: str) -> Path | None:
        for folder in (self.dataset_root, self.dataset_root / "annotations"):
            if found := sorted(folder.glob(pattern)):
                return found[0]
        return None

    def _require_file(self, pattern: str) -> Path:
        found = self._find(pattern)
        if found is None:
            name = pattern.lstrip("*")
            raise DatasetError(
                f"{self.dataset_root / name} is not there; put it there, or add --download-dataset"
            )
        return found

    def _find_folder(self, part: str) -> Path:
        root = self.dataset_root
        for folder in (root / part, root / "images" / part, root / "img", root / "images"):
            if folder.is_dir():
                return folder
        raise DatasetError(
            f"{root / part} is no folder; it must hold pictures, named by ID as in "
            f"000a1249af2bc5f0.jpg"
        )

    def _read_picture_list(self) -> dict[str, list[str]]:
        """Return the pictures of the list by part."""
        assert self.picture_list is not None
        found: dict[str, list[str]] = {part: [] for part in self.parts}
        for line in ClassList.read(self.picture_list).names:
            part, slash, stem = line.rpartition("/")
            if not slash and len(self.parts) == 1:
                part = self.parts[0]
            if part not in found or not stem.isalnum() or len(stem) > 64:
                raise DatasetError(
                    f"{self.picture_list}: {line[:60]!r} is no PART/ID of the parts "
                    f"{', '.join(self.parts)}, "
                    "which --parts names"
                )
            found[part].append(stem)
        if any(len(set(stems)) != len(stems) for stems in found.values()):
            raise DatasetError(f"{self.picture_list} names a picture twice")
        return found

    def _read_classes(self) -> dict[str, str]:
        """Return the names of the classes by their identifiers, in the published order."""
        path = self._require_file(_CLASSES)
        rows = [row for row in csv.reader(ClassList.read(path).names) if row[:1] != ["LabelName"]]
        found = {row[0]: row[-1] for row in rows if len(row) == 2}
        if len(found) < len(rows) or not found or len(set(found.values())) != len(found):
            raise DatasetError(
                f"{path} should hold an identifier and a name in each line, all of them different"
            )
        return found

    def _find_ancestors(self, identifiers: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Return the classes above each class, by identifier."""
        path = self._require_file(_HIERARCHY)
        try:
            if path.stat().st_size > _SMALL:
                raise DatasetError(f"{path} is too large for the hierarchy of classes")
            tree: Any = parse_json(path.read_text("utf-8-sig"))
        except (OSError, ValueError, RecursionError) as error:
            raise DatasetError(f"{path} cannot be read: {str(error)[:120]}") from None
        found: dict[str, set[str]] = {}
        waiting: list[tuple[Any, tuple[str, ...]]] = [(tree, ())]
        while waiting:
            node, higher = waiting.pop()
            below = node.get("Subcategory", []) if isinstance(node, dict) else None
            label = node.get("LabelName") if isinstance(node, dict) else None
            if not isinstance(below, list) or not isinstance(label, str) or len(higher) > 16:
                raise DatasetError(
                    f"{path} should hold LabelName and Subcategory, nested as the classes are"
                )
            found.setdefault(label, set()).update(higher)
            own = (*higher, label) if label in identifiers else higher
            waiting += [(child, own) for child in below]
        return {label: tuple(sorted(higher)) for label, higher in found.items()}

    def origin(self) -> Mapping[str, Any]:
        """Return the source and licence of Open Images."""
        return {
            "name": "Open Images V6 (Kuznetsova and others 2020)",
            "url": "https://storage.googleapis.com/openimages/web/index.html",
            "licence": "annotations CC BY 4.0, pictures CC BY 2.0 by their authors",
        }


def _add_boxes(
    path: Path,
    places: Mapping[str, int],
    identifiers: Mapping[str, str],
    above: Mapping[str, tuple[str, ...]],
    table: BoxTable,
) -> None:
    numbers = {identifier: number for number, identifier in enumerate(identifiers)}
    for line, row in _iter_rows(path, _BOX_COLUMNS):
        if row["ImageID"] not in places:
            continue
        where = f"{path}, line {line}"
        if row["LabelName"] not in numbers:
            raise DatasetError(f"{where}: {row['LabelName'][:40]!r} is no class of {_CLASSES}")
        try:
            left, right, top, bottom = (
                float(row[side]) for side in ("XMin", "XMax", "YMin", "YMax")
            )
        except ValueError:
            raise DatasetError(f"{where}: a side of the box is no number") from None
        if not (0 <= left <= right <= 1 and 0 <= top <= bottom <= 1):
            raise DatasetError(
                f"{where}: the sides of a box should be shares of the picture, from 0 to 1"
            )
        for label in (row["LabelName"], *above.get(row["LabelName"], ())):
            box = (left, top, right - left, bottom - top)
            table.add(
                places[row["ImageID"]], numbers[label], box, where, crowd=row["IsGroupOf"] == "1"
            )


def _read_verified_classes(
    path: Path,
    places: Mapping[str, int],
    identifiers: Mapping[str, str],
    above: Mapping[str, tuple[str, ...]],
) -> dict[str, set[int]]:
    """Return the classes that people looked for in each picture.

    Where a class is, so are those above it, and where it is not, those below are not either.
    """
    numbers = {identifier: number for number, identifier in enumerate(identifiers)}
    below: dict[str, set[str]] = {}
    for label, higher in above.items():
        for each in higher:
            below.setdefault(each, set()).add(label)
    found: dict[str, set[int]] = {stem: set() for stem in places}
    for _, row in _iter_rows(path, ("ImageID", "LabelName", "Confidence")):
        if row["ImageID"] in found:
            label = row["LabelName"]
            others = (
                above.get(label, ())
                if row["Confidence"].strip().startswith("1")
                else below.get(label, ())
            )
            found[row["ImageID"]] |= {numbers[each] for each in (label, *others) if each in numbers}
    return found


def _iter_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line number and the named columns of each row of a CSV file."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            if missing := [column for column in columns if column not in header]:
                raise DatasetError(f"{path} has no column {missing[0]}; get it again")
            wanted = [(column, header.index(column)) for column in columns]
            for row in reader:
                if len(row) != len(header):
                    raise DatasetError(
                        f"{path}, line {reader.line_num}: {len(row)} columns instead of "
                        f"{len(header)}"
                    )
                yield reader.line_num, {column: row[place] for column, place in wanted}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from None


def _make_text_file(name: str, url: str, start: str) -> RemoteFile:
    """Return a text file whose checksum is not published, known by how it begins."""

    def has_expected_start(path: Path) -> bool:
        with open(path, "rb") as file:
            return file.read(len(start)) == start.encode()

    return RemoteFile(name, (url,), None, check=has_expected_start)


def _is_picture(path: Path) -> bool:
    try:
        decode_whole_image(path, 3)
    except DatasetError:
        return False
    return True
