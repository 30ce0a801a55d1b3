"""How well a run's model does its task: metrics with intervals, and paired comparisons of two
models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from nnpipe.analysis.classification import wilson_interval
from nnpipe.analysis.quality_intervals import (
    QualityDifference,
    QualityEstimate,
    compute_quality_difference,
    compute_quality_estimate,
)
from nnpipe.core.errors import ComponentNotFound
from nnpipe.core.evaluation import Evaluation
from nnpipe.core.quality_metric import QualityMetric
from nnpipe.core.task import Task, get_task
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.quantities import Quantity, quality_of
from nnpipe.measuring.run import Run

CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Quality:
    """The judged predictions of a run.

    Parameters
    ----------
    task
        The task.
    evaluation
        At least one sample, with all arrays that the task needs.
    """

    task: Task
    evaluation: Evaluation
    _figures: dict[str, Figure] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_run(cls, run: Run) -> Quality | None:
        """Return the quality of a run; ``None`` if nothing was judged, or its task is not known
        here.

        Raises
        ------
        ArtifactError
            If the metrics cannot be computed from the arrays.
        """
        evaluation = run.evaluation
        if evaluation is None or not len(evaluation):
            return None
        try:
            task = get_task(evaluation.task)
        except ComponentNotFound:
            return None
        task.check(evaluation)
        return cls(task, evaluation)

    @property
    def metric(self) -> QualityMetric:
        """The metric by which candidates are ranked."""
        return self.task.primary

    @property
    def quantity(self) -> Quantity:
        """The quantity of that metric."""
        return quality_of(self.metric)

    @property
    def samples(self) -> int:
        """The number of judged samples."""
        return len(self.evaluation)

    @property
    def figure(self) -> Figure:
        """The metric by which candidates are ranked, with its 95 % interval."""
        return self.get_figure(self.metric)

    def get_figure(self, metric: QualityMetric) -> Figure:
        """Return a metric of the task with its 95 % interval."""
        if metric.name not in self._figures:
            self._figures[metric.name] = compute_metric_figure(metric, self.evaluation, CONFIDENCE)
        return self._figures[metric.name]

    @property
    def value(self) -> float:
        """The metric by which candidates are ranked; NaN if it is not defined."""
        return math.nan if self.figure.value is None else self.figure.value

    @property
    def is_known(self) -> bool:
        """Whether that metric is a finite number."""
        return self.figure.value is not None

    @property
    def rank(self) -> float:
        """The metric with the sign that makes more better."""
        return -self.value if self.metric.less_is_better else self.value

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the metric's 95 % interval; the value itself where there is none."""
        low, high = self.figure.low, self.figure.high
        return (low, high) if math.isfinite(low + high) else (self.value, self.value)


@dataclass(frozen=True)
class PairedQuality:
    """The comparison of two candidates on the same samples.

    Attributes
    ----------
    gap
        The metric of the second candidate less that of the first.
    agreement
        The share of samples for which both predict the same, right or wrong; ``None`` if the task
        cannot say.
    """

    gap: QualityDifference
    agreement: float | None


def compute_metric_figure(
    metric: QualityMetric, evaluation: Evaluation, confidence: float
) -> Figure:
    """Return a metric of an evaluation with its interval."""
    found = compute_quality_estimate(metric, evaluation, confidence)
    if math.isnan(found.value):
        return Figure.unknown(f"{metric.title} is not defined for these samples")
    return as_figure(found, evaluation)


def as_figure(found: QualityEstimate, *evaluations: Evaluation) -> Figure:
    """Return an estimate from evaluations as a figure, which is unknown if it is not finite; the
    reason says why.
    """
    words = next(filter(None, (each.describe_nonfinite() for each in evaluations)), "")
    value = found.value if math.isfinite(found.value) else None
    return Figure(value, found.low, found.high, found.samples, words)


def compute_agreement(task: Task, one: Evaluation, other: Evaluation, confidence: float) -> Figure:
    """Return the share of samples for which two models predict the same."""
    same = task.agreement(one, other)
    if same is None:
        return Figure.unknown(f"the task {task.name!r} does not say when predictions are the same")
    if words := one.describe_nonfinite() or other.describe_nonfinite():
        return Figure(float(np.mean(same)), count=len(same), reason=words)
    return Figure(
        float(np.mean(same)), *wilson_interval(int(same.sum()), len(same), confidence), len(same)
    )


def compare_quality(
    first: Quality | None, other: Quality | None, confidence: float = CONFIDENCE
) -> PairedQuality | None:
    """Return the comparison of two candidates; ``None`` unless both were judged on the same
    samples.
    """
    if first is None or other is None or not is_comparable(first, other):
        return None
    gap = compute_quality_difference(first.metric, first.evaluation, other.evaluation, confidence)
    return PairedQuality(
        gap, compute_agreement(first.task, first.evaluation, other.evaluation, confidence).value
    )


def is_comparable(first: Quality, other: Quality) -> bool:
    """Return whether two candidates did the same task on the same samples, and were judged in
    the same way.
    """
    return (
        first.task.name == other.task.name
        and first.task.has_same_settings(first.evaluation, other.evaluation)
        and first.task.same_samples(first.evaluation, other.evaluation)
    )
