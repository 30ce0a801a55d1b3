"""The scores of a picture's pixels in a few numbers.

A picture has a million pixels, and its metrics follow from how many good ones and how many bad ones have each score.
So a picture is kept as a list of levels: a score, and the pixels with it.  Up to 1,024 different scores, this is exact.
Of more, neighbouring ones are put together, more finely where good pixels have the greatest scores, since the overlap
of regions is looked at where few good pixels are alarms, and finely among the bad pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MOST_LEVELS = 1024
_PARTS = 256


@dataclass(frozen=True, eq=False)
class Levels:
    """The pixels of each score, from the greatest score down; ``(levels,)`` each.

    Attributes
    ----------
    score
        The scores, float32.
    good, bad
        How many pixels without and with a defect have this score.
    covered
        Sum over these bad pixels of 1 by the size of their region.
    """

    score: npt.NDArray[np.float32]
    good: Floats
    bad: Floats
    covered: Floats

    @classmethod
    def of_pixels(
        cls, scores: npt.NDArray[np.floating], regions: npt.NDArray[np.int64], counted: npt.NDArray[np.bool_]
    ) -> Levels:
        """Return the levels of a picture.

        Parameters
        ----------
        scores
            ``(height, width)``; none is NaN.
        regions
            The number of each pixel's region from 1 on, or 0; ``(height, width)``.
        counted
            Which pixels count; ``(height, width)``.
        """
        given = scores[counted].astype(np.float32)
        owner = regions[counted]
        sizes = np.bincount(owner)
        bad = owner > 0
        values, place = np.unique(-given, return_inverse=True)
        place, count = place.reshape(-1), len(values)
        shares = np.where(bad, 1 / np.maximum(sizes[owner], 1), 0)
        parts = [np.bincount(place, part, count).astype(np.float64) for part in (~bad, bad, shares)]
        score = -values
        if count > MOST_LEVELS:
            first = starts_of_groups(parts[0], parts[1])
            parts = [np.add.reduceat(part, first) for part in parts]
            score = score[(first + np.append(first[1:], count)) // 2]
        return cls(score, *parts)


def starts_of_groups(good: Floats, bad: Floats, parts: int = _PARTS) -> npt.NDArray[np.int64]:
    """Return the first level of each of at most ``3 * parts`` groups.

    Parameters
    ----------
    good, bad
        The numbers of pixels of each level, from the greatest score down; ``(levels,)``.
    parts
        The number of equal parts of good pixels and of bad ones, and of parts that grow by a factor from the top.
    """
    found = [np.zeros(1, np.int64)]
    for pixels, grows in ((good, True), (good, False), (bad, False)):
        total = float(pixels.sum())
        if total > 0:
            wanted = np.geomspace(1, total, parts) if grows else np.linspace(0, total, parts + 1)[1:]
            # Every second of these pixels ends its group, and the others begin theirs.  Pixels of a group count as
            # equal, so that bad ones that are always the last of their group would seem better than they are.
            found.append(np.searchsorted(np.cumsum(pixels), wanted) + np.arange(len(wanted)) % 2)
    first = np.unique(np.concatenate(found))
    return first[first < len(good)].astype(np.int64)
