"""Two models for pictures on the same made-up samples: segmentations, boxes, masks, poses and
anomaly maps.

Models differ for a tenth of the pictures or so; see ``_paired_models.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation, Ragged

Pair = tuple[Evaluation, Evaluation]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NAMES = ("a", "b", "c")
_SIGMAS = (0.08, 0.08, 0.1, 0.1)  # of key points
# in shares of a person's box
_BETWEEN_POINTS = np.array([(0.5, 0.1), (0.5, 0.5), (0.2, 0.9), (0.8, 0.9)])


def segmentations(random: np.random.Generator, count: int) -> Pair:
    """Return two models of which the second loses pixels of the first class in a tenth of the
    images.
    """
    one = np.zeros((count, 3, 3), np.int64)
    for number in range(3):
        pixels = random.integers(5, 60, count)
        wrong = np.minimum(pixels, 5) * (random.random(count) < 0.3)
        one[:, number, number] += pixels - wrong
        one[:, number, (number + 1) % 3] += wrong
    other = one.copy()
    lost = np.minimum(other[:, 0, 0], 8) * (random.random(count) < 0.1)
    other[:, 0, 0] -= lost
    other[:, 0, 1] += lost
    return of_confusions(one), of_confusions(other)


def of_confusions(confusions: Ints) -> Evaluation:
    """Return a segmentation with these pixels by true and predicted class, ``(n, 3, 3)``.

    A third of the right pixels of a class, and half of the wrong ones, are near contours.
    """
    count = len(confusions)
    kinds = np.tile(np.indices((3, 3)).reshape(2, 9).T, (count, 1))
    pixels = Ragged(np.column_stack([kinds, confusions.reshape(-1)]), np.full(count, 9))
    right = np.einsum("ijj->ij", confusions)
    wrong = confusions.sum(axis=1) + confusions.sum(axis=2) - 2 * right
    near = np.stack(
        [np.tile(np.arange(3), (count, 1)), right // 3, right // 3 + wrong // 2], axis=-1
    )
    contours = Ragged(near.reshape(-1, 3), np.full(count, 3))
    return Evaluation("segmentation", {}, _NAMES, {"pixels": pixels, "contours": contours})


@dataclass(frozen=True)
class Scenes:
    """Things in pictures, and what two models find of them; hard pictures are hard for both.

    Attributes
    ----------
    counts
        The number of true things in each picture.
    owner, hard, label
        The picture of each true thing, how hard it is from 0 to 1, and its class.
    found, certain
        Whether the first model finds a thing, and the score that it gives.
    moved, kept, weaker
        Whether the second model differs in the picture of a thing, whether it finds the thing, and
        its score.
    false, told, chance
        The picture, the class and the score of each false alarm; these are the same for both.
    """

    counts: Ints
    owner: Ints
    hard: Floats
    label: Ints
    found: Bools
    certain: Floats
    moved: Bools
    kept: Bools
    weaker: Floats
    false: Ints
    told: Ints
    chance: Floats

    @classmethod
    def drawn(
        cls, random: np.random.Generator, count: int, things: float, lost: float = 0.1
    ) -> Scenes:
        """Draw scenes with so many things each on average; the second model loses a share of
        them where it differs.
        """
        counts = random.poisson(things, count)
        owner = np.repeat(np.arange(count), counts)
        hard = random.random(count)[owner]
        label = random.choice(3, len(owner), p=[0.6, 0.3, 0.1])
        found = random.random(len(owner)) < 0.97 - 0.4 * hard
        certain = np.round(random.beta(3, 1 + 2 * hard), 2)
        moved = (random.random(count) < 0.15)[owner]
        weaker = np.where(moved, np.round(certain * random.uniform(0.7, 1, len(owner)), 2), certain)
        kept = found & ~(moved & (random.random(len(owner)) < lost))
        false = np.repeat(np.arange(count), random.poisson(things / 2, count))
        told, chance = random.integers(0, 3, len(false)), np.round(random.beta(1, 3, len(false)), 2)
        return cls(
            counts, owner, hard, label, found, certain, moved, kept, weaker, false, told, chance
        )

    def rows(
        self, there: Bools, right: npt.NDArray[np.generic], wrong: npt.NDArray[np.generic]
    ) -> Ragged:
        """Return values of what a model found, of true things and of false alarms, by picture."""
        owners = np.concatenate([self.owner[there], self.false])
        order = np.argsort(owners, kind="stable")
        return Ragged(
            np.concatenate([right[there], wrong])[order],
            np.bincount(owners, minlength=len(self.counts)),
        )

    def truth(self, values: npt.NDArray[np.generic]) -> Ragged:
        """Return values of true things by picture."""
        return Ragged(values, self.counts)


def detections(random: np.random.Generator, count: int) -> Pair:
    """Return two detectors whose boxes differ in a seventh of the pictures."""
    scenes = Scenes.drawn(random, count, 3)
    truth, boxes = (
        np.concatenate(
            [random.uniform(0, 300, (number, 2)), random.uniform(20, 120, (number, 2))], axis=1
        )
        for number in (len(scenes.owner), len(scenes.false))
    )
    off = (
        random.normal(size=truth.shape)
        * (0.02 + 0.12 * scenes.hard[:, None])
        * truth[:, [2, 3, 2, 3]]
    )
    further = off + np.where(scenes.moved[:, None], random.normal(0, 5, truth.shape), 0)

    def judged(moves: Floats, there: Bools, scores: Floats) -> Evaluation:
        ragged = {
            "truth_boxes": scenes.truth(truth),
            "truth_class": scenes.truth(scenes.label.astype(np.int32)),
            "truth_crowd": scenes.truth(np.zeros(len(truth), np.uint8)),
            "truth_area": scenes.truth(truth[:, 2] * truth[:, 3]),
            "boxes": scenes.rows(there, truth + moves, boxes),
            "scores": scenes.rows(there, scores, scenes.chance),
            "class": scenes.rows(
                there, scenes.label.astype(np.int32), scenes.told.astype(np.int32)
            ),
        }
        return Evaluation("detection", {}, _NAMES, ragged, {"protocol": "coco"})

    return judged(off, scenes.found, scenes.certain), judged(further, scenes.kept, scenes.weaker)


def masks(random: np.random.Generator, count: int) -> Pair:
    """Return two models whose masks differ in a seventh of the pictures; a mask overlaps with
    one thing at most.
    """
    scenes = Scenes.drawn(random, count, 3)
    side, false_side = (random.uniform(15, 150, len(each)) for each in (scenes.owner, scenes.false))
    first = 1 - random.beta(2, 8 - 5 * scenes.hard)
    second = np.clip(
        first - np.where(scenes.moved, np.round(random.normal(0.03, 0.08, len(first)), 2), 0), 0, 1
    )

    def judged(overlap: Floats, there: Bools, scores: Floats) -> Evaluation:
        of_picture = np.arange(len(side)) - np.repeat(
            np.cumsum(scenes.counts) - scenes.counts, scenes.counts
        )
        true = scenes.rows(
            there, np.stack([of_picture, overlap], axis=1), np.full((len(scenes.false), 2), -1.0)
        )
        place = np.arange(len(true.values)) - true.starts[true.owners]
        paired = true.values[:, 1].astype(np.float64) >= 0.5
        pairs = np.column_stack([place, true.values])[paired]
        ragged = {
            "truth_class": scenes.truth(scenes.label.astype(np.int32)),
            "truth_crowd": scenes.truth(np.zeros(len(side), np.uint8)),
            "truth_area": scenes.truth(side**2),
            "class": scenes.rows(
                there, scenes.label.astype(np.int32), scenes.told.astype(np.int32)
            ),
            "scores": scenes.rows(there, scores, scenes.chance),
            "area": scenes.rows(there, side**2 * overlap, false_side**2),
            "pairs": Ragged(pairs, np.bincount(true.owners[paired], minlength=count)),
        }
        return Evaluation("instance_segmentation", {}, _NAMES, ragged)

    return judged(first, scenes.found, scenes.certain), judged(second, scenes.kept, scenes.weaker)


def poses(random: np.random.Generator, count: int) -> Pair:
    """Return two models whose key points differ in a seventh of the pictures, of one person or two
    mostly.

    A lost person is paired with a false alarm far off, which decides mean distances: a few lost
    ones are not enough.
    """
    scenes = Scenes.drawn(random, count, 1.5, lost=0.3)
    side, false_side = (random.uniform(40, 200, len(each)) for each in (scenes.owner, scenes.false))
    corner, false_corner = (
        random.uniform(0, 400, (len(each), 1, 2)) for each in (side, false_side)
    )
    true, false = (
        corner + side[:, None, None] * _BETWEEN_POINTS,
        false_corner + false_side[:, None, None] * 0.5,
    )
    false = false + random.normal(0, 20, (len(false), *true.shape[1:]))
    size = side[:, None, None] * random.normal(size=true.shape)
    off = size * (0.02 + 0.08 * scenes.hard[:, None, None])
    further = off + np.where(
        scenes.moved[:, None, None], 0.05 * side[:, None, None] * random.normal(size=off.shape), 0
    )
    seen = (random.random(true.shape[:2]) < 0.9)[..., None] * 2.0
    seen[:, 0] = 2.0

    def judged(moves: Floats, there: Bools, scores: Floats) -> Evaluation:
        found, alarms = (
            np.concatenate([each, np.ones((*each.shape[:2], 1))], axis=-1)
            for each in (true + moves, false)
        )
        boxes = np.concatenate([corner[:, 0], np.repeat(side[:, None], 2, axis=1)], axis=1)
        ragged = {
            "truth_points": scenes.truth(np.concatenate([true, seen], axis=-1)),
            "truth_boxes": scenes.truth(boxes),
            "truth_area": scenes.truth(0.53 * side**2),
            "truth_crowd": scenes.truth(np.zeros(len(side), np.uint8)),
            "points": scenes.rows(there, found, alarms),
            "scores": scenes.rows(there, scores, scenes.chance),
        }
        settings = {"sigmas": list(_SIGMAS), "pck_fraction": 0.1, "pck_length": "box"}
        return Evaluation(
            "pose", {"size": np.full((count, 2), 640, np.int32)}, (), ragged, settings
        )

    return judged(off, scenes.found, scenes.certain), judged(further, scenes.kept, scenes.weaker)


def anomaly_maps(random: np.random.Generator, count: int) -> Pair:
    """Return two models of maps with ten levels, which differ in a fifth of the pictures; two in
    five have a defect.
    """
    size = np.where(random.random(count) < 0.4, random.integers(5, 60, count), 0)
    # how high scores are in this picture
    good, bad = random.beta(2, 6, count), random.beta(5, 3, count)
    change = random.random(count) < 0.2
    turned = [
        np.where(change, np.clip(each + random.normal(0.02, 0.1, count), 0, 1), each)
        for each in (good, bad)
    ]
    one = _map_levels(random, size, good, bad)
    other = np.where(change[:, None, None], _map_levels(random, size, *turned), one)
    return _of_map_levels(one, size), _of_map_levels(other, size)


def _map_levels(random: np.random.Generator, size: Ints, good: Floats, bad: Floats) -> Ints:
    """Return the numbers of good and bad pixels of each level, from 9 down; ``(pictures, 2,
    10)``.
    """
    level = np.arange(9, -1, -1)
    ways = np.array([math.comb(9, each) for each in level.tolist()])
    pixels = np.full(len(size), 300), size
    found = [
        random.multinomial(
            number, ways * share[:, None] ** level * (1 - share[:, None]) ** (9 - level)
        )
        for number, share in zip(pixels, (good, bad), strict=True)
    ]
    return np.stack(found, axis=1)


def _of_map_levels(pixels: Ints, size: Ints) -> Evaluation:
    count = len(size)
    rows = np.full(count, 10)
    values = {
        "level": np.tile(np.arange(9, -1, -1, dtype=np.float32), count),
        "good": pixels[:, 0].ravel(),
        "bad": pixels[:, 1].ravel(),
        "covered": (pixels[:, 1] / np.maximum(size, 1)[:, None]).ravel(),
    }
    there = size > 0
    greatest = 9 - (pixels.sum(axis=1) > 0).argmax(axis=1)
    return Evaluation(
        "anomaly_map",
        {"truth": there.astype(np.int32), "score": greatest.astype(np.float32)},
        (),
        {name: Ragged(each, rows) for name, each in values.items()}
        | {"regions": Ragged(size[there], there.astype(np.int64))},
    )
