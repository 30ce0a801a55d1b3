"""A graph is drawn from top to bottom: no box on another, arrows around boxes, and shades by the
value.
"""

from __future__ import annotations

import itertools

import numpy as np

from nnpipe.report.charts import BoxGraph, GraphBox
from nnpipe.report.drawing.pictures import draw
from nnpipe.report.drawing.shapes import Drawing, Path, TextLine

ARROWS = ((0, 1), (1, 2), (0, 3), (0, 4), (2, 4), (3, 4))


def drawn(shades: tuple[float, ...] = (0.0, 0.2, 1.0, 0.0, 0.5)) -> Drawing:
    boxes = tuple(
        GraphBox(f"layer {n}", f"{shade:.0%}", shade, f"tip {n}") for n, shade in enumerate(shades)
    )
    return draw(BoxGraph(boxes, ARROWS, "share"))


def boxes_of(drawing: Drawing) -> list[np.ndarray]:
    return [shape.parts[0] for shape in drawing.shapes if isinstance(shape, Path) and shape.tip]


def test_boxes_are_apart_and_below_those_before_them() -> None:
    corners = boxes_of(drawn())
    assert len(corners) == 5
    for one, other in itertools.combinations(corners, 2):
        apart = (one.max(axis=0) <= other.min(axis=0)) | (other.max(axis=0) <= one.min(axis=0))
        assert apart.any()
    for source, target in ARROWS:
        assert corners[source][:, 1].max() < corners[target][:, 1].min()


def test_arrows_pass_no_box_on_their_way() -> None:
    drawing = drawn()
    corners = boxes_of(drawing)
    lines = [s.parts[0] for s in drawing.shapes if isinstance(s, Path) and s.stroke and not s.tip]
    assert len(lines) == len(ARROWS)
    for line, corner in itertools.product(lines, corners):
        inside = (line > corner.min(axis=0)) & (line < corner.max(axis=0))
        assert not inside.all(axis=1).any()


def test_the_greatest_value_has_the_darkest_shade_and_zero_has_none() -> None:
    shades = [s.opacity for s in drawn().shapes if isinstance(s, Path) and s.fill == "series-1"]
    assert len(shades) == 4  # that of the legend, and one for each value above 0
    assert max(shades) == shades[0] == shades[2]


def test_no_boxes_are_a_picture_with_its_legend() -> None:
    assert [s.text for s in draw(BoxGraph((), (), "share")).shapes if isinstance(s, TextLine)] == [
        "share"
    ]
