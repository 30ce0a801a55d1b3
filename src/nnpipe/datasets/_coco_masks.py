"""Masks as COCO's annotations state them: polygons, or run lengths in numbers or in compressed text."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import DatasetError
from nnpipe.core.ragged import Ragged
from nnpipe.datasets._coco_content import whole_number
from nnpipe.tasks.instance_segmentation.polygons import runs_of_polygons
from nnpipe.tasks.instance_segmentation.runs import Integers, runs_of_text, united

_MOST_NUMBERS = 1 << 20  # of a mask: half a million corners, or a million runs
_MOST_POLYGONS = 10_000  # of a mask
_MOST_IN_ALL = 1 << 27  # numbers: 1 GiB
_FARTHEST = 1 << 20  # pixels
_NUMBERS = {int, float}


class MaskTable:
    """Masks in the order in which they were added, as they are stated; pixels are found when they are asked for."""

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
            size, parts = _size_of(stated, where), [_runs_of(stated, where)]
            if int(parts[0].min(initial=0)) < 0 or int(parts[0].sum()) != size[0] * size[1]:
                raise DatasetError(
                    f"{where}: its run lengths add up to {int(parts[0].sum())} pixels, and its size of {size[1]} x "
                    f"{size[0]} has {size[0] * size[1]}"
                )
        elif isinstance(stated, list) and stated:
            size, parts = (0, 0), _polygons_of(stated, where)
        else:
            raise DatasetError(
                f"{where} has no mask: segmentation should be polygons or run lengths, not {str(stated)[:40]}; boxes "
                "alone are read by COCODataset"
            )
        if len(self._numbers) + sum(map(len, parts)) > _MOST_IN_ALL:
            raise DatasetError(
                f"{where}: there are more than {_MOST_IN_ALL:,} numbers of masks; use some of the pictures"
            )
        for part in parts:
            self._numbers.frombytes(np.ascontiguousarray(part, np.float64).tobytes())
            self._lengths.append(len(part))
        self._parts.append(len(parts))
        self._sizes.extend(size)

    def frozen(self) -> Masks:
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
        Height and width of the pictures of masks that are run lengths; 0 for polygons; ``(masks, 2)``.
    """

    def __init__(self, parts: Ragged, first: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> None:
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
            return united([own[0].astype(np.int64)], height * width)
        return runs_of_polygons([each.reshape(-1, 2) for each in own], height, width)


def _polygons_of(stated: list[Any], where: str) -> list[npt.NDArray[np.float64]]:
    if len(stated) > _MOST_POLYGONS:
        raise DatasetError(f"{where}: a mask has {len(stated):,} polygons; at most {_MOST_POLYGONS:,} are read")
    found, total = [], 0
    for each in stated:
        if not isinstance(each, list) or len(each) < 6 or len(each) % 2:
            raise DatasetError(f"{where}: a polygon is x and y of at least three points, not {str(each)[:40]}")
        total += len(each)
        if total > _MOST_NUMBERS:
            raise DatasetError(f"{where}: the polygons of a mask have more than {_MOST_NUMBERS // 2:,} points")
        # Comparisons come before the conversion, which has no numbers for integers of very many digits.
        if not set(map(type, each)) <= _NUMBERS or max(each) > _FARTHEST or min(each) < -_FARTHEST:
            raise DatasetError(f"{where}: a polygon's coordinates should be numbers of pixels, not {str(each)[:40]}")
        found.append(np.array(each, np.float64))
    return found


def _runs_of(stated: Mapping[str, Any], where: str) -> Integers:
    counts = stated.get("counts")
    if not isinstance(counts, (str, list)) or not counts:
        raise DatasetError(f"{where}: counts of a mask should be run lengths or their compressed text")
    if len(counts) > _MOST_NUMBERS:
        raise DatasetError(f"{where}: a mask has more than {_MOST_NUMBERS:,} run lengths")
    if isinstance(counts, str):
        try:
            return runs_of_text(counts.encode("ascii"))
        except ValueError as error:  # Unicode's errors are of this kind
            told = "it holds characters that are not used in it" if isinstance(error, UnicodeError) else error
            raise DatasetError(f"{where}: counts are no compressed run lengths: {told}") from None
    if set(map(type, counts)) != {int} or max(counts) > 1 << 32 or min(counts) < 0:
        raise DatasetError(f"{where}: run lengths should be whole numbers from 0, not {str(counts)[:40]}")
    return np.array(counts, np.int64)


def _size_of(stated: Mapping[str, Any], where: str) -> tuple[int, int]:
    size = stated.get("size")
    if isinstance(size, list) and len(size) == 2:
        height, width = (whole_number({"side": side}, "side") for side in size)
        if height is not None and width is not None and 0 < height <= 1 << 16 and 0 < width <= 1 << 16:
            return height, width
    raise DatasetError(f"{where}: size of a mask should be its picture's height and width, not {str(size)[:40]}")
