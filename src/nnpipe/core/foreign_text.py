"""Text from models, files, databases and libraries, made harmless for where it is shown: one
function for each place.

Such text may hold control sequences of terminals, marks that turn the direction of text, formulas
of spreadsheets, and elements of HTML.  :mod:`nnpipe.report.writers` has the functions for RST and
Markdown.
"""

from __future__ import annotations

import csv
import html
import io
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from nnpipe.core.secret import hide_secrets

REPLACED = "\ufffd"
# Cc, Cs and Cn break files or cannot be encoded; Cf holds the marks that change the direction of
# text; Zl and Zp end lines.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"  # invisible characters that words in some scripts need
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def sanitize_text(text: str) -> str:
    """Return a text whose characters can do nothing but be shown, and the line breaks and tabs
    among them.

    Control characters, lone surrogates, invisible formatting and unassigned characters become
    ``U+FFFD``.  Passwords in addresses are hidden.

    Examples
    --------
    >>> sanitize_text("\\x1b[31mred, \\u202egnp.exe")
    '\ufffd[31mred, \ufffdgnp.exe'
    """
    if not text.replace("\n", "").replace("\u00a0", "").isprintable():
        text = "".join(
            c
            if c in "\n\t" or unicodedata.category(c) not in _UNSAFE or c in _JOINERS
            else REPLACED
            for c in text
        )
    return hide_secrets(text)


def join_lines(lines: Iterable[str]) -> str:
    """Return lines as a text that has no others: a line break within one, as of the name of a
    tensor, makes none.
    """
    return "\n".join(sanitize_text(line).replace("\n", REPLACED) for line in lines)


def show_text(text: str) -> None:
    """Print a text made harmless."""
    sys.stdout.write(sanitize_text(f"{text}\n"))


def escape_html(text: object) -> str:
    """Return text as the content of an element, or the quoted value of an attribute, of HTML and
    SVG.
    """
    return html.escape(sanitize_text(str(text)))


def escape_csv_cell(value: Any) -> Any:
    """Return a value as a cell that no spreadsheet computes: texts that would be formulas begin
    with an apostrophe.

    Examples
    --------
    >>> escape_csv_cell("=HYPERLINK(1)"), escape_csv_cell("-0.5"), escape_csv_cell(-0.5)
    ("'=HYPERLINK(1)", '-0.5', -0.5)
    """
    if not isinstance(value, str):
        return value
    text = sanitize_text(value)
    plain_number = _is_number(text) and text.isprintable()  # "\t0" is a number, too
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) and not plain_number else text


def format_csv(
    columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, header: bool = True
) -> str:
    """Return rows as CSV; cells of what a row lacks are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(map(escape_csv_cell, columns))
    writer.writerows([escape_csv_cell(row.get(name, "")) for name in columns] for row in rows)
    return text.getvalue()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class _SanitizingStream:
    """A standard stream that shows only harmless text, whoever prints to it."""

    def __init__(self, stream: TextIO) -> None:
        self.beneath = stream

    def write(self, text: str) -> int:
        """Write a text made harmless; bars of libraries begin with a carriage return, to write
        over their line.
        """
        begin = "\r" if text.startswith("\r") else ""
        self.beneath.write(begin + sanitize_text(text[len(begin) :]))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines made harmless."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.beneath, name)


@contextmanager
def sanitize_streams() -> Iterator[None]:
    """Let only harmless text reach the terminal inside the block, by ``print``, ``logging`` and
    libraries in Python.
    """
    if sys.stdout is None or sys.stderr is None or isinstance(sys.stdout, _SanitizingStream):
        yield
        return
    with (
        redirect_stdout(cast(TextIO, _SanitizingStream(sys.stdout))),
        redirect_stderr(cast(TextIO, _SanitizingStream(sys.stderr))),
    ):
        yield


def get_raw_stream(stream: TextIO) -> TextIO:
    """Return a stream to which control sequences may be written, for bars and tables whose texts
    are harmless.
    """
    return stream.beneath if isinstance(stream, _SanitizingStream) else stream
