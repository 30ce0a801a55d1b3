"""The RST says what the document says, and is valid whatever the text in it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from property_examples import examples

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
from nnpipe.report.formatting import clean
from nnpipe.report.writers.rst import escape_rst, to_rst, write_rst

core = pytest.importorskip("docutils.core", reason="docutils judges the RST")
nodes = pytest.importorskip("docutils.nodes", reason="docutils is not installed")

HOSTILE = [
    "*bold* **strong** `role` ``code`` |substitution| reference_ anonymous__ [1]_ _`target`",
    ".. raw:: html",
    ".. include:: /etc/passwd",
    "::",
    "text::",
    ":field: value",
    "=====",
    "- item",
    "1. one",
    "(a) letter",
    "#. auto",
    ">>> print()",
    "| line block",
    "+---+",
    "--option",
    "http://example.com/ mail@example.com javascript:alert(1)",
    "back\\slash at the end\\",
    "two\nlines\n=====",
    "\x00\x1b[31m\ud800\u202eright to left",
    "…\u00a0\u3000\u200d",
    "'quoted' \"quoted\" (*) <*>",
]
text = st.one_of(
    st.text(max_size=60),
    st.sampled_from(HOSTILE),
    st.text("*_`|\\:<>[]().-+# aB1'\"\n", max_size=20),
)


def parsed(rst):
    """The document tree; any warning is an error."""
    return core.publish_doctree(
        rst, settings_overrides={"halt_level": 2, "report_level": 2, "warning_stream": False}
    )


def everything(title, name):
    bars = Bars(name, (Bar(name, 1.0, name),))
    return Document(
        title,
        (
            Section(
                name,
                (
                    Paragraph(name),
                    Paragraph(name, "warning"),
                    CommandLine(name),
                    Table((name, "x"), ((name, Cell(name, 1.0, name, best=True)),), caption=name),
                    Tiles((Tile(name, name, name),)),
                    Plot(bars, "bars", name, name),
                    Section(name, (Paragraph(name, "note"),)),
                ),
            ),
            Section("Last", ()),
        ),
        name,
    )


@settings(max_examples=examples(300), deadline=None)
@given(text)
@example("A\u0301")
@example("a:b c:")
@example("a*b")
@example("0:0::1:")
@example("12:34:`role`:56")
def test_escaped_text_reads_as_itself(content):
    tree = parsed(f"before\n\n{escape_rst(content)}\n\nafter\n")
    assert [node.astext() for node in tree] == [
        part for part in ("before", clean(content), "after") if part
    ]
    assert all(
        isinstance(node, nodes.paragraph) and all(type(c) is nodes.Text for c in node)
        for node in tree
    )


@settings(max_examples=examples(150), deadline=None)
@given(text, text)
def test_no_text_breaks_out_of_its_place(title, name):
    tree = parsed(to_rst(everything(title, name), {"bars": "img/bars.svg"}))
    # That two sections share a title is no more than information.
    assert {message["level"] for message in tree.findall(nodes.system_message)} <= {1}
    allowed = {
        "system_message",
        *(
            "document title subtitle section topic paragraph bullet_list list_item reference "
            "warning note"
        ).split(),
        *(
            "literal_block table tgroup colspec thead tbody row entry strong image figure caption "
            "Text"
        ).split(),
    }
    assert {type(node).__name__ for node in tree.findall()} <= allowed
    # Sections have the titles given, and references lead from the table of contents only.
    assert tree.next_node(nodes.title).astext() == (clean(title, 200) or "Report")
    headings = [section.next_node(nodes.title).astext() for section in tree.findall(nodes.section)]
    assert headings == [clean(name, 200) or "Untitled"] * 2 + ["Last"]
    assert all("refid" in node for node in tree.findall(nodes.reference))
    assert [image["uri"] for image in tree.findall(nodes.image)] == ["img/bars.svg"]
    assert len(list(tree.findall(nodes.table))) == 2


def test_a_table_too_wide_for_a_page_is_turned(tmp_path):
    wide = Table(tuple(f"c{n}" for n in range(12)), (tuple(f"a{n}" for n in range(12)),) * 2)
    tree = parsed(to_rst(Document("T", (Section("S", (wide,)),)), {}))
    rows = [
        [entry.astext() for entry in row.findall(nodes.entry)] for row in tree.findall(nodes.row)
    ]
    assert rows == [[f"c{n}", f"a{n}", f"a{n}"] for n in range(12)]


def test_times_and_names_stay_readable():
    assert (
        escape_rst("cpu_percent at 2026-01-02T03:04:05+00:00")
        == "cpu_percent at 2026-01-02T03:04:05+00:00"
    )


def test_a_report_is_valid_and_its_pictures_are_there(make_run, tmp_path):
    from nnpipe.report.render import render

    document = render(
        [make_run("first", seed=1, wire=True), make_run("second", seed=2, gpu=True)], "Both"
    )
    write_rst(
        document, tmp_path / "docs" / "both.rst", tmp_path / "docs" / "pictures of it", tmp_path
    )
    tree = parsed((tmp_path / "docs" / "both.rst").read_text("utf-8"))
    places = [image["uri"] for image in tree.findall(nodes.image)]
    assert len(places) == len(list(document.figures()))
    assert all(place.startswith("docs/pictures of it/both-") for place in places)
    assert all((tmp_path / place).read_text("utf-8").startswith("<?xml") for place in places)
    assert all(image["alt"] for image in tree.findall(nodes.image))
    # Nothing half-written stays behind.
    assert not list(tmp_path.rglob("*.partial*"))


def test_pictures_lie_beside_the_file_unless_told_otherwise(tmp_path):
    document = Document(
        "Title", (Section("One", (Plot(Bars("x", (Bar("a", 1, "1"),)), "bars", "Bars", "Bars"),)),)
    )
    write_rst(document, tmp_path / "my report.rst", image_format="png")
    assert (tmp_path / "img" / "my-report-bars.png").read_bytes().startswith(b"\x89PNG")
    assert ".. figure:: img/my-report-bars.png" in (tmp_path / "my report.rst").read_text("utf-8")
