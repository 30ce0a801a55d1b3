"""Plots that compare all candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnpipe.core.quality_metric import QualityMetric
from nnpipe.measuring.pareto_front import on_front
from nnpipe.measuring.quantities import format_in_sentence
from nnpipe.report.charts import Bar, Bars, ChartPoint, Distribution, Distributions, Scatter
from nnpipe.report.document import Plot
from nnpipe.report.formatting import Scale, format_duration, format_share, format_size
from nnpipe.report.inputs.candidate import Candidate, have_same_samples
from nnpipe.report.inputs.pareto_front import ParetoStanding, is_barred
from nnpipe.report.inputs.quality import Quality
from nnpipe.report.quantity_text import format_quantity


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
    def from_quality(cls, quality: Quality) -> QualityAxis:
        """Return the axis for the metric by which candidates of a task are ranked."""
        metric = quality.metric
        return cls(
            metric,
            (100.0 if metric.kind == "share" else 1.0) * (-1 if metric.less_is_better else 1),
        )

    @property
    def label(self) -> str:
        """The text beside the axis, which is short, because the axis is."""
        title = format_in_sentence(self.metric.heading)
        return (
            ("−" if self.metric.less_is_better else "")
            + title
            + (", %" if self.metric.kind == "share" else "")
        )

    def place(self, value: float) -> float:
        """Return where a value is drawn."""
        return self.factor * value

    def to_coordinates(self, interval: tuple[float, float]) -> tuple[float, float]:
        """Return where the ends of an interval are drawn, the lower one first."""
        low, high = sorted(self.factor * end for end in interval)
        return low, high

    def text(self, quality: Quality) -> str:
        """Return a candidate's metric as text."""
        return format_quantity(quality.quantity, quality.value)

    def picture(self, against: str) -> str:
        """Return the name of the picture that shows the metric against something."""
        return f"{self.metric.name.replace('_', '-')}-against-{against}"


_BINS = 48
_MOST_DRAWN = 24  # greatest number of candidates below each other in a picture
_DECADE = 8  # from this ratio on the axis is logarithmic, so that fast candidates stay apart
_LEVEL = 1.05  # sizes up to this ratio count as equal
_FRONT = ". The broken line is the front; what another beats in both is pale"


def build_overview(
    candidates: Sequence[Candidate], found: Mapping[int, ParetoStanding], *, judged: bool = False
) -> list[Plot]:
    """Return plots of the candidates' times, of quality against time and size, and of their sizes.

    ``found`` is the result of :func:`~nnpipe.report.inputs.pareto_front.compute_pareto_standings`.
    Plots of quality are left out if the candidates are ``judged`` already, because an earlier
    section has them."""
    if judged:
        return [
            figure
            for figure in (_plot_time_distributions(candidates), _plot_sizes(candidates))
            if figure is not None
        ]
    figures = [
        _plot_time_distributions(candidates),
        _plot_quality_against_time(candidates, found),
        _plot_quality_against_size(candidates),
    ]
    return [figure for figure in (*figures, _plot_sizes(candidates)) if figure is not None]


def _plot_time_distributions(candidates: Sequence[Candidate]) -> Plot | None:
    timed = [(c, c.latency) for c in candidates if c.latency is not None]
    if not timed or len({c.timed.name for c, _ in timed}) > 1:
        return None
    more = len(timed) - _MOST_DRAWN
    if more > 0:
        timed = sorted(timed, key=lambda pair: pair[1].median)[:_MOST_DRAWN]
    title = timed[0][0].timed.title
    scale = Scale.from_times([latency.median for _, latency in timed])
    ends = [(latency.quantile(0.005), latency.quantile(0.99)) for _, latency in timed]
    least, greatest = min(low for low, _ in ends), max(high for _, high in ends)
    log = bool(least > 0 and greatest / least > _DECADE)
    rows = []
    for (candidate, latency), (low, high) in zip(timed, ends, strict=True):
        high = max(high, low * 1.001, low + 1)
        edges = np.geomspace(low, high, _BINS + 1) if log else np.linspace(low, high, _BINS + 1)
        counts, _ = np.histogram(latency.ordered, edges)
        quartiles = (latency.quantile(0.25), latency.median, latency.quantile(0.75))
        lower, middle, upper = (value / scale.divisor for value in quartiles)
        rows.append(
            Distribution(
                candidate.name,
                edges / scale.divisor,
                counts / max(1, counts.max()),
                (lower, middle, upper),
                candidate.number,
            )
        )
    return Plot(
        Distributions(f"{title}, {scale.unit}", tuple(rows), log),
        "inference-times",
        f"Distribution of the {title} up to p99: the point is the median, the bar holds the middle "
        f"half"
        + (
            f". The {_MOST_DRAWN} fastest are drawn, {more:,} more are in the table"
            if more > 0
            else ""
        ),
        f"Distributions of the {title}. Medians: "
        + ", ".join(
            f"{candidate.name} {format_duration(latency.median)}" for candidate, latency in timed
        )
        + ".",
    )


def _plot_quality_against_time(
    candidates: Sequence[Candidate], found: Mapping[int, ParetoStanding]
) -> Plot | None:
    judged = [
        (c, c.latency, c.quality)
        for c in candidates
        if c.latency is not None and c.quality is not None
    ]
    chosen = [each for each in judged if each[2].is_known]
    alike = len({(c.timed.name, quality.metric.name) for c, _, quality in chosen}) == 1
    # If all are equally good, the plot would only show the times, which the plot above shows.
    if (
        len(chosen) < 2
        or not alike
        or not chosen[0][0].timed.ranks
        or len({each.value for _, _, each in chosen}) == 1
    ):
        return None
    axis = QualityAxis.from_quality(chosen[0][2])
    title = chosen[0][0].timed.title
    medians = [latency.median for _, latency, _ in chosen]
    scale = Scale.from_times(medians)
    points = []
    for candidate, latency, quality in chosen:
        low, high = latency.percentile(0.5).interval or (latency.median, latency.median)
        standing = found.get(candidate.number)
        tip = f"{candidate.name}: {axis.text(quality)} in {format_duration(latency.median)}"
        if standing is not None:
            tip += f"; on the front in {format_share(standing.share, 0)} of draws"
        points.append(
            ChartPoint(
                candidate.name,
                latency.median / scale.divisor,
                axis.place(quality.value),
                (low / scale.divisor, high / scale.divisor),
                axis.to_coordinates(quality.interval),
                candidate.number,
                not found or (standing is not None and standing.on_front),
                tip,
            )
        )
    return Plot(
        Scatter(
            f"median {title}, {scale.unit}",
            axis.label,
            tuple(points),
            _is_wide(medians),
            front=bool(found),
        ),
        axis.picture("time"),
        f"{axis.metric.title} against {title}; up and to the left is better. Bars: 95\u00a0% "
        f"intervals" + _format_omitted(len(judged) - len(chosen)) + _FRONT * bool(found),
        f"{axis.metric.title} and median {title}: "
        + "; ".join(point.tip for point in points)
        + ".",
    )


def _plot_quality_against_size(candidates: Sequence[Candidate]) -> Plot | None:
    """Return the plot; ``None`` unless there are three candidates and a trade-off between
    quality and size.
    """
    judged = [(c, c.size, c.quality) for c in candidates if c.size and c.quality is not None]
    chosen = [each for each in judged if each[2].is_known]
    if len(chosen) < 3 or not have_same_samples(candidates):
        return None
    sizes, ranks = [value for _, value, _ in chosen], [quality.rank for _, _, quality in chosen]
    values = np.array([sizes, [-rank for rank in ranks]], np.float64).T
    # what cannot be chosen beats nothing
    values[[is_barred(candidate) for candidate, _, _ in chosen]] = np.nan
    best = on_front(values)
    if max(sizes) <= _LEVEL * min(sizes) or len(set(ranks)) == 1 or best.sum() < 2:
        return None
    scale, axis = Scale.from_sizes(sizes), QualityAxis.from_quality(chosen[0][2])
    points = tuple(
        ChartPoint(
            candidate.name,
            value / scale.divisor,
            axis.place(quality.value),
            (value / scale.divisor, value / scale.divisor),
            axis.to_coordinates(quality.interval),
            candidate.number,
            bool(front),
            f"{candidate.name}: {axis.text(quality)} with {format_size(value)}",
        )
        for (candidate, value, quality), front in zip(chosen, best, strict=True)
    )
    return Plot(
        Scatter(f"model size, {scale.unit}", axis.label, points, _is_wide(sizes), front=True),
        axis.picture("size"),
        f"{axis.metric.title} against the size of the model. Bars: 95\u00a0% intervals of the "
        f"quality"
        f"{_format_omitted(len(judged) - len(chosen))}{_FRONT}",
        f"{axis.metric.title} and size of the model: "
        + "; ".join(point.tip for point in points)
        + ".",
    )


def _format_omitted(number: int) -> str:
    return f". Not drawn: {number:,} whose quality is no finite number" if number else ""


def _is_wide(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) > _DECADE


def _plot_sizes(candidates: Sequence[Candidate]) -> Plot | None:
    sized = [(c, c.size) for c in candidates if c.size is not None]
    if len(sized) < 2:
        return None
    more = len(sized) - _MOST_DRAWN
    if more > 0:
        sized = sorted(sized, key=lambda pair: pair[1])[:_MOST_DRAWN]
    scale = Scale.from_sizes([max(value for _, value in sized)])
    bars = tuple(
        Bar(c.name, value / scale.divisor, format_size(value), c.number) for c, value in sized
    )
    return Plot(
        Bars(f"model size, {scale.unit}", bars),
        "model-sizes",
        "Size of the model" + (f". The {_MOST_DRAWN} smallest are drawn" if more > 0 else ""),
        "Sizes of the models: "
        + ", ".join(f"{c.name} {format_size(value)}" for c, value in sized)
        + ".",
    )
