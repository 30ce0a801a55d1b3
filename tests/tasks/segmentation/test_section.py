"""A report on segmentations shows the figures of each class in the truth, and what it is taken
for.
"""

from __future__ import annotations

import numpy as np

from nnpipe.core.tensors import DatasetSpec
from nnpipe.measuring.run import Run
from nnpipe.report.document import Section, Table
from nnpipe.report.render import render
from nnpipe.tasks.segmentation.task import Segmentation


def section_of(classes: int, *shifts: int) -> Section:
    truth = np.arange(classes).repeat(4).reshape(1, -1, 4).repeat(9, axis=2)
    spec = DatasetSpec(
        "segmentation", (), (), tuple(f"class {place}" for place in range(classes + 1))
    )
    runs = [
        Run(
            f"net {shift}",
            (),
            {},
            {},
            {},
            {"batch_size": 1},
            {},
            evaluation=Segmentation().evaluate(
                {"mask": np.where(np.arange(36) < 9 * shift, classes, truth)}, {"mask": truth}, spec
            ),
        )
        for shift in shifts
    ]
    return next(each for each in render(runs, "T").sections if each.title == "Segmentation")


def test_each_class_has_a_row_and_its_confusions() -> None:
    tables = [block for block in section_of(3, 1).blocks if isinstance(block, Table)]
    classes, confusions = tables[1:]
    assert [row[0].text for row in classes.rows] == ["class 0", "class 1", "class 2"]  # type: ignore[union-attr]
    assert [row[1].text for row in classes.rows] == ["75.0\u00a0%"] * 3  # type: ignore[union-attr]
    assert [row[:2] for row in confusions.rows] == [
        (f"class {place}", "class 3") for place in range(3)
    ]
    assert [row[2].text for row in confusions.rows] == ["9"] * 3  # type: ignore[union-attr]


def test_of_many_classes_the_worst_are_shown_and_candidates_apart() -> None:
    parts = [block for block in section_of(50, 0, 1).blocks if isinstance(block, Section)]
    assert [part.title for part in parts] == ["net 0", "net 1"]
    assert all(
        isinstance(part.blocks[0], Table) and len(part.blocks[0].rows) == 40 for part in parts
    )
