"""A report on anomaly maps draws the overlap of regions, and lists the pictures whose defects
are found least.
"""

from __future__ import annotations

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensors import DatasetSpec
from nnpipe.measuring.run import Run
from nnpipe.report.charts import Lines
from nnpipe.report.document import Plot, Section, Table
from nnpipe.report.render import render
from nnpipe.tasks import AnomalyMaps


def judged(missed: int) -> Evaluation:
    """Return six pictures, the first good; of the defect in picture ``missed``, one pixel of
    four is seen.
    """
    masks = np.zeros((6, 10, 10), np.int8)
    masks[1:, 2:4, 2:4] = 1
    maps = masks.astype(np.float32)
    maps[missed, 2:4, 3], maps[missed, 3, 2] = 0, 0
    truth = {"mask": masks, "anomalous": masks.any(axis=(1, 2)).astype(np.int64)}
    return AnomalyMaps().evaluate({"map": maps}, truth, DatasetSpec("anomaly_map", (), ()))


def section_of(*evaluations: Evaluation) -> Section:
    runs = [
        Run(f"net {n}", (), {}, {}, {}, {"batch_size": 1}, {}, evaluation=found)
        for n, found in enumerate(evaluations)
    ]
    return next(each for each in render(runs, "T").sections if each.title == "Anomaly map")


def test_the_overlap_is_drawn_and_the_worst_picture_comes_first() -> None:
    section = section_of(judged(3))
    (plot,) = [block for block in section.blocks if isinstance(block, Plot)]
    assert isinstance(plot.chart, Lines)
    # Four defects are found and a quarter of the fifth; where all pixels are alarms, everything is
    # found.
    assert plot.chart.lines[0].y[0] == 0.85
    assert plot.chart.lines[0].y[-1] == 0.85 + 0.15 * 0.3
    table = [block for block in section.blocks if isinstance(block, Table)][1]
    assert [cell.text for cell in next(iter(table.cells()))] == [
        "4",
        "1",
        "25.0\u00a0%",
        "0.0\u00a0%",
    ]
    task, found = AnomalyMaps(), judged(3)
    assert task.sample_errors(found).tolist() == [0, 0, 0, 0.75, 0, 0]
    assert (
        task.describe_sample(found, 3)
        == "25.0\u00a0% of a defect is found, 0.0\u00a0% of the good pixels are alarms"
    )
    assert task.describe_sample(found, 0) == "0.0\u00a0% of the good pixels are alarms"
    parts = [
        block for block in section_of(judged(3), judged(1)).blocks if isinstance(block, Section)
    ]
    assert [part.title for part in parts] == ["net 0", "net 1"]
