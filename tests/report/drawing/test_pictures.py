"""Every kind of chart becomes a picture, whatever its labels and however odd its data."""

from __future__ import annotations

import base64
import dataclasses
import io
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnpipe.core.errors import MissingDependency
from nnpipe.report.charts import (
    Areas,
    Bar,
    Bars,
    BoxedFrame,
    BoxGroup,
    ChartPoint,
    Distribution,
    Distributions,
    DotPlot,
    Heatmap,
    Histogram,
    Interval,
    Intervals,
    Line,
    Lines,
    Scatter,
)
from nnpipe.report.document import Plot
from nnpipe.report.drawing.axes import AxisRange, estimate_text_length
from nnpipe.report.drawing.pictures import Pictures, draw, render_svg_body
from nnpipe.report.drawing.shapes import Drawing, Path, TextLine

HOSTILE = "<b> & $\\frac{1}{ \x00\ud800 日本語 " + "x" * 500
EDGES = np.array([(-5.0, 0, 30, 9), (0, 0, 1, 1), (60, 40, 30, 30)])
ONE, SOME = np.array([1.0]), np.arange(5.0)

CHARTS = {
    "lines": Lines(
        "time, s",
        HOSTILE,
        (Line(HOSTILE, SOME, SOME, SOME - 1, SOME + 1), Line("b", SOME, SOME * 2)),
    ),
    "one point": Lines("time, s", "y", (Line("", ONE, ONE),)),
    "nothing but zeros": Lines("time, s", "y", (Line("", SOME, SOME * 0),), flat=True),
    "logarithmic lines": Lines("time, s", "y", (Line("", SOME, 10.0**SOME),), log_y=True),
    "many lines and points": Lines(
        "x",
        "y",
        (*(Line(f"line {n}", SOME, SOME + n) for n in range(9)), Line("p", SOME, SOME, loose=True)),
    ),
    "areas": Areas("time, s", "ms", SOME, ((HOSTILE, SOME), ("wire", SOME), ("host", SOME))),
    "areas of one call": Areas("time, s", "ms", ONE, (("target", ONE), ("wire", ONE))),
    "histogram": Histogram(
        "ms", "calls", np.arange(6.0), np.arange(5), ((HOSTILE, 1.0), ("p90", 1.01), ("p99", 4.9))
    ),
    "spreads": Distributions(
        "ms",
        (Distribution(HOSTILE, np.arange(1.0, 7), SOME / 4, (1.0, 2.0, 3.0), 0),) * 12,
        log_x=True,
    ),
    "bars": Bars(
        "kB",
        tuple(Bar(HOSTILE, value, HOSTILE, number) for number, value in enumerate((0.0, 3, 1e9))),
    ),
    "bars of nothing": Bars("kB", (Bar("a", 0, "0 B"),)),
    "scatter": Scatter(
        "ms",
        "%",
        tuple(ChartPoint(HOSTILE, n + 1, n, (0.5, n + 2), (n, n), n) for n in range(60)),
        log_x=True,
    ),
    "intervals": Intervals(
        "ratio",
        (
            Interval(HOSTILE, 1.02, (1.01, 1.03), HOSTILE, 0),
            Interval("b", 1.0, (0.9, 1.1), "b", 1, clear=False),
            Interval("c", 3.0, None, "c", 2, clear=False),
        ),
        1.0,
        0.05,
    ),
    "a candidate by itself": Scatter(
        "ms", "%", (ChartPoint("a", 1, 1, (1, 1), (1, 1), 0, on_front=False),)
    ),
    "one class": Heatmap("p", "t", "s", np.ones((1, 1)), np.array([[10**9]]), (HOSTILE,), 1),
    "matrix": Heatmap("p", "t", "s", np.eye(12), np.eye(12, dtype=int), (HOSTILE,) * 12, 12),
    "matrix of many": Heatmap("p", "t", "s", np.eye(250), None, (), 1000),
    "dots": DotPlot(
        "%",
        (HOSTILE,) * 40,
        (("sensitivity", np.linspace(0, 100, 40)), ("precision", np.full(40, np.nan))),
    ),
    "boxes": BoxedFrame(
        64, 48, tuple(BoxGroup(HOSTILE, EDGES, (HOSTILE,) * 3, colour) for colour in (-1, 0))
    ),
    "boxes in a narrow picture": BoxedFrame(20, 900, (BoxGroup("a", EDGES, ("red 0.50",) * 3, 0),)),
    "dots of nothing": DotPlot("%", ("a",), (("sensitivity", np.array([np.nan])),)),
}


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_becomes_a_picture(name):
    figure = Plot(CHARTS[name], "name", "caption", "alt")
    root = ElementTree.fromstring(Pictures().render_svg(figure))
    assert root.tag.endswith("svg")
    width, height = (float(number) for number in root.get("viewBox").split()[2:])
    assert width == 380
    assert 60 < height < 1200
    text = "".join(root.itertext())
    if "<b>" in repr(CHARTS[name]):
        assert "<b>" in text


@pytest.mark.parametrize("name", CHARTS)
def test_pictures_of_a_page_have_no_names_and_no_colours_of_their_own(name):
    element = Pictures().render_inline(Plot(CHARTS[name], "name", "caption", HOSTILE))
    root = ElementTree.fromstring(element)
    assert root.get("role") == "img"
    assert "<b>" in root.get("aria-label")
    for part in root.iter():
        assert "id" not in part.attrib
        assert part.get("fill", "none") == "none" or part.get("fill").startswith("var(--")
        assert part.get("stroke", "var(--").startswith("var(--")


@pytest.mark.parametrize("name", CHARTS)
def test_whatever_is_drawn_lies_within_the_picture(name):
    drawing = draw(CHARTS[name])
    for shape in drawing.shapes:
        if isinstance(shape, Path):
            for part in shape.parts:
                assert np.isfinite(part).all()
                assert (part >= -0.01).all()
                assert (part <= (drawing.width + 0.01, drawing.height + 0.01)).all()
        else:
            assert 0 <= shape.x <= drawing.width
            assert 0 <= shape.y <= drawing.height


def test_texts_of_boxes_are_apart_from_each_other():
    corners = np.array([(10.0, 10, 30, 25), (10, 10, 28, 22), (11, 11, 30, 25), (40, 2, 12, 12)])
    groups = (
        BoxGroup("truth", corners, ("red",) * 4, -1),
        BoxGroup("model", corners + 0.3, ("red 0.91",) * 4, 0),
    )
    drawing = draw(BoxedFrame(64, 48, groups))
    texts = [
        shape
        for shape in drawing.shapes
        if isinstance(shape, TextLine) and shape.text.startswith("red")
    ]
    assert len(texts) == 8
    for place, one in enumerate(texts):
        for other in texts[:place]:
            beside = min(
                one.x + estimate_text_length(one.text, 10.5),
                other.x + estimate_text_length(other.text, 10.5),
            ) <= max(one.x, other.x)
            assert beside or abs(one.y - other.y) >= 10.5, (one, other)


def test_no_two_lines_look_alike_and_points_have_a_colour_of_their_own():
    shapes = [
        shape for shape in draw(CHARTS["many lines and points"]).shapes if isinstance(shape, Path)
    ]
    series = [shape for shape in shapes if shape.stroke.startswith("series")]
    styles = [(shape.stroke, shape.dashed) for shape in series]
    assert len(set(styles)) == 9
    assert len(styles) == 18, "each line and its key"
    assert [len(shape.parts) for shape in shapes if shape.fill == "ink"] == [len(SOME), 1]


def test_rings_are_closed():
    for shape in draw(CHARTS["dots"]).shapes:
        if isinstance(shape, Path) and not shape.fill and len(shape.parts[0]) > 3:
            for part in shape.parts:
                np.testing.assert_array_equal(part[0], part[-1])


def test_a_path_in_svg_leads_where_the_points_are():
    random = np.random.default_rng(0)
    points = random.uniform(0, 2000, (500, 2))
    (path,) = ElementTree.fromstring(
        render_svg_body(Drawing(2000, 2000, (Path((points,), stroke="ink"),)))
    ).iter()
    start, steps = path.get("d")[1:].split("l")
    numbers = [float(number) for number in re.findall(r"-?[0-9.]+", steps)]
    found = np.cumsum(
        np.vstack([[float(word) for word in start.split()], np.reshape(numbers, (-1, 2))]), axis=0
    )
    np.testing.assert_allclose(found, points, atol=0.051)


@given(st.floats(-1e9, 1e9), st.floats(1e-9, 1e9), st.booleans())
def test_an_axis_is_divided_within_its_ends(low, length, log):
    low = abs(low) + 1e-6 if log else low
    span = AxisRange(low, low + max(length, 1e-9 * abs(low)), log)
    ticks = span.find_ticks()
    assert ticks == sorted(set(ticks))
    assert 1 <= len(ticks) <= 30
    assert (span.shares(ticks) >= -1e-6).all()
    assert (span.shares(ticks) <= 1 + 1e-6).all()


@pytest.mark.parametrize(
    ("low", "high", "log", "ticks"),
    [
        (0, 1, False, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 105, False, [0, 25, 50, 75, 100]),
        (-3, 7, False, [-2, 0, 2, 4, 6]),
        (20, 1200, True, [20, 50, 100, 200, 500, 1000]),
        (1.2, 1.9, True, [1.2, 1.4, 1.6, 1.8]),
        (1, 1e6, True, [1, 10, 100, 1e3, 1e4, 1e5, 1e6]),
    ],
)
def test_axes_are_divided_at_round_numbers(low, high, log, ticks):
    assert AxisRange(low, high, log).find_ticks() == pytest.approx(ticks)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (number % 2))
        for number, name in enumerate(CHARTS)
    ],
)
def test_a_picture_can_be_had_as_pixels(name):
    image = pytest.importorskip("PIL.Image", reason="Pillow reads PNG")
    pytest.importorskip("matplotlib", reason="matplotlib draws PNG")
    figure = Plot(CHARTS[name], "name", "caption", "alt")
    opened = image.open(io.BytesIO(Pictures().render_png(figure)))
    drawing = draw(figure.chart)
    assert opened.size == pytest.approx((2 * drawing.width, 2 * drawing.height), abs=1)
    assert len(opened.convert("RGB").getcolors(1 << 24)) > 2


def test_the_picture_of_a_large_matrix_holds_every_cell():
    image = pytest.importorskip("PIL.Image", reason="Pillow reads PNG")
    root = ElementTree.fromstring(
        Pictures().render_svg(Plot(CHARTS["matrix of many"], "name", "caption", "alt"))
    )
    (element,) = (part for part in root.iter() if part.tag.endswith("image"))
    data = base64.b64decode(element.get("href").removeprefix("data:image/png;base64,"))
    pixels = np.asarray(image.open(io.BytesIO(data)).convert("RGBA"))
    np.testing.assert_array_equal(pixels[..., 3], 255 * np.eye(250, dtype=np.uint8))


def test_the_same_figure_gives_the_same_file():
    figure = Plot(CHARTS["areas"], "name", "caption", "alt")
    assert Pictures().render_svg(figure) == Pictures().render_svg(figure)


def test_text_that_looks_like_a_colour_stays_text():
    text = '="var(--ink)"'
    svg = Pictures().render_svg(Plot(Bars(text, (Bar(text, 1, text),)), "name", "caption", "alt"))
    assert "".join(ElementTree.fromstring(svg).itertext()).count(text) == 3


def test_a_figure_is_drawn_once(monkeypatch):
    from nnpipe.report.drawing import pictures

    drawn = []
    monkeypatch.setattr(pictures, "draw", lambda chart: drawn.append(chart) or draw(chart))
    figure, pictures = Plot(CHARTS["bars"], "name", "caption", "alt"), Pictures()
    assert pictures.render_svg(figure) == pictures.render_svg(figure)
    pictures.render_inline(figure)
    pictures.render_svg(dataclasses.replace(figure, name="another"))
    assert len(drawn) == 2


def test_without_matplotlib_pixels_say_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    figure = Plot(CHARTS["bars"], "name", "caption", "alt")
    Pictures().render_svg(figure)
    with pytest.raises(MissingDependency, match=r"pip install 'nnpipe\[report\]'"):
        Pictures().render_png(figure)
