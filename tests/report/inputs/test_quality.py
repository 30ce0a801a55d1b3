from __future__ import annotations

from collections.abc import Callable

from nnpipe.measuring.run import Run
from nnpipe.report.inputs.quality import CONFIDENCE, Quality, compute_metric_figure


def test_each_metric_of_a_report_is_computed_once(make_run: Callable[..., Run]) -> None:
    quality = Quality.from_run(make_run())
    assert quality is not None
    for metric in quality.task.metrics:
        found = quality.get_figure(metric)
        assert found == compute_metric_figure(metric, quality.evaluation, CONFIDENCE)
        assert quality.get_figure(metric) is found
