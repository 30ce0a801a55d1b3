"""The function that draws a chart of any kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnpipe.report.charts import (
    Areas,
    Bars,
    BoxedFrame,
    BoxGraph,
    Chart,
    Dots,
    Heatmap,
    Histogram,
    Intervals,
    Lines,
    Scatter,
    Spreads,
    StackedBars,
)
from nnpipe.report.drawing import box_charts, candidate_charts, class_charts, graph_charts, line_charts, point_charts
from nnpipe.report.drawing.shapes import Drawing
from nnpipe.report.point_charts import ParallelAxes, Points

_DRAWERS: dict[type[Any], Callable[[Any], Drawing]] = {
    Lines: line_charts.lines,
    Areas: line_charts.areas,
    Histogram: line_charts.histogram,
    Spreads: candidate_charts.spreads,
    Bars: candidate_charts.bars,
    StackedBars: candidate_charts.stacked_bars,
    Scatter: candidate_charts.scatter,
    Intervals: candidate_charts.intervals,
    Heatmap: class_charts.heatmap,
    Dots: class_charts.dots,
    BoxedFrame: box_charts.boxed_frame,
    BoxGraph: graph_charts.box_graph,
    Points: point_charts.points,
    ParallelAxes: point_charts.parallel_axes,
}


def draw(chart: Chart) -> Drawing:
    """Return the drawing of a chart."""
    return _DRAWERS[type(chart)](chart)
