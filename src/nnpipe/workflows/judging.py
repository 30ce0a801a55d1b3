"""Judging stored predictions: the metrics of what a data set reads from files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nnpipe.analysis.quality_intervals import QualityEstimate, quality_estimate
from nnpipe.core.argument_checks import check_call
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, SpecMismatch
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.secret import shown_settings
from nnpipe.core.task import Task
from nnpipe.workflows.candidates.stages import prepared


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
                f"  95 %: {_shown(metric, found.low)} to {_shown(metric, found.high)}"
                if _known(found)
                else ""
            )
            lines.append(f"{metric.title:<{width}} {_shown(metric, found.value):>12}{ends}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the metrics as JSON can hold them, with every digit."""
        metrics = {
            name: {
                "value": found.value if math.isfinite(found.value) else None,
                "low": found.low if _known(found) else None,
                "high": found.high if _known(found) else None,
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


def judge(
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
    check_call(judge, locals())
    dataset = prepared(dataset)
    indices = dataset.split(split)
    if not len(indices):
        raise ConfigError(f"{type(dataset).__name__}: its split {split!r} is empty")
    predictions, truth = dataset.read(indices)
    try:
        found = dataset.task.completed(
            dataset.judge_predictions(dataset.postprocess(predictions), truth)
        )
    except SpecMismatch as error:
        raise ConfigError(
            f"{type(dataset).__name__} holds no predictions that can be judged: {error}"
        ) from None
    estimates = {metric.name: quality_estimate(metric, found) for metric in dataset.task.metrics}
    known = {
        name: estimate for name, estimate in estimates.items() if not math.isnan(estimate.value)
    }
    return StoredQuality(
        shown_settings(dataset.describe()),
        split,
        len(found),
        dataset.task,
        known,
        int(found.not_finite.sum()),
    )


def _known(found: QualityEstimate) -> bool:
    return math.isfinite(found.low) and math.isfinite(found.high)


def _shown(metric: QualityMetric, value: float) -> str:
    return f"{100 * value:.2f} %" if metric.kind == "share" else f"{value:.6g}"
