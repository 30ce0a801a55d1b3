"""Forecasts of series as a task."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic, build_mean_statistic
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, DatasetSpec, show_shape
from nnpipe.tasks.predictions import INTEGERS, NUMBERS, check_alike, check_array, get_tensor

# The metrics of forecasts.
#
# Windows of one stretch of a series share most of their points, so intervals count whole stretches.


def _compute_errors(found: Evaluation) -> Floats:
    difference: Floats = found.arrays["predicted"].astype(np.float64) - found.arrays["truth"]
    return difference


def _compute_absolute_errors(found: Evaluation) -> Floats:
    return np.asarray(np.abs(_compute_errors(found)).mean(axis=(1, 2)), np.float64)


def _compute_scaled_errors(found: Evaluation) -> Floats:
    """Return the absolute errors in units of the naive forecast's; NaN where that made none."""
    scale = found.arrays["scale"].astype(np.float64)
    errors = np.abs(_compute_errors(found)).mean(axis=1)
    ratios = np.divide(errors, scale, out=np.full_like(errors, np.nan), where=scale > 0)
    known = ~np.isnan(ratios)
    counts = known.sum(axis=1)
    sums = np.where(known, ratios, 0.0).sum(axis=1)
    return np.asarray(
        np.divide(sums, counts, out=np.full(len(found), np.nan), where=counts > 0), np.float64
    )


def _prepare_root_mean_square(found: Evaluation) -> Statistic:
    mean = build_mean_statistic((_compute_errors(found) ** 2).mean(axis=(1, 2)))
    return lambda weights: float(np.sqrt(mean(weights)))


def _get_blocks(found: Evaluation) -> npt.NDArray[np.integer]:
    blocks: npt.NDArray[np.integer] = found.arrays["block"]
    return blocks


METRICS = (
    QualityMetric(
        "mase", "MASE", "Mean absolute scaled error",
        "mean absolute error, divided by that of the naive forecast in the training part (Hyndman "
        "and Koehler 2006)",
        "ratio", True, values=_compute_scaled_errors, clusters=_get_blocks, bounds=(0.0, math.inf),
    ),
    QualityMetric(
        "mae", "MAE", "Mean absolute error", "mean distance of predicted from true "
            "numbers", "ratio", True,
        values=_compute_absolute_errors, clusters=_get_blocks, bounds=(0.0, math.inf),
    ),
    QualityMetric(
        "rmse", "RMSE", "Root of the mean squared error", "root of the mean squared "
            "distance", "ratio", True,
        statistic=_prepare_root_mean_square, clusters=_get_blocks, bounds=(0.0, math.inf),
    ),
)  # fmt: skip


class Forecast(Task):
    """The next values of a series, given those before.

    Targets are ``"value"``, ``(n, steps, columns)``; ``"scale"``, ``(n, columns)``, the mean error
    of the naive forecast in the training part of the series; and ``"block"``, ``(n,)`` integers,
    the stretch of the series that a sample belongs to: windows of one stretch overlap, so they are
    no independent samples.  Predictions are ``"value"``, or a single tensor of any name, with as
    many numbers.

    An evaluation holds ``truth`` and ``predicted``, float32 ``(n, steps, columns)``, ``scale``,
    float32 ``(n, columns)``, and ``block``, int64 ``(n,)``.
    """

    name = "forecast"
    targets = ("value", "scale", "block")
    arrays = ("truth", "predicted", "scale", "block")
    truth = ("truth", "block")

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """The mean absolute scaled error, the mean absolute error, and the root of the mean
        squared error.
        """
        return METRICS

    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate predicted values."""
        predicted, value = get_tensor(predictions, "value"), truth["value"]
        wanted = [length for length in value.shape[1:] if length != 1]
        given = [length for length in predicted.shape[1:] if length != 1]
        flat = [int(np.prod(wanted))]
        if len(predicted) != len(value) or given not in (wanted, flat if flat != [1] else []):
            raise SpecMismatch(
                f"forecasts must have the shape {show_shape(value.shape)}, not "
                f"{show_shape(predicted.shape)}"
            )
        arrays: dict[str, np.ndarray] = {
            "truth": value.astype(np.float32),
            "predicted": predicted.astype(np.float32).reshape(value.shape),
            "scale": truth["scale"].astype(np.float32),
            "block": truth["block"].astype(np.int64),
        }
        return Evaluation(self.name, arrays)

    def check(self, evaluation: Evaluation) -> None:
        """Check that forecasts go with the truth."""
        super().check(evaluation)
        for name in ("truth", "predicted"):
            check_array(evaluation, name, (None, None), NUMBERS)
        check_alike(evaluation, "truth", "predicted")
        check_array(evaluation, "scale", (evaluation.arrays["truth"].shape[2],), NUMBERS)
        check_array(evaluation, "block", (), INTEGERS)

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the true values."""
        return {"value": truth["value"]}

    def worst(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return infinite values."""
        return {"value": np.full(truth["value"].shape, np.inf, np.float32)}

    def warnings(self, evaluation: Evaluation) -> Iterator[tuple[str, str]]:
        """Doubt forecasts that are the same for all samples."""
        predicted = evaluation.arrays["predicted"]
        if len(predicted) > 1 and bool(np.all(predicted == predicted[0])):
            yield "constant", f"all {len(predicted):,} forecasts are the same"
