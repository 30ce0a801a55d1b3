"""Pictures with a mask of each thing in COCO's form: one JSON file for all."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import DatasetError
from nnpipe.core.evaluation import Ragged
from nnpipe.core.tensors import Batch, DatasetSpec, TensorSpec
from nnpipe.datasets._split import TEST
from nnpipe.datasets.coco import COCOContent, COCOFilesDataset, get_whole_number, is_number
from nnpipe.datasets.image_files import ListedPicturesDataset
from nnpipe.datasets.in_memory import check_indices
from nnpipe.tasks.instance_segmentation.run_lengths import (
    Integers,
    compute_run_areas,
    encode_polygons,
    merge_runs,
    pad_runs,
    parse_coco_runs,
)
from nnpipe.tasks.instance_segmentation.task import InstanceSegmentation

_MOST_NUMBERS = 1 << 20  # of a mask: half a million corners, or a million runs
_MOST_POLYGONS = 10_000  # of a mask
_MOST_IN_ALL = 1 << 27  # numbers: 1 GiB
_FARTHEST = 1 << 20  # pixels
_NUMBERS = {int, float}


class MaskTable:
    """Masks in the order in which they were added, as they are stated; pixels are found when
    they are asked for.
    """

    def __init__(self) -> None:
        self._numbers, self._lengths = array("d"), array("q")
        self._parts, self._sizes = array("q"), array("q")

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, stated: object, where: str) -> None:
        """Add what ``segmentation`` of an annotation holds; ``where`` names its place in messages.

        Raises
        ------
        DatasetError
            If it is no mask, or an unreasonably large one.
        """
        parts: Sequence[npt.NDArray[Any]]
        if isinstance(stated, dict):
            size, parts = _size_of(stated, where), [_parse_runs(stated, where)]
            if int(parts[0].min(initial=0)) < 0 or int(parts[0].sum()) != size[0] * size[1]:
                raise DatasetError(
                    f"{where}: its run lengths add up to {int(parts[0].sum())} pixels, and its "
                    f"size of {size[1]} x {size[0]} has {size[0] * size[1]}"
                )
        elif isinstance(stated, list) and stated:
            size, parts = (0, 0), _parse_polygons(stated, where)
        else:
            raise DatasetError(
                f"{where} has no mask: segmentation should be polygons or run lengths, not "
                f"{str(stated)[:40]}; boxes "
                "alone are read by COCODataset"
            )
        if len(self._numbers) + sum(map(len, parts)) > _MOST_IN_ALL:
            raise DatasetError(
                f"{where}: there are more than {_MOST_IN_ALL:,} numbers of masks; use some of the "
                f"pictures"
            )
        for part in parts:
            self._numbers.frombytes(np.ascontiguousarray(part, np.float64).tobytes())
            self._lengths.append(len(part))
        self._parts.append(len(parts))
        self._sizes.extend(size)

    def freeze(self) -> Masks:
        """Return the masks that were added so far."""
        lengths = np.array(self._lengths, np.int64)
        return Masks(
            Ragged(np.frombuffer(self._numbers.tobytes(), np.float64), lengths),
            np.concatenate([[0], np.cumsum(np.array(self._parts, np.int64))]).astype(np.int64),
            np.array(self._sizes, np.int64).reshape(-1, 2),
        )


class Masks:
    """Masks by number.

    Parameters
    ----------
    parts
        The numbers of each part of a mask: x and y of a polygon's corners, or run lengths.
    first
        The first part of each mask, and the number of all parts; ``(masks + 1,)``.
    sizes
        Height and width of the pictures of masks that are run lengths; 0 for polygons; ``(masks,
        2)``.
    """

    def __init__(
        self, parts: Ragged, first: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> None:
        self.parts, self.first, self.sizes = parts, first, sizes

    def runs(self, mask: int, height: int, width: int) -> Integers:
        """Return the runs of a mask's pixels in its picture, which has this size.

        Raises
        ------
        DatasetError
            If it is unreasonably long.
        """
        places = range(int(self.first[mask]), int(self.first[mask + 1]))
        own = [self.parts[place].astype(np.float64) for place in places]
        if self.sizes[mask].any():
            return merge_runs([own[0].astype(np.int64)], height * width)
        return encode_polygons([each.reshape(-1, 2) for each in own], height, width)


def _parse_polygons(stated: list[Any], where: str) -> list[npt.NDArray[np.float64]]:
    if len(stated) > _MOST_POLYGONS:
        raise DatasetError(
            f"{where}: a mask has {len(stated):,} polygons; at most {_MOST_POLYGONS:,} are read"
        )
    found, total = [], 0
    for each in stated:
        if not isinstance(each, list) or len(each) < 6 or len(each) % 2:
            raise DatasetError(
                f"{where}: a polygon is x and y of at least three points, not {str(each)[:40]}"
            )
        total += len(each)
        if total > _MOST_NUMBERS:
            raise DatasetError(
                f"{where}: the polygons of a mask have more than {_MOST_NUMBERS // 2:,} points"
            )
        # Comparisons come before the conversion, which has no numbers for integers of very many
        # digits.
        if not set(map(type, each)) <= _NUMBERS or max(each) > _FARTHEST or min(each) < -_FARTHEST:
            raise DatasetError(
                f"{where}: a polygon's coordinates should be numbers of pixels, not "
                f"{str(each)[:40]}"
            )
        found.append(np.array(each, np.float64))
    return found


def _parse_runs(stated: Mapping[str, Any], where: str) -> Integers:
    counts = stated.get("counts")
    if not isinstance(counts, (str, list)) or not counts:
        raise DatasetError(
            f"{where}: counts of a mask should be run lengths or their compressed text"
        )
    if len(counts) > _MOST_NUMBERS:
        raise DatasetError(f"{where}: a mask has more than {_MOST_NUMBERS:,} run lengths")
    if isinstance(counts, str):
        try:
            return parse_coco_runs(counts.encode("ascii"))
        except ValueError as error:  # Unicode's errors are of this kind
            told = (
                "it holds characters that are not used in it"
                if isinstance(error, UnicodeError)
                else error
            )
            raise DatasetError(f"{where}: counts are no compressed run lengths: {told}") from None
    if set(map(type, counts)) != {int} or max(counts) > 1 << 32 or min(counts) < 0:
        raise DatasetError(
            f"{where}: run lengths should be whole numbers from 0, not {str(counts)[:40]}"
        )
    return np.array(counts, np.int64)


def _size_of(stated: Mapping[str, Any], where: str) -> tuple[int, int]:
    size = stated.get("size")
    if isinstance(size, list) and len(size) == 2:
        height, width = (get_whole_number({"side": side}, "side") for side in size)
        if (
            height is not None
            and width is not None
            and 0 < height <= 1 << 16
            and 0 < width <= 1 << 16
        ):
            return height, width
    raise DatasetError(
        f"{where}: size of a mask should be its picture's height and width, not {str(size)[:40]}"
    )


_MOST_THINGS = 10_000  # in a picture
_MOST_OF_PICTURE = 1 << 24  # runs of all its masks
_MOST_RUNS = 1 << 27  # of a batch, with its padding: 512 MiB


@dataclass(frozen=True, eq=False)
class InstanceListing:
    """Pictures with a mask of each thing.

    Attributes
    ----------
    paths
        One image file per sample.
    sizes
        Height and width of each picture that annotations state, ``(n, 2)``.
    things
        The numbers of each picture's masks, int64.
    labels, crowds
        Their classes, int64, and whether they are of many things together.
    areas
        Their areas in pixels; NaN: as many as the mask has.
    masks
        The masks of each annotation file, and the first number of each.
    class_names
        Class names in order of their numbers.
    official
        ``(n,)`` published split: 0 for training, 1 for validation and 2 for test samples; ``None``
        without one.
    """

    paths: tuple[Path, ...]
    sizes: npt.NDArray[np.int64]
    things: Ragged
    labels: Ragged
    crowds: Ragged
    areas: Ragged
    masks: tuple[tuple[int, Masks], ...]
    class_names: tuple[str, ...]
    official: npt.NDArray[np.integer] | None = None

    def runs(self, thing: int, height: int, width: int) -> Integers:
        """Return the runs of a mask; errors are those of ``Masks.runs``."""
        start, held = next(pair for pair in reversed(self.masks) if pair[0] <= thing)
        return held.runs(thing - start, height, width)


class COCOInstancesDataset(COCOFilesDataset, ListedPicturesDataset[InstanceListing]):
    """Pictures with a mask of each thing in COCO's form: COCO 2017 itself, LVIS, or your own.

    ``ROOT/annotations`` holds ``instances_val2017.json`` and the like, ``ROOT/val2017`` or
    ``ROOT/images/val2017`` the pictures.  Masks are polygons, run lengths in numbers, or COCO's
    compressed text; polygons cover the pixels that pycocotools gives them.  Files with ``train`` in
    their names are the training split, others the test split.  Classes are numbered in the order of
    their category numbers.  Crowds are kept, as COCO's metrics need them.  Masks are compared in
    pixels of the picture.
    """

    def list_files(self) -> InstanceListing:
        """Return the pictures and masks of all files."""
        paths: list[Path] = []
        sizes: list[tuple[int, int]] = []
        codes: list[int] = []
        masks: list[tuple[int, Masks]] = []
        rows: list[tuple[npt.NDArray[Any], ...]] = []
        names: tuple[str, ...] = ()
        count = 0
        for file in self.list_annotation_files():
            found = _Content(file)
            here = tuple(name for _, name in sorted(found.categories.items()))
            if names not in ((), here):
                raise DatasetError(
                    f"{file} has other categories than the files before; name one with "
                    f"--annotations"
                )
            names = here
            held, owner, *columns = found.rows()
            rows.append((len(paths) + owner, count + np.arange(len(owner)), *columns))
            masks.append((count, held))
            count += len(owner)
            paths += self.find_pictures(found)
            sizes += [size for _, size in found.images.values()]
            codes += [self.split_code(file)] * len(found.images)
        owner, *columns = (np.concatenate(part) for part in zip(*rows, strict=True))
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=len(paths)).astype(np.int64)
        things, labels, crowds, areas = (Ragged(column[order], counts) for column in columns)
        return InstanceListing(
            tuple(paths),
            np.array(sizes, np.int64).reshape(-1, 2),
            things,
            labels,
            crowds,
            areas,
            tuple(masks),
            names,
            np.array(codes, np.int8) if TEST in codes else None,
        )

    @property
    def spec(self) -> DatasetSpec:
        """Pictures of any size, their sizes, and their masks, padded to the greatest number in a
        batch.
        """
        return DatasetSpec(
            InstanceSegmentation.name,
            inputs=self.pictures,
            targets=(
                TensorSpec("runs", (None, None, None), "int32"),
                TensorSpec("class", (None, None), "int64"),
                TensorSpec("crowd", (None, None), "uint8"),
                TensorSpec("area", (None, None), "float64"),
                TensorSpec("size", (None, 2), "int32"),
            ),
            class_names=self.files.class_names,
        )

    @property
    def strata(self) -> npt.NDArray[np.int64]:
        """The class of the first thing in each picture; -1 for a picture without any."""
        labels = self.files.labels
        firsts = np.full(len(labels), -1, np.int64)
        filled = labels.counts > 0
        firsts[filled] = labels.values[labels.starts[:-1][filled]]
        return firsts

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return some samples: decoded pictures and the masks in them."""
        indices = check_indices(indices, len(self))
        found = self.files
        # Each file tells its size before masks of that size are made.
        inputs, sizes = self.decode_pictures(indices, found.sizes)
        masks = [
            self._compute_runs(int(index), *size)
            for index, size in zip(indices, sizes.tolist(), strict=True)
        ]
        most = max([1, *map(len, masks)])
        longest = max([1, *(len(runs) for own in masks for runs in own)])
        if len(masks) * most * longest > _MOST_RUNS:
            raise DatasetError(
                f"the masks of {len(masks)} pictures from {found.paths[int(indices[0])].name} on "
                f"have too many runs, up to {longest:,} each, and {most:,} in a picture; read "
                f"fewer at once with --batch-size"
            )
        truth: dict[str, npt.NDArray[np.generic]] = {
            "runs": np.zeros((len(masks), most, longest), np.int32),
            "class": np.full((len(masks), most), -1, np.int64),
            "crowd": np.zeros((len(masks), most), np.uint8),
            "area": np.zeros((len(masks), most)),
            "size": sizes.copy(),
        }
        for place, (index, own) in enumerate(zip(indices.tolist(), masks, strict=True)):
            truth["runs"][place, : len(own)] = pad_runs(own, longest)
            truth["class"][place, : len(own)] = found.labels[index]
            truth["crowd"][place, : len(own)] = found.crowds[index]
            stated = found.areas[index].astype(np.float64)
            pixels = np.array([int(compute_run_areas(runs[None])[0]) for runs in own], np.float64)
            truth["area"][place, : len(own)] = np.where(np.isnan(stated), pixels, stated)
        return inputs, truth

    def _compute_runs(self, index: int, height: int, width: int) -> list[Integers]:
        found: list[Integers] = []
        total = 0
        for thing in self.files.things[index].astype(np.int64).tolist():
            try:
                found.append(self.files.runs(thing, height, width))
            except DatasetError as error:
                raise DatasetError(f"{self.files.paths[index]}: {error}") from None
            total += len(found[-1])
            if total > _MOST_OF_PICTURE:
                raise DatasetError(
                    f"{self.files.paths[index]}: its masks have more than {_MOST_OF_PICTURE:,} runs"
                )
        return found


class _Content(COCOContent):
    """What one file says of masks."""

    def __init__(self, file: Path) -> None:
        self.masks = MaskTable()
        self._owner, self._label = array("q"), array("q")
        self._crowd, self._area = array("b"), array("d")
        self._counts: dict[int, int] = {}
        super().__init__(file)

    def add_annotation(
        self, entry: Mapping[str, Any], image: int, category: int, where: str
    ) -> None:
        """Keep a thing's mask, class and area."""
        area = entry.get("area")
        if area is not None and (not is_number(area) or area < 0):
            raise DatasetError(f"{where}: area should be a number, not {str(area)[:60]}")
        self._counts[image] = self._counts.get(image, 0) + 1
        if self._counts[image] > _MOST_THINGS:
            raise DatasetError(
                f"{where}: a picture has more than {_MOST_THINGS:,} masks; remove some of them"
            )
        self.masks.add(entry.get("segmentation"), where)
        self._owner.append(image)
        self._label.append(category)
        self._crowd.append(entry.get("iscrowd", 0) in (1, True))
        self._area.append(float("nan") if area is None else float(area))

    def rows(
        self,
    ) -> tuple[Masks, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the masks, and of each the place of its picture, its class, whether it is a crowd,
        and its area.

        Raises
        ------
        DatasetError
            If a thing is in no picture or of no category, or run lengths are for a picture of
            another size.
        """
        held = self.masks.freeze()
        owner = _find_places(np.array(self._owner, np.int64), list(self.images))
        label = _find_places(np.array(self._label, np.int64), sorted(self.categories))
        if wrong := np.flatnonzero((owner < 0) | (label < 0)).tolist():
            image, category = self._owner[wrong[0]], self._label[wrong[0]]
            raise DatasetError(
                f"{self.file}, annotation {wrong[0] + 1} of it: there is no image {image} or no "
                f"category {category}"
            )
        sizes = np.array([size for _, size in self.images.values()], np.int64).reshape(-1, 2)[owner]
        if strange := np.flatnonzero(
            held.sizes.any(axis=1) & (held.sizes != sizes).any(axis=1)
        ).tolist():
            (height, width), (rows, columns) = (
                held.sizes[strange[0]].tolist(),
                sizes[strange[0]].tolist(),
            )
            raise DatasetError(
                f"{self.file}, annotation {strange[0] + 1} of it: its run lengths are for {width} "
                f"x {height} pixels, and image {self._owner[strange[0]]} has {columns} x {rows}"
            )
        return held, owner, label, np.array(self._crowd, np.uint8), np.array(self._area, np.float64)


def _find_places(numbers: npt.NDArray[np.int64], known: list[int]) -> npt.NDArray[np.int64]:
    """Return the place of each number among those that are known; -1 if it is not one of them."""
    values = np.array(known, np.int64)
    order = np.argsort(values, kind="stable")
    if not len(values):
        return np.full(len(numbers), -1, np.int64)
    place = order[np.minimum(np.searchsorted(values[order], numbers), len(values) - 1)]
    return np.where(values[place] == numbers, place, -1)
