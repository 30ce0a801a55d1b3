"""Reports show the worst samples, and nothing that only claims to be a picture."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
from installed import needs

from nnpipe.core.evaluation import Evaluation, Ragged
from nnpipe.measuring.sample_pictures import CURVE, LARGEST, PICTURE
from nnpipe.report.charts import BoxedFrame, Lines
from nnpipe.report.drawing.pictures import Pictures, draw
from nnpipe.report.task_section import _create_sample_chart, get_sample_picture
from nnpipe.report.writers.html import to_html


def jpeg(width: int = 30, height: int = 20) -> bytes:
    needs("PIL")
    from PIL import Image

    target = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 30)).save(target, "JPEG")
    return target.getvalue()


def keeping(content: bytes) -> Evaluation:
    values = np.frombuffer(content, np.uint8)
    arrays = {"truth": np.array([0, 1]), "predicted": np.array([1, 1]), "rank": np.array([1, 0])}
    return Evaluation(
        "classification", arrays, ("a", "b"), {PICTURE: Ragged(values, np.array([len(values), 0]))}
    )


def test_a_picture_has_its_own_shape_and_is_part_of_the_page() -> None:
    chart = _create_sample_chart(keeping(jpeg()), 0)
    assert isinstance(chart, BoxedFrame)
    assert (chart.width, chart.height) == (30, 20)
    from nnpipe.report.document import Plot

    assert 'href="data:image/jpeg;base64,' in Pictures().render_inline(Plot(chart, "a", "a", "a"))
    assert _create_sample_chart(keeping(jpeg()), 1) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<svg onload='x'>",
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xc0" + bytes(20),
        bytes(LARGEST + 1),
    ],
)
def test_what_is_no_picture_is_not_shown(content: bytes) -> None:
    assert _create_sample_chart(keeping(content), 0) is None


def test_a_file_of_another_kind_does_not_become_a_picture() -> None:
    needs("matplotlib")
    from nnpipe.report.drawing.pictures import to_png

    lying = keeping(jpeg()[:40] + b"\x00" * 100)
    assert get_sample_picture(lying, 0)
    frame = BoxedFrame(30, 20, (), get_sample_picture(lying, 0))
    assert to_png(draw(frame)).startswith(b"\x89PNG")


def test_a_curve_below_zero_is_drawn_whole() -> None:
    rows = np.stack([-np.ones(50), np.ones(50)], axis=1).astype(np.float32)
    arrays = {"truth": np.zeros(1), "predicted": np.ones(1)}
    chart = _create_sample_chart(
        Evaluation("regression", arrays, ragged={CURVE: Ragged(rows, np.array([50]))}), 0
    )
    assert isinstance(chart, Lines)
    drawn = draw(chart)
    assert (
        max(
            float(part[:, 1].max())
            for shape in drawn.shapes
            for part in getattr(shape, "parts", ())
        )
        < drawn.height
    )


def test_pictures_of_samples_are_small_and_curves_are_not(make_run) -> None:
    from nnpipe.report.document import Plot, Section
    from nnpipe.report.render import render

    curve = Ragged(np.tile([0.0, 1.0], (5, 1)), np.array([0, 5]))
    found = keeping(jpeg())
    both = Evaluation(found.task, found.arrays, found.class_names, {**found.ragged, CURVE: curve})
    document = render([dataclasses.replace(make_run("one"), evaluation=both)], "T")
    section = next(each for each in document.sections if each.title == "Classification")
    worst = next(
        block
        for block in section.blocks
        if isinstance(block, Section) and block.title == "Worst samples"
    )
    plots = [block for block in worst.blocks if isinstance(block, Plot)]
    assert [(type(plot.chart), plot.small) for plot in plots] == [
        (BoxedFrame, True),
        (Lines, False),
    ]
    page = to_html(document)
    assert page.count('<div class="small figures">') == 1
