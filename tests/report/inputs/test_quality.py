from __future__ import annotations

from collections.abc import Callable

from nnpipe.measuring.run import Run
from nnpipe.report.inputs.quality import CONFIDENCE, Quality, figure_of


def test_each_metric_of_a_report_is_computed_once(make_run: Callable[..., Run]) -> None:
    quality = Quality.of(make_run())
    assert quality is not None
    for metric in quality.task.metrics:
        found = quality.figure_of(metric)
        assert found == figure_of(metric, quality.evaluation, CONFIDENCE)
        assert quality.figure_of(metric) is found
