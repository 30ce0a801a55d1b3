"""Masks of single things drawn over pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpipe.core.tensors import Batch
from nnpipe.report.task_pictures import COLOURS, Picture, TaskPictures, class_name, first_of, mixed
from nnpipe.tasks.instance_segmentation.drawing import runs_in_picture
from nnpipe.tasks.instance_segmentation.runs import Integers, areas_of, intersections, mask_of
from nnpipe.tasks.instance_segmentation.task import (
    InstanceSegmentation,
    check_predictions,
    check_runs,
)

_SURE = 0.25  # least score of things that are drawn
_MOST = 100


class InstancePictures(TaskPictures):
    """Colours the masks of the things with scores from 0.25 on, each in another colour."""

    task = InstanceSegmentation.name

    def drawn(self, picture: Picture, predictions: Batch, class_names: Sequence[str]) -> tuple[Picture, str]:
        """Return the picture with coloured masks and their classes, and how many things there are."""
        from PIL import Image, ImageDraw

        found, labels, scores = _sure(predictions, picture)
        places = []
        for number in reversed(range(len(found))):  # the most certain ones on top
            mask = mask_of(found[number], picture.shape)
            picture = mixed(picture, mask, COLOURS[number % len(COLOURS)])
            places.append((int(mask.any(axis=0).argmax()), int(mask.any(axis=1).argmax())))
        image = Image.fromarray(picture)
        pen = ImageDraw.Draw(image)
        for number, place in enumerate(reversed(places)):
            text = f"{class_name(int(labels[number]), class_names)} {scores[number]:.2f}"
            pen.rectangle(pen.textbbox(place, text), fill=COLOURS[number % len(COLOURS)])
            pen.text(place, text, fill=(255, 255, 255))
        return np.asarray(image), f"{len(found)} thing{'s' * (len(found) != 1)} with scores from {_SURE} on"

    def difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return the number of things of either model that overlap none of the other's, of their class, by half."""
        (first, labels, _), (second, others, _) = (_sure(each, picture) for each in (one, other))
        inside = intersections(first, second)
        either = areas_of(first)[:, None] + areas_of(second)[None] - inside
        pairs = (2 * inside >= either) & (labels[:, None] == others[None])
        return float((~pairs.any(axis=1)).sum() + (~pairs.any(axis=0)).sum())


def _sure(predictions: Batch, picture: Picture) -> tuple[Integers, npt.NDArray[Any], npt.NDArray[np.float64]]:
    """Return runs in the picture, classes and scores of the certain things, the most certain first."""
    check_predictions(predictions, 1)
    labels, scores = predictions["class"][0], first_of(predictions["scores"])
    order = np.argsort(-scores, kind="stable")
    order = order[((labels >= 0) & (scores >= _SURE))[order]][:_MOST]
    wanted = np.zeros(len(labels), bool)
    wanted[order] = True
    size = np.array(picture.shape[:2])
    runs = runs_in_picture(predictions, 0, size, wanted)
    check_runs(runs, "predicted", size)
    runs = runs[np.argsort(np.argsort(order))] if len(order) else runs
    there = areas_of(runs) > 0
    return runs[there], labels[order][there], scores[order][there]
