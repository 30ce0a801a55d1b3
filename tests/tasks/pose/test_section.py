"""A report on poses shows every key point, and draws the pictures with the least OKS beside the
truth.
"""

from __future__ import annotations

import numpy as np

from nnpipe.core.evaluation import Evaluation
from nnpipe.core.tensors import DatasetSpec
from nnpipe.measuring.run import Run
from nnpipe.report.charts import BoxedFrame
from nnpipe.report.document import Plot, Section, Table
from nnpipe.report.drawing.pictures import Pictures
from nnpipe.report.render import render
from nnpipe.tasks.pose.task import Pose


def judged(number: int, moved: float = 20.0) -> Evaluation:
    """Return eight pictures with a person of so many key points; the third is ``moved`` pixels
    off, the last empty.
    """
    points = np.random.default_rng(0).uniform(20, 80, (8, 1, number, 3))
    points[..., 2] = 1
    points[:, :, 0, 2] = 0
    guess = points.copy()
    guess[2, ..., :2] += moved
    count = np.array([1] * 7 + [0])
    truth = {"points": points, "count": count, "size": np.tile([100, 200], (8, 1))}
    names = tuple(f"joint {place}" for place in range(number))
    return Pose().evaluate(
        {"points": guess, "count": count}, truth, DatasetSpec("pose", (), (), names)
    )


def section_of(*evaluations: Evaluation) -> Section:
    runs = [
        Run(f"net {n}", (), {}, {}, {}, {"batch_size": 1}, {}, evaluation=found)
        for n, found in enumerate(evaluations)
    ]
    return next(each for each in render(runs, "T").sections if each.title == "Pose")


def test_the_worst_picture_is_drawn_first_with_limbs() -> None:
    section = section_of(judged(17))
    drawn = [block for block in section.blocks if isinstance(block, Plot)]
    assert len(drawn) == 6
    assert "sample 3:" in drawn[0].caption
    frame = drawn[0].chart
    assert isinstance(frame, BoxedFrame)
    truth, guess = (group.lines for group in frame.groups)
    # 14 of COCO's 16 limbs do not touch the nose, which is not known; and a marker for each of the
    # other 16 points.
    assert [len(truth), len(guess)] == [14 + 16] * 2
    np.testing.assert_allclose(guess[-1] - truth[-1], 20, atol=1e-3)
    assert "net 0" in Pictures().render_svg(drawn[0])


def test_pictures_are_kept_of_the_samples_that_are_drawn() -> None:
    errors = Pose().sample_errors(judged(3))
    assert int(np.nanargmax(errors)) == 2
    assert 0.1 < errors[2] <= 1


def test_a_line_leads_from_each_true_point_to_the_predicted_one_if_there_are_no_limbs() -> None:
    section = section_of(judged(3))
    plot = next(block for block in section.blocks if isinstance(block, Plot))
    assert isinstance(plot.chart, BoxedFrame)
    truth, guess = (group.lines for group in plot.chart.groups)
    assert [len(line) for line in truth] == [1, 1]  # the nose is not known
    assert [len(line) for line in guess] == [1, 1, 2, 2]
    for place in range(2):
        np.testing.assert_allclose(guess[2 + place], np.concatenate([truth[place], guess[place]]))
    assert "from each true one" in plot.caption


def test_every_key_point_has_its_row() -> None:
    tables = [block for block in section_of(judged(3)).blocks if isinstance(block, Table)]
    points, worst = tables[1:]
    assert [str(row[0]) for row in points.rows] == ["joint 0", "joint 1", "joint 2"]
    assert [row[3].text for row in points.rows] == ["0", "7", "7"]  # type: ignore[union-attr]
    assert worst.rows[0][0].text == "3"  # type: ignore[union-attr]
    assert len(worst.rows) == 7


def test_several_candidates_have_a_part_each() -> None:
    parts = [
        block
        for block in section_of(judged(3), judged(3, 1.0)).blocks
        if isinstance(block, Section)
    ]
    assert [part.title for part in parts] == ["net 0", "net 1"]
    assert all(sum(isinstance(block, Plot) for block in part.blocks) == 3 for part in parts)
