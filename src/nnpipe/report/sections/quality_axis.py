"""The axis of plots on which more is better: a metric of quality, in per cent if it is a share."""

from __future__ import annotations

from dataclasses import dataclass

from nnpipe.core.quality_metric import QualityMetric
from nnpipe.measuring.quantities import in_sentence
from nnpipe.report.inputs.quality import Quality
from nnpipe.report.quantity_text import written


@dataclass(frozen=True)
class QualityAxis:
    """How a metric is drawn upwards; errors are drawn with their sign turned.

    Parameters
    ----------
    metric
        The metric.
    factor
        What values are multiplied by.
    """

    metric: QualityMetric
    factor: float

    @classmethod
    def of(cls, quality: Quality) -> QualityAxis:
        """Return the axis for the metric by which candidates of a task are ranked."""
        metric = quality.metric
        return cls(metric, (100.0 if metric.kind == "share" else 1.0) * (-1 if metric.less_is_better else 1))

    @property
    def label(self) -> str:
        """The text beside the axis, which is short, because the axis is."""
        title = in_sentence(self.metric.heading)
        return ("−" if self.metric.less_is_better else "") + title + (", %" if self.metric.kind == "share" else "")

    def place(self, value: float) -> float:
        """Return where a value is drawn."""
        return self.factor * value

    def ends(self, interval: tuple[float, float]) -> tuple[float, float]:
        """Return where the ends of an interval are drawn, the lower one first."""
        low, high = sorted(self.factor * end for end in interval)
        return low, high

    def text(self, quality: Quality) -> str:
        """Return a candidate's metric as text."""
        return written(quality.quantity, quality.value)

    def picture(self, against: str) -> str:
        """Return the name of the picture that shows the metric against something."""
        return f"{self.metric.name.replace('_', '-')}-against-{against}"
