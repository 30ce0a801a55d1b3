"""Forecasts of series as a task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnpipe.core.dataset_spec import DatasetSpec
from nnpipe.core.errors import SpecMismatch
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import Task
from nnpipe.core.tensors import Batch, show_shape
from nnpipe.tasks.forecast.metrics import METRICS
from nnpipe.tasks.predictions import only
from nnpipe.tasks.stored_arrays import INTEGERS, NUMBERS, check_alike, check_array


class Forecast(Task):
    """The next values of a series, given those before.

    Targets are ``"value"``, ``(n, steps, columns)``; ``"scale"``, ``(n, columns)``, the mean error of the naive
    forecast in the training part of the series; and ``"block"``, ``(n,)`` integers, the stretch of the series that a
    sample belongs to: windows of one stretch overlap, so they are no independent samples.  Predictions are
    ``"value"``, or a single tensor of any name, with as many numbers.

    An evaluation holds ``truth`` and ``predicted``, float32 ``(n, steps, columns)``, ``scale``, float32
    ``(n, columns)``, and ``block``, int64 ``(n,)``.
    """

    name = "forecast"
    targets = ("value", "scale", "block")
    arrays = ("truth", "predicted", "scale", "block")
    truth = ("truth", "block")

    @property
    def metrics(self) -> tuple[QualityMetric, ...]:
        """The mean absolute scaled error, the mean absolute error, and the root of the mean squared error."""
        return METRICS

    def _judge(self, predictions: Batch, truth: Batch, spec: DatasetSpec) -> Evaluation:
        """Evaluate predicted values."""
        predicted, value = only(predictions, "value"), truth["value"]
        wanted = [length for length in value.shape[1:] if length != 1]
        given = [length for length in predicted.shape[1:] if length != 1]
        flat = [int(np.prod(wanted))]
        if len(predicted) != len(value) or given not in (wanted, flat if flat != [1] else []):
            raise SpecMismatch(
                f"forecasts must have the shape {show_shape(value.shape)}, not {show_shape(predicted.shape)}"
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

    def doubts(self, evaluation: Evaluation) -> Iterator[tuple[str, str]]:
        """Doubt forecasts that are the same for all samples."""
        predicted = evaluation.arrays["predicted"]
        if len(predicted) > 1 and bool(np.all(predicted == predicted[0])):
            yield "constant", f"all {len(predicted):,} forecasts are the same"
