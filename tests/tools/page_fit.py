"""Whether a page in a browser fits its window: nothing beyond its edge, and letters that can be
read.
"""

from __future__ import annotations

from typing import Any

_BEYOND = """() => [...document.querySelectorAll("main :is(p, dl, figure, h1, h2, h3, svg, input, button)")]
    .filter(element => !element.closest(".scroll") && element.getBoundingClientRect().right > innerWidth + 1)
    .map(element => element.outerHTML.slice(0, 200))"""
# Letters of plots shrink with them, and should not do so below what can be read.
_SMALLEST = """() => Math.min(...[...document.querySelectorAll("svg text")].map(text => {
    const picture = text.ownerSVGElement;
    const scale = picture.getBoundingClientRect().width / picture.viewBox.baseVal.width;
    return scale * parseFloat(text.getAttribute("font-size"));
}))"""
_LEAST_LETTERS = 9  # pixels


def assert_fits(page: Any, width: int) -> None:
    """Assert that nothing but wide tables must be scrolled sideways, and that the letters of
    plots can be read.
    """
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(_BEYOND) == []
    smallest = page.evaluate(_SMALLEST)
    # JSON has no infinity: there are no letters
    assert smallest is None or smallest > _LEAST_LETTERS
