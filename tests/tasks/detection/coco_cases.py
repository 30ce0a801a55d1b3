"""Random pictures with true and predicted boxes, and what pycocotools makes of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from pycocotools_stats import pycocotools_stats

from nnpipe.core.evaluation import Evaluation, Ragged

PLACES = {
    "map": 0,
    "ap50": 1,
    "ap75": 2,
    "map_small": 3,
    "map_medium": 4,
    "map_large": 5,
    "ar1": 6,
    "ar10": 7,
    "ar100": 8,
    "ar_small": 9,
    "ar_medium": 10,
    "ar_large": 11,
}
"""Places of the metrics among the twelve figures of pycocotools."""


@dataclass
class Case:
    """True and predicted boxes in the form of COCO's files."""

    pictures: int
    classes: int
    true: list[dict[str, Any]]
    predicted: list[dict[str, Any]]

    def evaluation(self) -> Evaluation:
        ragged = {
            "truth_boxes": self._rows(self.true, "bbox", np.float64),
            "truth_class": self._rows(self.true, "category_id", np.int32),
            "truth_crowd": self._rows(self.true, "iscrowd", np.uint8),
            "truth_area": self._rows(self.true, "area", np.float64),
            "boxes": self._rows(self.predicted, "bbox", np.float64),
            "scores": self._rows(self.predicted, "score", np.float64),
            "class": self._rows(self.predicted, "category_id", np.int32),
        }
        return Evaluation("detection", {}, tuple(map(str, range(self.classes))), ragged)

    def _rows(self, boxes: list[dict[str, Any]], key: str, kind: type) -> Ragged:
        boxes = sorted(boxes, key=lambda box: box["image_id"])
        counts = np.bincount([box["image_id"] for box in boxes], minlength=self.pictures)
        values = np.array([box[key] for box in boxes], kind)
        return Ragged(values.reshape(-1, 4) if key == "bbox" else values, counts.astype(np.int64))

    def by_pycocotools(self) -> dict[str, float]:
        """Return pycocotools' figures; -1 for those that are not defined."""
        images = [{"id": number} for number in range(self.pictures)]
        found = pycocotools_stats("bbox", images, range(self.classes), self.true, self.predicted)
        return {
            name: -1.0 if math.isnan(found[place]) else found[place]
            for name, place in PLACES.items()
        }


def random_case(seed: int) -> Case:
    """Make a few pictures with crowds, equal scores, equal boxes, and sometimes more boxes than
    count.
    """
    random = np.random.default_rng(seed)
    case = Case(int(random.integers(1, 6)), int(random.integers(1, 4)), [], [])
    extent = int(random.choice([20, 60, 250]))
    for picture in range(case.pictures):
        own = []
        for _ in range(random.integers(0, 8)):
            box = [*random.integers(0, extent, 2).tolist(), *random.integers(1, extent, 2).tolist()]
            own.append(np.array(box, float))
            case.true.append(
                {
                    "id": len(case.true) + 1,
                    "image_id": picture,
                    "category_id": int(random.integers(case.classes)),
                    "bbox": own[-1].tolist(),
                    "area": float(box[2] * box[3] * random.choice([1, 0.6])),
                    "iscrowd": int(random.random() < 0.15),
                }
            )
        for _ in range(random.integers(0, 12 if random.random() < 0.95 else 250)):
            near = bool(own) and random.random() < 0.8
            box = (
                own[random.integers(len(own))]
                if near
                else random.integers(0, extent, 4).astype(float)
            )
            box = box + random.integers(-3, 4, 4) * random.integers(0, 3) * near
            box[2:] = np.maximum(box[2:], 1)
            score = random.integers(0, 10) / 10 if random.random() < 0.5 else random.random()
            case.predicted.append(
                {
                    "image_id": picture,
                    "category_id": int(random.integers(case.classes)),
                    "bbox": box.tolist(),
                    "score": float(score),
                }
            )
    return case
