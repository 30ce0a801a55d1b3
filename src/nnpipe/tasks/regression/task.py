"""Regression as a task: predicted numbers against true ones."""

from __future__ import annotations

import math

import numpy as np

from nnpipe.core.errors import SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import Floats, QualityMetric, Statistic, build_mean_statistic
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, DatasetSpec, show_shape
from nnpipe.tasks.predictions import NUMBERS, check_alike, check_array, get_tensor


class Regression(Task):
    """Numbers for each sample.

    Targets are ``"value"``, ``(n, ...)``.  Predictions are ``"value"``, or a single tensor of any
    name, of the same shape; axes of length 1 do not matter.

    An evaluation holds ``truth`` and ``predicted``, float32 ``(n, ...)``.
    """

    name = "regression"
    targets = ("value",)

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """The mean absolute error, the root of the mean squared error, and the share of the
        variance explained.
        """
        return _METRICS

    def _evaluate(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate predicted numbers."""
        predicted, value = get_tensor(predictions, "value"), truth["value"]
        wanted, given = (
            [length for length in each.shape[1:] if length != 1] for each in (value, predicted)
        )
        if len(predicted) != len(value) or given != wanted:
            raise SpecMismatch(
                f"values must have the shape {show_shape(value.shape)}, not "
                f"{show_shape(predicted.shape)}"
            )
        return Evaluation(
            self.name,
            {
                "truth": value.astype(np.float32),
                "predicted": predicted.astype(np.float32).reshape(value.shape),
            },
        )

    def check(self, evaluation: Evaluation) -> None:
        """Check that truth and prediction are numbers of one shape."""
        super().check(evaluation)
        for name in self.arrays:
            held = evaluation.arrays.get(name)
            check_array(
                evaluation, name, () if held is None else (None,) * (held.ndim - 1), NUMBERS
            )
        check_alike(evaluation, "truth", "predicted")

    def perfect(self, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return the true numbers."""
        return {"value": truth["value"]}

    def worst(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Batch:
        """Return infinite numbers."""
        return {"value": np.full(truth["value"].shape, np.inf, np.float32)}


def _compute_errors(found: Evaluation) -> Floats:
    difference: Floats = found.arrays["predicted"].astype(np.float64) - found.arrays["truth"]
    return difference.reshape(len(found), -1)


def _compute_absolute_errors(found: Evaluation) -> Floats:
    mean: Floats = np.abs(_compute_errors(found)).mean(axis=1)
    return mean


def _prepare_root_mean_square(found: Evaluation) -> Statistic:
    mean = build_mean_statistic((_compute_errors(found) ** 2).mean(axis=1))
    return lambda weights: float(np.sqrt(mean(weights)))


def _prepare_explained_variance(found: Evaluation) -> Statistic:
    mean = build_mean_statistic((_compute_errors(found) ** 2).sum(axis=1))
    truth = found.arrays["truth"].astype(np.float64).reshape(len(found), -1)
    truth = truth - truth.mean(axis=0)  # a common offset changes nothing but the rounding
    own = (truth**2).sum(axis=1)

    def statistic(weights: Floats) -> float:
        total = float(weights.sum())
        if total <= 0:
            return float("nan")
        spread = float(weights @ own - (((weights @ truth) ** 2).sum()) / total)
        return 1 - mean(weights) * total / spread if spread > 0 else float("nan")

    return statistic


_METRICS = (
    QualityMetric(
        "mae", "MAE", "Mean absolute error", "mean distance of predicted from true "
            "numbers", "ratio", True,
        values=_compute_absolute_errors, bounds=(0.0, math.inf),
    ),
    QualityMetric(
        "rmse", "RMSE", "Root of the mean squared error", "root of the mean squared "
            "distance", "ratio", True,
        statistic=_prepare_root_mean_square, bounds=(0.0, math.inf),
    ),
    QualityMetric(
        "r2", "R²", "Coefficient of determination", "1 less the squared errors by the squared "
            "deviations of the truth",
        "ratio", False, statistic=_prepare_explained_variance, bounds=(-math.inf, 1.0),
    ),
)  # fmt: skip
