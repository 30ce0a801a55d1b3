"""The base of data sets of pictures with masks."""

from __future__ import annotations

import csv
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.arguments import argument
from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import DatasetError
from nnpipe.core.image_conversion import resize_byte_images
from nnpipe.core.messages import suggest_name
from nnpipe.core.preprocessing import IMAGE_SIZE
from nnpipe.core.tensors import Batch, DatasetSpec, TensorSpec
from nnpipe.datasets.image_files import (
    ListedPicturesDataset,
    decode_mask_values,
    decode_whole_image,
    stack_padded_images,
)
from nnpipe.datasets.in_memory import check_indices
from nnpipe.tasks.frames import create_frames, find_pixel_cells
from nnpipe.tasks.segmentation.task import Segmentation

IGNORED = -1
"""The class of pixels that do not count."""
_UNKNOWN = -2
_OTHER, _NONE = "other", ("ignored", "")
_LARGEST = 1 << 20  # bytes of a table
_MOST = 1 << 16  # entries


@dataclass(frozen=True, eq=False)
class PixelClasses:
    """The class of each pixel value, and the names of the classes.

    Attributes
    ----------
    names
        Class names in order of their numbers.
    values
        Pixel values, ascending; ``red << 16 | green << 8 | blue`` if ``coloured``.
    classes
        Their classes.
    other
        The class of all other values; ``None`` if there must be none.
    coloured
        Whether masks are read as colours.
    """

    names: tuple[str, ...]
    values: npt.NDArray[np.int64]
    classes: npt.NDArray[np.int64]
    other: int | None
    coloured: bool = False

    @classmethod
    def from_names(cls, names: Sequence[str], ignored: Iterable[int] = ()) -> PixelClasses:
        """Return that pixels are class numbers; those that are ignored need not be."""
        table = {number: number for number in range(len(names))} | dict.fromkeys(ignored, IGNORED)
        return cls._create(tuple(names), table, None)

    @classmethod
    def from_table(
        cls,
        entries: Iterable[tuple[str, str]],
        names: Sequence[str] | None,
        ignored: Iterable[int],
        where: str,
    ) -> PixelClasses:
        """Return the classes that a table of values and classes states.

        Parameters
        ----------
        entries
            A value, ``#rrggbb``, or ``other``; and the name or number of a class, or ``ignored``.
        names
            Class names in order of their numbers; ``None``: the names in the order of the table.
        ignored
            Further values that do not count.
        where
            The place of the table, in messages.

        Raises
        ------
        DatasetError
            If an entry is none, or names no class.
        """
        pairs = [(key.strip(), called.strip()) for key, called in entries]
        if not pairs or len(pairs) > _MOST:
            raise DatasetError(
                f"{where} should say of 1 to {_MOST:,} pixel values which class they are"
            )
        known = _list_class_names(pairs) if names is None else tuple(names)
        numbers = {name: number for number, name in enumerate(known)}
        table = dict.fromkeys(ignored, IGNORED)
        other: int | None = None
        coloured = any(key.startswith("#") for key, _ in pairs)
        for key, called in pairs:
            number = _parse_class(called, numbers, where)
            if key == _OTHER:
                other = number
            else:
                table[_parse_value(key, coloured, where)] = number
        return cls._create(known, table, other, coloured)

    @classmethod
    def _create(
        cls,
        names: tuple[str, ...],
        table: Mapping[int, int],
        other: int | None,
        coloured: bool = False,
    ) -> PixelClasses:
        if len(set(names)) != len(names):
            raise DatasetError(
                f"the class {next(n for n in names if names.count(n) > 1)!r} is listed twice"
            )
        values = np.array(sorted(table), np.int64)
        return cls(
            names,
            values,
            np.array([table[int(value)] for value in values], np.int64),
            other,
            coloured,
        )

    def apply(self, pixels: npt.NDArray[np.integer], path: Path) -> npt.NDArray[np.int32]:
        """Return the class of each pixel of a mask, :data:`IGNORED` for those that do not count.

        Raises
        ------
        DatasetError
            If the mask holds a value without a class; the message names the file and the value.
        """
        if pixels.dtype.itemsize <= 2:
            table = self._map_values(np.arange(1 << 8 * pixels.dtype.itemsize))
            found: npt.NDArray[np.int32] = table[pixels]
        else:
            found = self._map_values(pixels)
        if (found == _UNKNOWN).any():
            value = int(pixels[found == _UNKNOWN][0])
            shown = f"#{value:06x}" if self.coloured else str(value)
            raise DatasetError(
                f"{path} holds pixels of {shown}, which is no class: say what they are with "
                f"--pixel-classes {shown}=CLASS or {shown}=ignored, or with other=... of all that "
                f"are not named"
            )
        return found

    def _map_values(self, values: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        places = np.minimum(np.searchsorted(self.values, values), len(self.values) - 1)
        known = self.values[places] == values
        found = np.where(
            known, self.classes[places], _UNKNOWN if self.other is None else self.other
        )
        return np.asarray(found, np.int32)


def read_table(path: Path) -> list[tuple[str, str]]:
    """Return the entries of a JSON file ``{"VALUE": CLASS}``, or of a CSV file with the columns
    value and class.

    Raises
    ------
    DatasetError
        If there is no such file, or it holds something else.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise DatasetError(f"{path} is too large for a table of pixel values")
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise DatasetError(
            f"{path} is not there; it should say which pixel values are which class"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from None
    if path.suffix.lower() != ".json":
        rows = [row for row in csv.reader(text.splitlines()) if row]
        if any(len(row) != 2 for row in rows):
            raise DatasetError(f"{path} should have two columns: a pixel value, and its class")
        first = rows[0][0].strip() if rows else ""
        heading = not (first.isdigit() or first.startswith("#") or first == _OTHER)
        return [(row[0], row[1]) for row in rows[heading:]]
    try:
        found = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is no JSON: {str(error)[:80]}") from None
    if not isinstance(found, dict) or not all(
        isinstance(each, (str, int, type(None))) for each in found.values()
    ):
        raise DatasetError(
            f"{path} should be an object with a class, or null, for each pixel value"
        )
    return [(key, "ignored" if called is None else str(called)) for key, called in found.items()]


def _list_class_names(pairs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the classes that a table names, in its order; if it has numbers, these are named by
    themselves.
    """
    called = [name for _, name in pairs if name not in _NONE]
    if called and all(name.isdigit() for name in called):
        most = max(int(name[:9]) for name in called)
        return tuple(f"class {number}" for number in range(min(most, _MOST) + 1))
    return tuple(dict.fromkeys(called))


def _parse_class(called: str, numbers: Mapping[str, int], where: str) -> int:
    if called in _NONE:
        return IGNORED
    if called in numbers:
        return numbers[called]
    if called.isdigit() and len(called) < 10 and int(called) < len(numbers):
        return int(called)
    raise DatasetError(
        f"{where}: {called[:60]!r} is none of the {len(numbers)} "
        f"classes{suggest_name(called, numbers)}"
    )


def _parse_value(key: str, coloured: bool, where: str) -> int:
    digits = key.removeprefix("#") if coloured else key
    try:
        if coloured and (not key.startswith("#") or len(digits) != 6):
            raise ValueError
        value = int(digits, 16 if coloured else 10)
        if not 0 <= value < 1 << 32:
            raise ValueError
    except ValueError:
        kind = "a colour such as #ff8000" if coloured else "a pixel value"
        raise DatasetError(f"{where}: {key[:40]!r} should be {kind}, or {_OTHER}") from None
    return value


@dataclass(frozen=True, eq=False)
class MaskListing:
    """Pictures with their masks.

    Attributes
    ----------
    paths, masks
        One image file each per sample.
    official
        ``(n,)`` published split: 0 for training, 1 for validation and 2 for test samples; ``None``
        without one.
    """

    paths: tuple[Path, ...]
    masks: tuple[Path, ...]
    official: npt.NDArray[np.integer] | None = None


class SegmentedImagesDataset(ListedPicturesDataset[MaskListing]):
    """Base of data sets of pictures with masks, which are decoded when they are read.

    A subclass writes :meth:`list_files` and :meth:`classes`.  Masks of a batch are padded with -1
    as its pictures are with black.  With ``side_lengths``, pictures (bilinear) and masks (nearest
    neighbour) are resized here instead, as a training needs it, and pixels of that size are
    compared.
    """

    abstract: ClassVar[bool] = True
    side_lengths: tuple[int, int] | None = argument(
        None,
        help=(
            "height and width to which pictures and masks are resized; by default they keep theirs"
        ),
        minimum=1,
    )
    contour_width: float = argument(
        0.02,
        help=(
            "distance from a contour up to which the boundary IoU counts pixels, in shares of the "
            "diagonal"
        ),
        minimum=0.0,
        maximum=1.0,
    )

    @abstractmethod
    def classes(self) -> PixelClasses:
        """Return which pixel values are which class.

        Raises
        ------
        DatasetError
            If a file of classes is missing or damaged; the message names it.
        """

    @cached_property
    def classes_of_pixels(self) -> PixelClasses:
        """The classes of pixels, found at the first use."""
        return self.classes()

    @property
    def task(self) -> Segmentation:
        """Segmentation; here, pixels that do not count are negative, so that each number may be
        a class.
        """
        return Segmentation(ignored=IGNORED, contour_width=self.contour_width)

    def prepare(self) -> None:
        """Download the files if asked for, then list them, and find the classes."""
        super().prepare()
        _ = self.classes_of_pixels

    @property
    def spec(self) -> DatasetSpec:
        """Pictures, and the class of each pixel."""
        height, width = self.side_lengths or (None, None)
        return DatasetSpec(
            Segmentation.name,
            inputs=(TensorSpec("image", (None, height, width, 3), "uint8"),)
            if self.side_lengths
            else self.pictures,
            targets=(
                TensorSpec("mask", (None, height, width), "int64"),
                TensorSpec("size", (None, 2), "int32"),
            ),
            class_names=self.classes_of_pixels.names,
        )

    @property
    def strata(self) -> npt.NDArray[np.int64]:
        """All pictures are of one stratum: their masks are not opened for the split."""
        return np.zeros(len(self), np.int64)

    def read(self, indices: npt.NDArray[np.integer]) -> tuple[Batch, Batch]:
        """Return some samples: decoded pictures and the class of each of their pixels."""
        pairs = [self._read_pair(int(index)) for index in check_indices(indices, len(self))]
        canvas, sizes = stack_padded_images([image for image, _ in pairs])
        if not pairs and self.side_lengths:
            canvas = np.zeros((0, *self.side_lengths, 3), np.uint8)
        masks = np.full(canvas.shape[:3], IGNORED, np.int64)
        for place, (_, mask) in zip(masks, pairs, strict=True):
            place[: mask.shape[0], : mask.shape[1]] = mask
        inputs = {"image": canvas} | ({} if self.side_lengths else {IMAGE_SIZE: sizes})
        return inputs, {"mask": masks, "size": sizes.copy()}

    def _read_pair(self, index: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
        """Return a decoded picture, ``(height, width, 3)``, and its mask, ``(height, width)``."""
        path = self.files.masks[index]
        pixels = decode_mask_values(path, coloured=self.classes_of_pixels.coloured)
        rows, columns = pixels.shape
        image = decode_whole_image(self.files.paths[index], 3, (rows, columns))
        if self.side_lengths is not None:
            height, width = self.side_lengths
            image = resize_byte_images(image[None], height, width)[0]
            # Each pixel of the small mask is the one at its centre, as Pillow's nearest neighbour.
            cells = find_pixel_cells(
                create_frames(1, 1, 1, "squeeze")[0], np.array([height, width]), (rows, columns)
            )
            pixels = pixels[cells[0][:, None], cells[1]]
        return image, self.classes_of_pixels.apply(pixels, path)
