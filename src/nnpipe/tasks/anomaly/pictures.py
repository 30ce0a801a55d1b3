"""Anomaly scores of pictures, and where in them the anomaly is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnpipe.core.tensors import Batch
from nnpipe.report.task_section import (
    COLOURS,
    Picture,
    TaskPictures,
    blend_colours,
    get_first_sample,
)
from nnpipe.tasks.anomaly.task import AnomalyDetection
from nnpipe.tasks.frames import map_to_picture
from nnpipe.tasks.predictions import get_anomaly_scores


class AnomalyPictures(TaskPictures):
    """Shows the score, and in pictures of models that give a score for each pixel, ``"map"``,
    which pixels make it.
    """

    task = AnomalyDetection.name

    def draw(
        self, picture: Picture, predictions: Batch, class_names: Sequence[str]
    ) -> tuple[Picture, str]:
        """Return the picture, coloured where scores of pixels are high for this picture, and the
        score.
        """
        told = f"score {get_anomaly_scores(predictions, 1)[0]:.4g}"
        if "map" not in predictions:
            return picture, told
        values = np.nan_to_num(
            map_to_picture(
                get_first_sample(predictions["map"]), predictions.get("frame"), picture.shape
            )
        )
        least, most = float(values.min()), float(values.max())
        shares = (values - least) / (most - least) if most > least else np.zeros_like(values)
        everywhere = np.ones(values.shape, bool)
        drawn = blend_colours(picture, everywhere, COLOURS[1], shares.reshape(-1, 1))
        return drawn, f"{told}; pixels from {least:.3g} to {most:.3g}"

    def measure_difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return the difference of the scores, relative to the greater one."""
        first, second = (float(get_anomaly_scores(each, 1)[0]) for each in (one, other))
        greatest = max(abs(first), abs(second))
        return abs(first - second) / greatest if 0 < greatest < np.inf else float(first != second)
