"""Key points drawn into pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.quality_metric import Floats
from nnpipe.core.tensors import Batch
from nnpipe.report.task_pictures import COLOURS, Picture, TaskPictures, first_of
from nnpipe.tasks.frames import points_in_pixels
from nnpipe.tasks.pose.limbs import limbs
from nnpipe.tasks.pose.task import Pose

_SURE = 0.2  # least score of persons and points that are drawn
_MOST = 20


class PosePictures(TaskPictures):
    """Draws the key points with scores from 0.2 on, and COCO's limbs between them."""

    task = Pose.name

    def drawn(self, picture: Picture, predictions: Batch, class_names: Sequence[str]) -> tuple[Picture, str]:
        """Return the picture with key points, and how many persons there are."""
        from PIL import Image, ImageDraw

        image = Image.fromarray(picture)
        pen, width = ImageDraw.Draw(image), max(2, picture.shape[1] // 200)
        persons = _sure(predictions, picture.shape[:2])
        for number, person in enumerate(persons):
            colour = COLOURS[number % len(COLOURS)]
            known = person[:, 2] >= _SURE
            for one, other in limbs(known):
                pen.line([*person[one, :2], *person[other, :2]], fill=colour, width=width)
            for x, y in person[known, :2].tolist():
                pen.ellipse([x - 1.5 * width, y - 1.5 * width, x + 1.5 * width, y + 1.5 * width], fill=colour)
        return np.asarray(image), f"{len(persons)} person{'s' * (len(persons) != 1)} with scores from {_SURE} on"

    def difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return the mean distance of the key points of the most certain persons, and 1 for each person too many.

        Distances have x in shares of the picture's width and y of its height.
        """
        first, second = (_sure(each, picture.shape[:2]) for each in (one, other))
        common = min(len(first), len(second))
        sides = np.array(picture.shape[1::-1], np.float64)
        apart = np.linalg.norm((first[:common, :, :2] - second[:common, :, :2]) / sides, axis=2)
        return float(apart.mean() if apart.size else 0) + abs(len(first) - len(second))


def _sure(predictions: Batch, size: tuple[int, ...]) -> Floats:
    """Return the certain persons, ``(k, points, 3)``, in pixels."""
    if "points" not in predictions:
        raise SpecMismatch("predictions of poses hold points; name the model's decoder with --decoder")
    points = np.asarray(predictions["points"], np.float64)
    if "frame" in predictions:
        places = points_in_pixels(points[..., :2], predictions["frame"], np.array([size], np.int64))
        points = np.concatenate([places, points[..., 2:]], axis=-1)
    found = first_of(points)[: int(predictions["count"][0]) if "count" in predictions else None]
    scores = first_of(predictions["scores"])[: len(found)] if "scores" in predictions else found[..., 2].mean(axis=1)
    order = np.argsort(-scores, kind="stable")
    usable = (scores >= _SURE) & np.isfinite(found).all(axis=(1, 2))
    certain: Floats = found[order[usable[order]][:_MOST]]
    return certain
