"""A report on masks shows the figures of each class, and the pictures in which most things are
missed.
"""

from __future__ import annotations

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensors import DatasetSpec
from nnpipe.measuring.run import Run
from nnpipe.report.document import Section, Table
from nnpipe.report.render import render
from nnpipe.tasks import InstanceSegmentation
from nnpipe.tasks.instance_segmentation.run_lengths import encode_mask_runs


def judged(missed: int) -> Evaluation:
    """Return four pictures with a cat and a dog each; the dog of picture ``missed`` is seen
    elsewhere.
    """
    masks = np.zeros((2, 20, 20), bool)
    masks[0, 2:8, 2:8] = masks[1, 10:19, 3:9] = True
    runs = np.tile(np.stack([encode_mask_runs(mask)[:13] for mask in masks])[None], (4, 1, 1))
    truth = {"runs": runs, "class": np.tile([0, 1], (4, 1)), "size": np.full((4, 2), 20)}
    bitmaps = np.tile(masks[None].astype(np.float32), (4, 1, 1, 1))
    bitmaps[missed, 1] = np.roll(bitmaps[missed, 1], 10, axis=1)
    given = {"masks": bitmaps, "class": truth["class"], "scores": np.tile([0.9, 0.8], (4, 1))}
    return InstanceSegmentation().evaluate(
        given, truth, DatasetSpec("instance_segmentation", (), (), ("cat", "dog"))
    )


def section_of(*evaluations: Evaluation) -> Section:
    runs = [
        Run(f"net {n}", (), {}, {}, {}, {"batch_size": 1}, {}, evaluation=found)
        for n, found in enumerate(evaluations)
    ]
    return next(
        each for each in render(runs, "T").sections if each.title == "Instance segmentation"
    )


def test_the_worst_class_and_picture_come_first() -> None:
    found = judged(2)
    section = section_of(found)
    classes, pictures = [block for block in section.blocks if isinstance(block, Table)][1:]
    rows = [[cell.text for cell in row] for row in classes.cells()]
    assert [row[0] for row in rows] == ["dog", "cat"]
    assert rows[0][2:] == ["75.0\u00a0%", "4", "4"]
    assert rows[1][1:] == ["100.0\u00a0%", "100.0\u00a0%", "4", "4"]
    precisions = [float(row[1].value or 0) for row in classes.cells()]
    task = InstanceSegmentation()
    np.testing.assert_allclose(np.mean(precisions), task.metric("mask_ap50").compute(found))
    assert [[cell.text for cell in row] for row in pictures.cells()] == [["3", "1", "2"]]
    assert task.sample_errors(found).tolist() == [0, 0, 1, 0]
    assert task.describe_sample(found, 2) == "1 of 2 masks are not found"
    parts = [
        block for block in section_of(judged(0), judged(1)).blocks if isinstance(block, Section)
    ]
    assert [part.title for part in parts] == ["net 0", "net 1"]
