"""The Markdown says what the document says, and is valid whatever the text in it."""

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
from nnpipe.report.writers.markdown import escape_markdown, to_markdown, write_markdown

markdown_it = pytest.importorskip("markdown_it", reason="markdown-it-py judges the Markdown")

HOSTILE = [
    "# heading",
    "a heading #",
    "===",
    "---",
    "- item",
    "+ item",
    "* item",
    "1. one",
    "12) twelve",
    "> quote",
    "```",
    "<script>alert(1)</script>",
    "</summary></details><b>",
    "<!-- comment",
    "&lt;b&gt; &#60;",
    "![x](http://x)",
    "[a](javascript:alert(1))",
    "[^1] [x] - [ ] task",
    "a|b|c",
    "`code`",
    "back\\",
    "\\",
    "*a* **b** __c__ ~~d~~ $x$",
    "~~~",
    "[x]: /y",
    "http://example.com www.example.com",
    "WWW.example.com",
    ":smile: 12:30",
    "two\nlines\n\nthree",
    "    indented",
    "\x00\x1b[31m\ud800\u202eleft",
    "\u00a0",
    "|---|",
    "$$x$$",
]
text = st.one_of(
    st.text(max_size=60),
    st.sampled_from(HOSTILE),
    st.text("*_`|\\:<>[]().-+=#~!&$1w aB\n", max_size=20),
)


def parser():
    return markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])


def rendered(markdown):
    """The tokens, flat."""
    found = []
    for token in parser().parse(markdown):
        found += token.children or [token]
    return found


def words(tokens):
    return "".join(token.content for token in tokens if token.type in ("text", "code_inline"))


@settings(max_examples=examples(400), deadline=None)
@given(text)
@example("1) x")
@example("a#b #")
@example("www.x")
def test_escaped_text_reads_as_itself(content):
    line = clean(content)
    tokens = parser().parse(f"before\n\n{escape_markdown(content)}\n\nafter\n")
    inline = [token for token in tokens if token.type == "inline"]
    assert {token.type for token in tokens} == {"paragraph_open", "inline", "paragraph_close"}
    shown = [words(token.children) for token in inline]
    # Spaces that no break is allowed at, at the end of a line, are nobody's loss.
    assert [one.strip() for one in shown] == [
        part.strip() for part in ("before", line, "after") if part.strip()
    ]
    assert all(
        child.type in ("text", "text_special") for token in inline for child in token.children
    )


def everything(title, name):
    bars = Bars(name, (Bar(name, 1.0, name),))
    blocks = (
        Paragraph(name),
        Paragraph(name, "warning"),
        CommandLine(name),
        Table((name, "x"), ((name, Cell(name, 1.0, name, best=True)),), caption=name),
        Table((name, "x"), ((name, "y"),), caption=name, folded=True),
        Tiles((Tile(name, name, name),)),
        Plot(bars, "bars", name, name),
        Section(name, (Paragraph(name, "note"),)),
    )
    return Document(title, (Section(name, blocks), Section("Last", ())), name)


def structure(document):
    tokens = rendered(to_markdown(document, {"bars": "img/of it/bars.svg"}))
    return [(token.type, token.tag) for token in tokens if not token.type.startswith("text")]


PLAIN = structure(everything("title", "name"))


@settings(max_examples=examples(150), deadline=None)
@given(
    text.filter(lambda content: clean(content).strip()),
    text.filter(lambda content: clean(content).strip()),
)
def test_no_text_breaks_out_of_its_place(title, name):
    assert structure(everything(title, name)) == PLAIN


def test_pictures_folds_and_warnings_are_there(tmp_path):
    document = everything("The *title*", "name")
    write_markdown(document, tmp_path / "my report.md", tmp_path / "pictures of it")
    markdown = (tmp_path / "my report.md").read_text("utf-8")
    assert markdown.startswith("# The \\*title\\*\n\n")
    assert "> [!WARNING]\n> name\n" in markdown
    assert (
        "<details>\n<summary>name</summary>\n\n| name | x |\n| --- | --- |\n| name | y "
        "|\n\n</details>\n" in markdown
    )
    (image,) = [token for token in rendered(markdown) if token.type == "image"]
    assert image.attrs["src"] == "pictures%20of%20it/my-report-bars.svg"
    assert (tmp_path / "pictures of it" / "my-report-bars.svg").is_file()


def test_a_table_too_wide_for_a_page_is_turned():
    wide = Table(tuple(f"c{n}" for n in range(12)), (tuple(f"a{n}" for n in range(12)),) * 2)
    markdown = to_markdown(Document("T", (Section("S", (wide,)),)), {})
    assert "| c0 | a0 | a0 |\n| --- | ---: | ---: |\n| c1 | a1 | a1 |\n" in markdown


def test_a_whole_report_is_valid(make_run, tmp_path):
    from nnpipe.report.render import render

    document = render(
        [make_run("first", seed=1, wire=True), make_run("second", seed=2, gpu=True)], "Both"
    )
    write_markdown(document, tmp_path / "both.md")
    tokens = rendered((tmp_path / "both.md").read_text("utf-8"))
    images = [token.attrs["src"] for token in tokens if token.type == "image"]
    assert len(images) == len(list(document.figures()))
    assert all((tmp_path / place).is_file() for place in images)
    assert sum(token.type == "table_open" for token in tokens) > 10
