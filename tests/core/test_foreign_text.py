"""Foreign text reaches terminals, CSV, HTML, RST and Markdown as something that is shown, and
does nothing.
"""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nnpipe.core.errors import ConfigError
from nnpipe.core.foreign_text import (
    escape_html,
    format_csv,
    get_raw_stream,
    join_lines,
    sanitize_streams,
    sanitize_text,
    show_text,
)
from nnpipe.core.messages import format_one_line
from nnpipe.report.charts import Bar, Bars
from nnpipe.report.document import Cell, Document, Paragraph, Plot, Section, Table, Tile, Tiles
from nnpipe.report.formatting import clean
from nnpipe.report.writers.html import to_html
from nnpipe.report.writers.markdown import to_markdown
from nnpipe.report.writers.rst import to_rst
from nnpipe.report.writers.tables import to_text

HOSTILE = (
    "\x1b[31m",
    "\x1b]0;title\x07",
    "\x9b2J",
    "\u202egnp.exe",
    "\u2066",
    "\u200f",
    "\ufeff",
    "\0",
    "\x7f",
    "\ud800",
    "\u2028",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "=HYPERLINK(1)",
    "+1+cmd|' /C calc'!A0",
    "@SUM(1)",
    "\r\n.. raw:: html\n\n   <b>",
    "\ty",
    "`x <javascript:1>`_",
    "](javascript:1)",
    "postgresql://u:wxyz@h/d",
)
TEXTS = st.lists(
    st.one_of(st.sampled_from(HOSTILE), st.text(max_size=8)), min_size=1, max_size=4
).map("".join)


def does_nothing(text: str, kept: str = "\n\t") -> bool:
    """Return whether a text has no character that a terminal obeys, and no password."""
    return "wxyz" not in text and not any(
        unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in kept + "\u200c\u200d"
        for c in text
    )


def printed(text: str) -> str:
    """Return what ``print`` writes in a command."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", out)
        with sanitize_streams():
            print("x", text)
            print("x" + text, file=sys.stderr)
            sys.stdout.writelines(["x", "x" + text])
    return out.getvalue()


def shown(text: str) -> str:
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        show_text(text)
    return out.getvalue()


SINKS: dict[str, Callable[[str], str]] = {
    "a command's output": lambda text: printed("x" + text),
    "show() of a result": shown,
    "lines": lambda text: join_lines([text, text]),
    "an error": lambda text: str(ConfigError(f"{text}: no such node")),
    "a library's message": format_one_line,
    "a line of a report": clean,
    "a table in the terminal": lambda text: to_text(
        Table((text, "b"), ((text, Cell(text, best=True)),))
    ),
    "HTML": escape_html,
    "CSV": lambda text: format_csv([text, "b"], [{text: text, "b": text}]),
}


@pytest.mark.parametrize("sink", SINKS)
@given(text=TEXTS)
def test_a_sink_lets_no_control_character_and_no_password_through(sink: str, text: str) -> None:
    assert does_nothing(SINKS[sink](text))


@given(st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" \n\t")))
def test_plain_text_of_any_script_stays_as_it_is(text: str) -> None:
    assert sanitize_text(text) == text or "@" in text or "=" in text


@given(TEXTS)
def test_a_text_cannot_add_a_line_to_lines(text: str) -> None:
    assert join_lines([text, text]).count("\n") == 1
    assert to_text(Table(("a", "b"), ((text, text),))).count("\n") == 1
    assert "\n" not in format_one_line(text) + clean(text)


@given(TEXTS)
def test_html_of_a_text_has_no_element_and_leaves_no_attribute(text: str) -> None:
    found: list[tuple[str, object]] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, [name for name, _ in attrs]))

    Parser().feed(f'<p title="{escape_html(text)}">{escape_html(text)}</p>')
    assert found == [("p", ["title"])]


@given(TEXTS, TEXTS)
@example("name", "\t0")
def test_no_cell_of_a_csv_file_is_a_formula(name: str, text: str) -> None:
    rows = list(
        csv.reader(io.StringIO(format_csv([name, "n"], [{name: text, "n": -1.5}]), newline=""))
    )
    assert len(rows) == 2
    for cell in (rows[0][0], rows[1][0]):
        number = re.fullmatch(
            r"\s*[+-](\d[\d_]*\.?\d*|\.\d+|inf|nan|infinity)(e[+-]?\d+)?\s*", cell, re.IGNORECASE
        )
        assert number or not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r"))
    assert rows[1][1] == "-1.5"


@given(TEXTS)
def test_no_element_and_no_control_character_reaches_a_report(text: str) -> None:
    plot = Plot(Bars(text, (Bar(text, 1.0, text), Bar("b", 2.0, text))), "times", text, text)
    table = Table((text, "b"), ((text, Cell(text, note=text)),), caption=text)
    blocks = (Paragraph(text, "warning"), Tiles((Tile(text, text, text),)), table, plot)
    document = Document(text, (Section(text, blocks),), text)
    for written in (
        to_rst(document, {"times": "img/times.svg"}),
        to_markdown(document, {"times": "img/times.svg"}),
    ):
        assert does_nothing(written)
        assert not re.search(r"^ *\.\. raw::", written, re.MULTILINE)
        assert not re.search(r"(?<!\\)<(script|img )", written, re.IGNORECASE)
    page = to_html(document)
    assert does_nothing(page)
    assert "<script>alert" not in page


def test_bars_draw_on_the_stream_beneath(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", out)
    with sanitize_streams():
        get_raw_stream(sys.stdout).write("\x1b[2Jbar")
        sys.stderr.write("\r 50 %")
    assert out.getvalue() == "\x1b[2Jbar\r 50 %"
    assert sys.stdout is out


def test_a_name_in_a_command_line_cannot_drive_the_terminal() -> None:
    for argv in (
        ["\x1b[31mruns"],
        ["info", "\x1b[31m.onnx"],
        ["info", "\u202eREADME"],
        ["runs", "show", "\x9b2J"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "nnpipe", *argv], capture_output=True, text=True
        )
        assert done.returncode == 2
        assert does_nothing(done.stdout + done.stderr)
