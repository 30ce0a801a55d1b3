"""The metrics of anomaly detection, from true kinds and scores."""

from __future__ import annotations

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic


def _area(found: Evaluation) -> Statistic:
    """Return the area under the ROC curve: the share of pairs in the right order, where ties count half."""
    score, anomalous = found.arrays["score"], found.arrays["truth"] == 1
    _, place = np.unique(score, return_inverse=True)
    places = int(place.max(initial=-1)) + 1

    def statistic(weights: Floats) -> float:
        unusual = np.bincount(place, weights * anomalous, places)
        usual = np.bincount(place, weights * ~anomalous, places)
        pairs = float(unusual.sum() * usual.sum())
        below = np.cumsum(usual) - usual
        return float(unusual @ (below + usual / 2)) / pairs if pairs > 0 else float("nan")

    return statistic


METRICS = (
    QualityMetric(
        "auc", "AUC", "Area under the ROC curve", "share of pairs of an anomaly and a normal sample in the right order",
        "ratio", statistic=_area,
    ),
)  # fmt: skip
