"""The metrics of instance masks: COCO's average precision and recall, with the overlap of masks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.core.quality_metric import QualityMetric, Statistic
from nnpipe.tasks.average_precision import (
    AREAS,
    THRESHOLDS,
    PrecisionCurves,
    compute_group_positions,
    match_greedily,
)

MOST_MASKS = 100
"""Predicted masks of one class in one picture that count, the most certain ones."""


@dataclass(frozen=True, eq=False)
class MaskMatches:
    """Which predicted masks are right, ordered by class and descending score.

    Attributes
    ----------
    picture, label
        Picture and class of each predicted mask, ``(d,)``.
    right, ignored
        Whether a mask was matched with a true one that counts, and whether it does not count
        itself; ``(d, thresholds, areas)``.
    true_picture, true_label
        Picture and class of each true mask, ``(g,)``.
    wanted
        Whether a true mask counts, ``(g, areas)``.
    """

    picture: npt.NDArray[np.int64]
    label: npt.NDArray[np.int64]
    right: npt.NDArray[np.bool_]
    ignored: npt.NDArray[np.bool_]
    true_picture: npt.NDArray[np.int64]
    true_label: npt.NDArray[np.int64]
    wanted: npt.NDArray[np.bool_]


def match_masks(found: Evaluation) -> MaskMatches:
    """Return which of an evaluation's predicted masks are right."""
    names = ("truth_class", "truth_crowd", "truth_area", "class", "scores", "area", "pairs")
    return _match_masks(*(found.ragged[name] for name in names))


def count_missed_masks(found: Evaluation) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return how many true masks of each picture are not found, and how many there are,
    ``(pictures,)`` each.

    A mask is found if one of its class overlaps it by half.
    """
    matches = match_masks(found)
    true = np.bincount(matches.true_picture[matches.wanted[:, 0]], minlength=len(found))
    right = np.bincount(matches.picture[matches.right[:, 0, 0]], minlength=len(found))
    return true - right, true


@functools.lru_cache(maxsize=2)  # by identity; two, since models are compared in pairs
def _match_masks(
    true_class: Ragged,
    crowd: Ragged,
    true_area: Ragged,
    classes: Ragged,
    scores: Ragged,
    area: Ragged,
    pairs: Ragged,
) -> MaskMatches:
    label, certain = classes.values.astype(np.int64), scores.values.astype(np.float64)
    order = np.lexsort((-certain, label, classes.owners))
    every = 1 + int(label.max(initial=0))
    group = (classes.owners * every + label)[order]
    kept = compute_group_positions(group) < MOST_MASKS
    order, group = order[kept], group[kept]
    places = np.full(len(label), -1, np.int64)
    places[order] = np.arange(len(order))
    rows = pairs.values.astype(np.float64)
    thing = places[classes.starts[pairs.owners] + rows[:, 0].astype(np.int64)]
    true, overlap = true_class.starts[pairs.owners] + rows[:, 1].astype(np.int64), rows[:, 2]
    by_thing = np.argsort(thing, kind="stable")
    by_thing = by_thing[thing[by_thing] >= 0]
    low, high = np.array(list(AREAS.values())).T
    crowds, sizes = crowd.values.astype(bool), true_area.values.astype(np.float64)[:, None]
    unwanted = crowds[:, None] | (sizes < low) | (sizes > high)
    right, ignored = match_greedily(
        group, thing[by_thing], true[by_thing], overlap[by_thing], crowds, unwanted
    )
    own = area.values.astype(np.float64)[order, None]
    ignored |= ~(right | ignored) & ((own < low) | (own > high))[:, None, :]
    again = np.lexsort((-certain[order], label[order]))
    return MaskMatches(
        classes.owners[order][again],
        label[order][again],
        right[again],
        ignored[again],
        true_class.owners,
        true_class.values.astype(np.int64),
        ~unwanted,
    )


def _create_statistic(
    of: str, threshold: int | None = None, area: str = "all"
) -> Callable[[Evaluation], Statistic]:
    def prepare(found: Evaluation) -> Statistic:
        matches, place = match_masks(found), list(AREAS).index(area)
        chosen = list(range(len(THRESHOLDS))) if threshold is None else [threshold]
        wanted = matches.wanted[:, place]
        labels = (matches.label, matches.true_label)
        curves = PrecisionCurves.from_matches(
            matches.picture,
            matches.label,
            matches.right[:, chosen, place],
            matches.ignored[:, chosen, place],
            matches.true_picture[wanted],
            matches.true_label[wanted],
            1 + max(int(each.max(initial=0)) for each in labels),
        )
        return (
            curves.compute_average_precision if of == "precision" else curves.compute_average_recall
        )

    return prepare


_OVERLAPS = (
    "mean over the classes, and over overlaps of masks from 0.5 to 0.95, of the precision at 101 "
    "recalls"
)

METRICS = (
    QualityMetric(
        "mask_map", "Mask mAP", "Mean average precision of masks", _OVERLAPS,
        "share", False, statistic=_create_statistic("precision")
    ),
    *(
        QualityMetric(
            f"mask_ap{number}", f"Mask AP{number}", f"Average precision of masks at an overlap of "
                f"0.{number}",
            f"mean over the classes of the precision at 101 recalls, if masks that overlap by "
            f"0.{number} are right",
            "share", False,
            statistic=_create_statistic("precision", threshold),
        )
        for number, threshold in ((50, 0), (75, 5))
    ),
    *(
        QualityMetric(
            f"mask_map_{area}", f"Mask mAP {area}", f"Mean average precision of {area} masks",
            f"{_OVERLAPS}, for masks of {sizes} pixels", "share", False,
            statistic=_create_statistic("precision", area=area),
        )
        for area, sizes in (
            ("small", "less than 32 x 32"), ("medium", "32 x 32 to 96 x 96"), ("large", "more than 96 x 96"),
        )
    ),
    QualityMetric(
        "mask_ar100", "Mask AR100", "Average recall of 100 masks",
        "mean over the classes, and over overlaps of masks from 0.5 to 0.95, of the share of true "
        "masks that are found "
        "among 100 masks of a class in a picture", "share", False, statistic=_create_statistic("recall"),
    ),
)  # fmt: skip
