"""Anomaly maps drawn over pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnpipe.core.tensors import Batch
from nnpipe.report.task_pictures import Picture
from nnpipe.tasks.anomaly.pictures import AnomalyPictures
from nnpipe.tasks.anomaly_map.task import AnomalyMaps, map_of


class AnomalyMapPictures(AnomalyPictures):
    """Shows which pixels have high scores, and the score of the picture, which may be that of its greatest pixel."""

    task = AnomalyMaps.name

    def drawn(self, picture: Picture, predictions: Batch, class_names: Sequence[str]) -> tuple[Picture, str]:
        """Return the picture, coloured where scores of pixels are high for this picture, and the score."""
        return super().drawn(picture, _complete(predictions), class_names)

    def difference(self, picture: Picture, one: Batch, other: Batch) -> float:
        """Return the difference of the scores, relative to the greater one."""
        return super().difference(picture, _complete(one), _complete(other))


def _complete(predictions: Batch) -> Batch:
    maps = map_of(predictions, 1)
    frame = {"frame": predictions["frame"]} if "frame" in predictions else {}
    score = predictions.get("score", np.fmax.reduce(maps, axis=(1, 2), initial=-np.inf))
    return {"map": maps, "score": score, **frame}
