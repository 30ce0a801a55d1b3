"""Boxes that a detector found elsewhere, to be judged."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.errors import DatasetError
from nnpipe.core.evaluation import Ragged
from nnpipe.core.tensors import Batch, DatasetSpec, TensorSpec
from nnpipe.datasets._json_arrays import iter_array_elements
from nnpipe.datasets._split import TEST
from nnpipe.datasets.boxed_images import BoxTable
from nnpipe.datasets.coco import COCOBoxes, get_whole_number, is_number
from nnpipe.datasets.image_files import read_image_size
from nnpipe.datasets.in_memory import InMemoryDataset, Samples
from nnpipe.datasets.yolo_folder import YOLOFolderDataset
from nnpipe.tasks.detection.task import Detection

_MOST_BOXES = 1 << 24
_MOST_PLACES = 1 << 23  # pictures times the greatest number of boxes in one: 400 MB


class COCOResultsDataset(InMemoryDataset):
    """Boxes that a detector found, to be judged by ``nnpipe judge COCOResultsDataset``.

    The file has the form of COCO's results, and may be compressed (``.json.gz``): an array of
    objects with ``image_id``, ``category_id``, ``bbox`` (left, top, width, height, in pixels) and
    ``score``.  The truth is a file of annotations in COCO's form, whose numbers of images and
    categories are used; or a folder in YOLO's form, where an image is known by its file's name,
    with or without the ending, or by its place in the sorted list, from 0, and a category by its
    class number.  The pictures themselves are not needed beside COCO's file.
    """

    dataset_root: Path = argument(
        Path("results.json"), help="JSON file of the boxes that were found"
    )
    truth: Path = argument(
        Path("annotations.json"),
        help="the true boxes: a JSON file in COCO's form, or a folder in YOLO's form",
    )
    class_list: Path | None = argument(
        None,
        help=(
            "text file with the classes of a folder in YOLO's form, one per line in order of number"
        ),
    )
    protocol: Literal["coco", "pascal", "open_images"] = argument(
        "coco",
        help=(
            "whose rules of matching and mAP judge the boxes: those of COCO, Pascal VOC or Open "
            "Images"
        ),
    )

    @property
    def task(self) -> Detection:
        """Detection, by the rules of ``protocol``."""
        return Detection(protocol=self.protocol)

    @property
    def spec(self) -> DatasetSpec:
        """Boxes that were found and true ones, padded to the greatest number in a picture."""
        inputs, targets = (
            tuple(
                TensorSpec(name, (None, *values.shape[1:]), values.dtype.name)
                for name, values in batch.items()
            )
            for batch in (self.samples.inputs, self.samples.targets)
        )
        return DatasetSpec(Detection.name, inputs, targets, self.samples.class_names)

    def load(self) -> Samples:
        """Return the boxes that were found, and the true ones."""
        true = (
            _read_truth_folder(self.truth, self.class_list)
            if self.truth.is_dir()
            else _read_truth_file(self.truth)
        )
        boxes, scores, labels = self._read_results(true)
        inputs = {
            "found_boxes": _pad_rows(boxes, 0),
            "scores": _pad_rows(scores, 0),
            "found_class": _pad_rows(labels, -1),
        }
        targets = {
            "boxes": _pad_rows(true.boxes, 0),
            "class": _pad_rows(true.labels, -1),
            "crowd": _pad_rows(true.crowds, 0),
            "area": _pad_rows(true.areas, 0),
        }
        return Samples(inputs, targets, true.class_names, np.full(len(true.boxes), TEST, np.int8))

    def postprocess(self, predictions: Batch) -> Batch:
        """Return what was found by the names that the task knows."""
        return {name.removeprefix("found_"): values for name, values in predictions.items()}

    @property
    def strata(self) -> npt.NDArray[np.int64]:
        """The number of true boxes."""
        labels = np.asarray(self.samples.targets["class"], np.int64)
        return np.asarray(np.count_nonzero(labels >= 0, axis=1), np.int64)

    def _read_results(self, true: _Truth) -> tuple[Ragged, Ragged, Ragged]:
        """Return boxes, scores and classes by picture."""
        file = self.dataset_root
        named: dict[str, int] = {}
        picture, label, numbers, score = array("q"), array("q"), array("d"), array("d")
        for row, each in enumerate(iter_array_elements(file), 1):
            entry = each if isinstance(each, dict) else {}
            where, box, certain = f"{file}, box {row:,}", entry.get("bbox"), entry.get("score")
            image, category = entry.get("image_id"), get_whole_number(entry, "category_id")
            if (
                not isinstance(image, (int, str))
                or category is None
                or category not in true.categories
            ):
                raise DatasetError(
                    f"{where}: it has the image_id of a picture and a category_id of the truth, "
                    f"not {str(each)[:80]}"
                )
            if (
                not isinstance(box, list)
                or len(box) != 4
                or not all(map(is_number, box))
                or min(box[2:]) < 0
            ):
                raise DatasetError(
                    f"{where}: bbox should be four numbers, its size not negative; not "
                    f"{str(box)[:60]}"
                )
            if certain is None or not is_number(certain):
                raise DatasetError(f"{where}: score should be a number, not {str(certain)[:60]}")
            if row > _MOST_BOXES:
                raise DatasetError(
                    f"{file} holds more than {_MOST_BOXES:,} boxes; leave out those with least "
                    f"scores"
                )
            picture.append(named.setdefault(str(image), len(named)))
            if len(named) > len(true.boxes):
                raise DatasetError(f"{where}: {file} has boxes in more pictures than {self.truth}")
            label.append(true.categories[category])
            numbers.extend(map(float, box))
            score.append(float(certain))
        owner = _find_places(named, true, self)[np.array(picture, np.int64)]
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=len(true.boxes)).astype(np.int64)
        columns = (
            np.array(numbers, np.float64).reshape(-1, 4),
            np.array(score, np.float64),
            np.array(label, np.int64),
        )
        boxes, scores, labels = (Ragged(column[order], counts) for column in columns)
        return boxes, scores, labels


@dataclass(frozen=True, eq=False)
class _Truth:
    """The true boxes, and what pictures and classes may be called: each of some tables of places
    is tried for all.
    """

    boxes: Ragged
    labels: Ragged
    crowds: Ragged
    areas: Ragged
    class_names: tuple[str, ...]
    categories: Mapping[int, int]
    pictures: tuple[Mapping[str, int], ...]


def _read_truth_file(file: Path) -> _Truth:
    found = COCOBoxes(file)
    places = {image: place for place, image in enumerate(found.images)}
    numbers = {category: number for number, category in enumerate(sorted(found.categories))}
    table = BoxTable()
    table.extend(found.table, places, numbers, str(file))
    names = tuple(found.categories[category] for category in numbers)
    return _Truth(
        *table.rows(len(places)),
        names,
        numbers,
        ({str(image): place for image, place in places.items()},),
    )


def _read_truth_folder(folder: Path, class_list: Path | None) -> _Truth:
    data = YOLOFolderDataset(dataset_root=folder, class_list=class_list)
    data.prepare()
    found = data.files
    sizes = np.array([read_image_size(path) for path in found.paths], np.float64)
    boxes = np.asarray(found.boxes.values, np.float64) * sizes[found.boxes.owners][:, [1, 0, 1, 0]]
    named: dict[str, int] = {}
    for place, path in enumerate(found.paths):
        stem = path.stem
        named |= dict.fromkeys(
            (path.name, stem, str(int(stem)) if stem.isdecimal() else stem), place
        )
    places = {str(place): place for place in range(len(found.paths))}
    return _Truth(
        Ragged(boxes, found.boxes.counts),
        found.labels,
        found.crowds,
        Ragged(boxes[:, 2] * boxes[:, 3], found.boxes.counts),
        found.class_names,
        dict(enumerate(range(len(found.class_names)))),
        (named, places),
    )


def _find_places(
    named: Mapping[str, int], true: _Truth, data: COCOResultsDataset
) -> npt.NDArray[np.int64]:
    """Return the place of each picture that results name, in the order in which they name them
    first.
    """
    for known in true.pictures:
        if all(name in known for name in named):
            return np.array([known[name] for name in named], np.int64)
    strange = next(name for name in named if name not in true.pictures[0])
    raise DatasetError(f"{data.dataset_root}: {data.truth} has no picture {strange[:80]!r}")


def _pad_rows(rows: Ragged, fill: int) -> npt.NDArray[np.generic]:
    most = int(rows.counts.max(initial=1))
    if len(rows) * most > _MOST_PLACES:
        raise DatasetError(
            f"a picture has {most:,} boxes, too many for {len(rows):,} pictures; leave out those "
            f"with least scores"
        )
    found: npt.NDArray[np.generic] = np.full(
        (len(rows), most, *rows.values.shape[1:]), fill, rows.values.dtype
    )
    found[np.arange(most) < rows.counts[:, None]] = rows.values
    return found
