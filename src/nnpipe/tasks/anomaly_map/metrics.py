"""The metrics of anomaly maps, from the pixels of each score."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic
from nnpipe.tasks.anomaly.task import METRICS as OF_PICTURES
from nnpipe.tasks.anomaly.task import compute_partial_area, compute_roc_area

# The scores of a picture's pixels in a few numbers.
#
# A picture has a million pixels, and its metrics follow from how many good ones and how many bad
# ones have each score. So a picture is kept as a list of levels: a score, and the pixels with it.
# Up to 1,024 different scores, this is exact. Of more, neighbouring ones are put together, more
# finely where good pixels have the greatest scores, since the overlap of regions is looked at where
# few good pixels are alarms, and finely among the bad pixels.

MOST_LEVELS = 1024
_MOST_GROUPS = 256


@dataclass(frozen=True, eq=False)
class ScoreLevels:
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
    def from_pixels(
        cls,
        scores: npt.NDArray[np.floating],
        regions: npt.NDArray[np.int64],
        counted: npt.NDArray[np.bool_],
    ) -> ScoreLevels:
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
            first = find_group_starts(parts[0], parts[1])
            parts = [np.add.reduceat(part, first) for part in parts]
            score = score[(first + np.append(first[1:], count)) // 2]
        return cls(score, *parts)


def find_group_starts(
    good: Floats, bad: Floats, parts: int = _MOST_GROUPS
) -> npt.NDArray[np.int64]:
    """Return the first level of each of at most ``3 * parts`` groups.

    Parameters
    ----------
    good, bad
        The numbers of pixels of each level, from the greatest score down; ``(levels,)``.
    parts
        The number of equal parts of good pixels and of bad ones, and of parts that grow by a factor
        from the top.
    """
    found = [np.zeros(1, np.int64)]
    for pixels, grows in ((good, True), (good, False), (bad, False)):
        total = float(pixels.sum())
        if total > 0:
            wanted = (
                np.geomspace(1, total, parts) if grows else np.linspace(0, total, parts + 1)[1:]
            )
            # Every second of these pixels ends its group, and the others begin theirs.  Pixels of a
            # group count as equal, so that bad ones that are always the last of their group would
            # seem better than they are.
            found.append(np.searchsorted(np.cumsum(pixels), wanted) + np.arange(len(wanted)) % 2)
    first = np.unique(np.concatenate(found))
    return first[first < len(good)].astype(np.int64)


MAX_FPR = 0.3
"""The greatest share of good pixels that are alarms at which the overlap of regions is looked
at.
"""

LOOKED_AT = 0.05
"""The greatest share of good pixels that are alarms, at the threshold with which single pictures
are looked at.
"""

_MOST_SCORES = 1 << 18  # of all pictures together, before neighbouring ones are put together
_PARTS = 1024
_DENSE = 1 << 24  # numbers, 128 MiB


@dataclass(frozen=True, eq=False)
class PixelCurve:
    """The pixels of all pictures with each score, from the greatest down; ``(scores,)`` each.

    Attributes
    ----------
    good, bad
        How many good and bad pixels have the score.
    covered
        What these add to the mean share of a region that has at least this score.
    """

    good: Floats
    bad: Floats
    covered: Floats

    def compute_pixel_auc(self) -> float:
        """Return the area under the ROC curve of pixels."""
        return compute_roc_area(self.good, self.bad)

    def compute_au_pro(self) -> float:
        """Return the normalised area under the curve of the per-region overlap."""
        if self.good.sum() <= 0 or not self.bad.sum() > 0:
            return float("nan")
        return compute_partial_area(MAX_FPR, self.good / self.good.sum(), self.covered) / MAX_FPR


def prepare_pixel_curve(found: Evaluation) -> Callable[[Floats], PixelCurve]:
    """Return the function that computes the curve from weights of pictures."""
    return _prepare_pixel_curve(
        *(found.ragged[name] for name in ("level", "good", "bad", "covered", "regions"))
    )


def compute_defect_recall(found: Evaluation, alarms: float) -> tuple[Floats, Floats]:
    """Return how well the defects of each picture are found, at one threshold for all pictures.

    Parameters
    ----------
    found
        Judged maps.
    alarms
        The greatest share of all good pixels that reach the threshold, from 0 to 1.

    Returns
    -------
    tuple of arrays
        The mean share of a defect that reaches it, NaN in pictures without defects; and the share
        of good pixels that do; ``(pictures,)`` each.
    """
    level, regions = found.ragged["level"], found.ragged["regions"]
    values, good = (each.values.astype(np.float64) for each in (level, found.ragged["good"]))
    order = np.argsort(-values, kind="stable")
    passed = np.cumsum(good[order]) / max(1.0, good.sum()) <= alarms
    sure = values >= float(values[order][passed].min(initial=np.inf))
    covered = np.bincount(
        level.owners[sure], found.ragged["covered"].values.astype(np.float64)[sure], len(found)
    )
    wrong = np.bincount(level.owners[sure], good[sure], len(found))
    whole = np.bincount(level.owners, good, len(found))
    shares: Floats = np.full(len(found), np.nan)
    np.divide(covered, regions.counts, out=shares, where=regions.counts > 0)
    return shares, np.asarray(wrong / np.maximum(whole, 1), np.float64)


@functools.lru_cache(maxsize=2)  # by identity; two, since models are compared in pairs
def _prepare_pixel_curve(
    level: Ragged, good: Ragged, bad: Ragged, covered: Ragged, regions: Ragged
) -> Callable[[Floats], PixelCurve]:
    parts = [each.values.astype(np.float64) for each in (good, bad, covered)]
    _, place = np.unique(-level.values.astype(np.float32), return_inverse=True)
    place = place.reshape(-1)
    count = int(place.max(initial=-1)) + 1
    if count > _MOST_SCORES:
        good_, bad_ = (np.bincount(place, part, count).astype(np.float64) for part in parts[:2])
        first = find_group_starts(good_, bad_, _PARTS)
        place, count = np.searchsorted(first, place, side="right") - 1, len(first)
    owners, pictures, number = level.owners, len(level), regions.counts.astype(np.float64)
    table: npt.NDArray[np.float64] | None = None
    if 3 * pictures * count <= _DENSE:  # sums of all weightings are one product each then
        rows = [np.bincount(owners * count + place, part, pictures * count) for part in parts]
        table = np.concatenate([row.reshape(pictures, count) for row in rows], axis=1)

    def compute_curve(weights: Floats) -> PixelCurve:
        if table is not None:
            sums = (weights @ table).reshape(3, count)
        else:
            own = weights[owners]
            sums = np.stack([np.bincount(place, own * part, count) for part in parts])
        return PixelCurve(sums[0], sums[1], sums[2] / max(float(weights @ number), 1e-300))

    return compute_curve


def _create_statistic(measure: Callable[[PixelCurve], float]) -> Callable[[Evaluation], Statistic]:
    def prepare(found: Evaluation) -> Statistic:
        curve = prepare_pixel_curve(found)
        return lambda weights: measure(curve(weights))

    return prepare


METRICS = (
    QualityMetric(
        "au_pro",
        "AU-PRO",
        "Area under the curve of the per-region overlap",
        "mean over the defects of the share of each that is found, over the shares of good pixels "
        "that are alarms from 0 to 30 %, by 30 % (Bergmann et al., IJCV 2021)",
        "ratio",
        False,
        statistic=_create_statistic(PixelCurve.compute_au_pro),
        bounds=(0.0, 1.0),
    ),
    QualityMetric(
        "pixel_auc",
        "Pixel AUC",
        "Area under the ROC curve of pixels",
        "share of pairs of a bad and a good pixel in the right order, whatever pictures they are "
        "of",
        "ratio",
        False,
        statistic=_create_statistic(PixelCurve.compute_pixel_auc),
        bounds=(0.0, 1.0),
    ),
    *OF_PICTURES,
)
