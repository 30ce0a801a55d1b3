"""Judging stored predictions: the metrics of what a data set reads from files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nnpipe.analysis.quality_intervals import QualityEstimate, compute_quality_estimate
from nnpipe.core.argument_checks import check_call
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.secret import hide_settings_secrets
from nnpipe.core.task import Task
from nnpipe.workflows.candidates.stages import prepare_dataset


@dataclass(frozen=True)
class StoredQuality:
    """The metrics of stored predictions.

    Parameters
    ----------
    dataset
        The data set, as :meth:`~nnpipe.core.component.Component.describe` describes it.
    split
        The samples that were judged.
    samples
        Their number.
    task
        The task that judged them.
    estimates
        Each metric that is defined for these samples, with its interval, by name.
    not_finite
        The number of samples whose predictions are NaN or infinite, which count as the worst
        answer.
    """

    dataset: Mapping[str, Any]
    split: str
    samples: int
    task: Task
    estimates: Mapping[str, QualityEstimate]
    not_finite: int = 0

    def __str__(self) -> str:
        """Return one line for each metric."""
        lost = f", {self.not_finite:,} of them NaN or infinite: these count as the worst answer"
        lines = [f"{self.samples:,} samples{lost if self.not_finite else ''}"]
        width = max([36, *(len(self.task.metric(name).title) for name in self.estimates)])
        for name, found in self.estimates.items():
            metric = self.task.metric(name)
            ends = (
                f"  95 %: {_format_value(metric, found.low)} to {_format_value(metric, found.high)}"
                if _has_interval(found)
                else ""
            )
            lines.append(f"{metric.title:<{width}} {_format_value(metric, found.value):>12}{ends}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the metrics as JSON can hold them, with every digit."""
        metrics = {
            name: {
                "value": found.value if math.isfinite(found.value) else None,
                "low": found.low if _has_interval(found) else None,
                "high": found.high if _has_interval(found) else None,
            }
            for name, found in self.estimates.items()
        }
        return {
            "dataset": dict(self.dataset),
            "split": self.split,
            "samples": self.samples,
            "not_finite": self.not_finite,
            "metrics": metrics,
        }


def evaluate_predictions(
    dataset: Dataset, split: Literal["train", "validation", "test"] = "test"
) -> StoredQuality:
    """Return the metrics of stored predictions.

    Parameters
    ----------
    dataset
        A data set whose inputs are predictions.
    split
        The samples to judge.

    Raises
    ------
    ConfigError
        If the split is empty, or the data set holds no predictions that its task can judge.
    DatasetError
        If a file is missing or damaged.
    """
    check_call(evaluate_predictions, locals())
    dataset = prepare_dataset(dataset)
    indices = dataset.split(split)
    if not len(indices):
        raise ConfigError(f"{type(dataset).__name__}: its split {split!r} is empty")
    predictions, truth = dataset.read(indices)
    try:
        found = dataset.task.finalize(
            dataset.judge_predictions(dataset.postprocess(predictions), truth)
        )
    except SpecMismatch as error:
        raise ConfigError(
            f"{type(dataset).__name__} holds no predictions that can be judged: {error}"
        ) from None
    estimates = {
        metric.name: compute_quality_estimate(metric, found) for metric in dataset.task.metrics
    }
    known = {
        name: estimate for name, estimate in estimates.items() if not math.isnan(estimate.value)
    }
    return StoredQuality(
        hide_settings_secrets(dataset.describe()),
        split,
        len(found),
        dataset.task,
        known,
        int(found.not_finite.sum()),
    )


def _has_interval(found: QualityEstimate) -> bool:
    return math.isfinite(found.low) and math.isfinite(found.high)


def _format_value(metric: QualityMetric, value: float) -> str:
    return f"{100 * value:.2f} %" if metric.kind == "share" else f"{value:.6g}"
