"""The page says what the document says, needs no network, and cannot be taken over by text."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_examples import examples

pytest.importorskip("jinja2", reason="Jinja2 writes the page")

from nnpipe.report.charts import Bar, Bars
from nnpipe.report.document import (
    Cell,
    CommandLine,
    Document,
    Paragraph,
    Plot,
    Section,
    Table,
    Tile,
    Tiles,
)
from nnpipe.report.drawing.pictures import Pictures
from nnpipe.report.formatting import clean
from nnpipe.report.render import render
from nnpipe.report.writers.html import to_html, write_html

VOID = {"meta", "link", "br", "img"}
HOSTILE = [
    "<script>alert(1)</script>",
    "</style><img src=http://example.com/x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "' onclick='alert(1)",
    "&lt;b&gt; &amp; &#60;",
    "]]> --> <!-- ",
    "{{ 7 * 7 }} {% raw %} {# #}",
    "$\\frac{1}{",
    "</title></script></svg>",
    "\x00\x08\ud800\u202e\ufffe",
    "日本語 עברית 😀",
]
text = st.one_of(
    st.text(max_size=40), st.sampled_from(HOSTILE), st.text("<>&\"'/=! -{}%#aonclick", max_size=25)
)


class Skeleton(HTMLParser):
    """What a page is made of, without its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.addresses: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag == "wbr":  # where a line may end depends on the letters
            return
        self.tags.append((tag, tuple(name for name, _ in attributes)))
        self.addresses += [
            value
            for name, value in attributes
            if name in ("href", "src", "xlink:href", "data", "action")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")


def everything(title, name):
    bars = Bars(name, (Bar(name, 1.0, name), Bar("other", 2.0, name)))
    return Document(
        title,
        (
            Section(
                name,
                (
                    Paragraph(name),
                    Paragraph(name, "warning"),
                    CommandLine(name),
                    Table(
                        (name, "x"),
                        ((name, Cell(name, 1.0, name, best=True)),),
                        caption=name,
                        sortable=True,
                    ),
                    Table((name,), ((name,),), caption=name, folded=True),
                    Tiles((Tile(name, name, name),)),
                    Plot(bars, "bars", name, name),
                    Section(name, (Paragraph(name, "note"),)),
                    Section("b", (Paragraph(name, "note"),)),
                ),
            ),
        ),
        name,
    )


PLAIN = Skeleton(to_html(everything("title", "name")))


@settings(max_examples=examples(25), deadline=None)
@given(text.filter(lambda content: clean(content)), text.filter(lambda content: clean(content)))
def test_no_text_breaks_out_of_its_place(title, name):
    page = Skeleton(to_html(everything(title, name)))
    assert page.tags == PLAIN.tags
    assert page.open == []
    assert " ".join(clean(title).split()) in " ".join(" ".join(page.words).split())


def test_hostile_runs_are_shown_as_text(make_run):
    names = tuple(f"{number} {hostile}" for number, hostile in enumerate(HOSTILE))
    runs = [
        make_run(hostile, seed=seed, class_names=names) for seed, hostile in enumerate(HOSTILE[:3])
    ]
    plain = [make_run("x" * seed, seed=seed, class_names=tuple("abcdefghijk")) for seed in range(3)]
    found, expected = (Skeleton(to_html(render(some, "Title"))) for some in (runs, plain))
    assert {tag for tag, _ in found.tags} <= {tag for tag, _ in expected.tags}
    attributes, known = (
        {name for _, names in page.tags for name in names} for page in (found, expected)
    )
    assert attributes <= known
    assert "".join(found.words).count(HOSTILE[0]) > 5


def test_a_page_asks_the_network_for_nothing(make_run, tmp_path):
    write_html(
        render([make_run("one", gpu=True), make_run("two", seed=2, wire=True)], "Title"),
        tmp_path / "page.html",
    )
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page
    addresses = Skeleton(page).addresses
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert not re.search(r"url\((?!#)", page)
    # And were there anything to ask for, the browser would be told not to.
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1].replace(
        "&#39;", "'"
    )
    assert "default-src 'none'" in policy
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    assert f"script-src 'sha256-{digest}'" in policy


def test_names_in_a_page_are_used_once_and_every_link_leads_somewhere(make_run):
    page = to_html(render([make_run("Performance"), make_run("Performance", seed=2)], "Title"))
    names = re.findall(r' id="([^"]*)"', page)
    assert len(names) == len(set(names))
    assert {link[1:] for link in Skeleton(page).addresses if link.startswith("#")} <= set(names)
    assert set(re.findall(r"url\(#([^)]*)\)", page)) <= set(names)


def test_colours_of_plots_follow_the_page(make_run):
    page = to_html(render([make_run("one")], "Title"))
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert pictures
    for plot in pictures:
        assert "var(--muted)" in plot
        assert not re.search("#(1b1f24|57606a|d5dae0|ffffff|0072b2)", plot)
        assert "font-family" not in plot
        assert "<style" not in plot


def test_pictures_are_drawn_once_for_both_writers(make_run, tmp_path, monkeypatch):
    from nnpipe.report.drawing import pictures
    from nnpipe.report.writers.rst import write_rst

    drawn = []
    draw = pictures.draw
    monkeypatch.setattr(pictures, "draw", lambda chart: drawn.append(chart) or draw(chart))
    document, pictures = render([make_run("one")], "Title"), Pictures()
    write_rst(document, tmp_path / "a.rst", pictures=pictures)
    write_html(document, tmp_path / "a.html", pictures=pictures)
    assert len(drawn) == len(list(document.figures()))
