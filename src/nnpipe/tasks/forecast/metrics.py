"""The metrics of forecasts.

Windows of one stretch of a series share most of their points, so intervals count whole stretches.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic, mean_of


def _errors(found: Evaluation) -> Floats:
    difference: Floats = found.arrays["predicted"].astype(np.float64) - found.arrays["truth"]
    return difference


def _absolute(found: Evaluation) -> Floats:
    return np.asarray(np.abs(_errors(found)).mean(axis=(1, 2)), np.float64)


def _scaled(found: Evaluation) -> Floats:
    """Return the absolute errors in units of the naive forecast's; NaN where that made none."""
    scale = found.arrays["scale"].astype(np.float64)
    errors = np.abs(_errors(found)).mean(axis=1)
    ratios = np.divide(errors, scale, out=np.full_like(errors, np.nan), where=scale > 0)
    known = ~np.isnan(ratios)
    counts = known.sum(axis=1)
    sums = np.where(known, ratios, 0.0).sum(axis=1)
    return np.asarray(np.divide(sums, counts, out=np.full(len(found), np.nan), where=counts > 0), np.float64)


def _root(found: Evaluation) -> Statistic:
    mean = mean_of((_errors(found) ** 2).mean(axis=(1, 2)))
    return lambda weights: float(np.sqrt(mean(weights)))


def _blocks(found: Evaluation) -> npt.NDArray[np.integer]:
    blocks: npt.NDArray[np.integer] = found.arrays["block"]
    return blocks


METRICS = (
    QualityMetric(
        "mase", "MASE", "Mean absolute scaled error",
        "mean absolute error, divided by that of the naive forecast in the training part (Hyndman and Koehler 2006)",
        "ratio", True, values=_scaled, clusters=_blocks, bounds=(0.0, math.inf),
    ),
    QualityMetric(
        "mae", "MAE", "Mean absolute error", "mean distance of predicted from true numbers", "ratio", True,
        values=_absolute, clusters=_blocks, bounds=(0.0, math.inf),
    ),
    QualityMetric(
        "rmse", "RMSE", "Root of the mean squared error", "root of the mean squared distance", "ratio", True,
        statistic=_root, clusters=_blocks, bounds=(0.0, math.inf),
    ),
)  # fmt: skip
