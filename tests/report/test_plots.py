"""Every kind of chart becomes a picture, whatever its labels and however odd its data."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from nnpipe.core.errors import MissingDependency
from nnpipe.report.charts import (
    Areas,
    Bar,
    Bars,
    Dots,
    Heatmap,
    Histogram,
    Line,
    Lines,
    Point,
    Scatter,
    Spread,
    Spreads,
)
from nnpipe.report.document import Figure
from nnpipe.report.plots import Pictures

HOSTILE = "<b> & $\\frac{1}{ \x00\ud800 日本語 " + "x" * 500
ONE, SOME = np.array([1.0]), np.arange(5.0)

CHARTS = {
    "lines": Lines("time, s", HOSTILE, (Line(HOSTILE, SOME, SOME, SOME - 1, SOME + 1), Line("b", SOME, SOME * 2))),
    "one point": Lines("time, s", "y", (Line("", ONE, ONE),)),
    "nothing but zeros": Lines("time, s", "y", (Line("", SOME, SOME * 0),), flat=True),
    "logarithmic lines": Lines("time, s", "y", (Line("", SOME, 10.0**SOME),), log_y=True),
    "areas": Areas("time, s", "ms", SOME, ((HOSTILE, SOME), ("wire", SOME), ("host", SOME))),
    "areas of one call": Areas("time, s", "ms", ONE, (("target", ONE), ("wire", ONE))),
    "histogram": Histogram("ms", "calls", np.arange(6.0), np.arange(5), ((HOSTILE, 1.0), ("p90", 1.01), ("p99", 4.9))),
    "spreads": Spreads("ms", (Spread(HOSTILE, np.arange(1.0, 7), SOME, (1.0, 2.0, 3.0), 0),) * 12, log_x=True),
    "bars": Bars("kB", tuple(Bar(HOSTILE, value, HOSTILE, number) for number, value in enumerate((0.0, 3, 1e9)))),
    "bars of nothing": Bars("kB", (Bar("a", 0, "0 B"),)),
    "scatter": Scatter(
        "ms", "%", tuple(Point(HOSTILE, n + 1, n, (0.5, n + 2), (n, n), n) for n in range(60)), log_x=True
    ),
    "one class": Heatmap("p", "t", "s", np.ones((1, 1)), np.array([[10**9]]), (HOSTILE,), 1),
    "matrix": Heatmap("p", "t", "s", np.eye(12), np.eye(12, dtype=int), (HOSTILE,) * 12, 12),
    "matrix of many": Heatmap("p", "t", "s", np.eye(250), None, (), 1000),
    "dots": Dots("%", (HOSTILE,) * 40, (("sensitivity", np.linspace(0, 100, 40)), ("precision", np.full(40, np.nan)))),
    "dots of nothing": Dots("%", ("a",), (("sensitivity", np.array([np.nan])),)),
}


@pytest.fixture(autouse=True)
def _matplotlib():
    pytest.importorskip("matplotlib", reason="matplotlib draws the plots")


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_becomes_a_picture(name):
    figure = Figure(CHARTS[name], "name", "caption", "alt")
    root = ElementTree.fromstring(Pictures().svg(figure))
    assert root.tag.endswith("svg")
    width, height = (float(number) for number in root.get("viewBox").split()[2:])
    assert width == 380
    assert 60 < height < 1200
    text = "".join(root.itertext())
    if "<b>" in repr(CHARTS[name]):
        assert "<b>" in text


def test_a_picture_can_be_had_as_pixels():
    assert Pictures().png(Figure(CHARTS["bars"], "name", "caption", "alt")).startswith(b"\x89PNG")


def test_the_same_figure_gives_the_same_file():
    figure = Figure(CHARTS["areas"], "name", "caption", "alt")
    first, second = (Pictures().svg(figure) for _ in range(2))
    assert first == second
    assert "<dc:date>" not in first


def test_drawing_leaves_no_mark_on_matplotlib():
    import matplotlib

    before = dict(matplotlib.rcParams)
    Pictures().svg(Figure(CHARTS["bars"], "name", "caption", "alt"))
    assert dict(matplotlib.rcParams) == before


def test_a_figure_is_drawn_once(monkeypatch):
    from nnpipe.report import plots

    drawn = []
    draw = plots.draw
    monkeypatch.setattr(plots, "draw", lambda chart: drawn.append(chart) or draw(chart))
    figure, pictures = Figure(CHARTS["bars"], "name", "caption", "alt"), Pictures()
    assert pictures.svg(figure) is pictures.svg(figure)
    pictures.svg(dataclasses.replace(figure, name="another"))
    assert len(drawn) == 2


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependency, match=r"pip install 'nnpipe\[report\]'"):
        Pictures().svg(Figure(CHARTS["bars"], "name", "caption", "alt"))
