"""The writer of an HTML page that shows the files of a plugin, without running any code in them.

Texts are escaped, pictures are in ``img`` elements (in which browsers run no
scripts, not even those of SVG), and the page's content security policy forbids
to run or load anything.  HTML pages that a plugin wrote are shown as source code.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.files import write_text
from nnpipe.core.foreign_text import escape_html, sanitize_text
from nnpipe.report.formatting import clean, format_size
from nnpipe.report.inputs.plugin_files import OutputFile, get_separator

_MOST_ROWS, _MOST_COLUMNS, _MOST_CELL_LETTERS = 200, 50, 300
_WIDE_TABLE = 4  # tables with more columns than this need the whole width of the page


def read_table_rows(file: OutputFile, text: str) -> list[list[Any]] | None:
    """Return the rows of a table file or of a JSON list of objects, with the header; ``None``
    for other files.
    """
    if file.kind == "table":
        try:
            reader = csv.reader(
                io.StringIO(normalize_text(text)), delimiter=get_separator(file.name)
            )
            return [row for _, row in zip(range(_MOST_ROWS + 2), reader, strict=False)] or None
        except csv.Error:
            return None
    if file.kind != "json":
        return None
    try:
        found = parse_json(text)
    except (ValueError, RecursionError):
        return None
    if (
        not isinstance(found, list)
        or not found
        or not all(isinstance(item, dict) for item in found)
    ):
        return None
    names = list(dict.fromkeys(name for item in found[: _MOST_ROWS + 1] for name in item))
    return [names, *([item.get(name, "") for name in names] for item in found[: _MOST_ROWS + 1])]


def render_html_table(rows: list[list[Any]]) -> tuple[str, bool]:
    """Return a table as HTML with its first row as the header, and whether it needs the whole
    width of the page.
    """
    columns = max(map(len, rows))
    shown = []
    if len(rows) > _MOST_ROWS + 1:
        shown.append(f"the first {_MOST_ROWS} rows")
    if columns > _MOST_COLUMNS:
        shown.append(f"the first {_MOST_COLUMNS} columns")
    numeric = [
        all(_is_number(row[place]) for row in rows[1:] if place < len(row) and row[place] != "")
        for place in range(min(columns, _MOST_COLUMNS))
    ]

    def render_row(row: list[Any], tag: str) -> str:
        cells = [*row[:_MOST_COLUMNS], *[""] * (min(columns, _MOST_COLUMNS) - len(row))]
        texts = [escape_html(clean(_format_value(cell), _MOST_CELL_LETTERS)) for cell in cells]
        return (
            "<tr>"
            + "".join(
                f"<{tag}{' class=number' if number else ''}>{text}</{tag}>"
                for text, number in zip(texts, numeric, strict=True)
            )
            + "</tr>"
        )

    body = "\n".join(render_row(row, "td") for row in rows[1 : _MOST_ROWS + 1])
    note = f'<p class="note">{" and ".join(shown)}</p>' if shown else ""
    table = f"<table><thead>{render_row(rows[0], 'th')}</thead><tbody>\n{body}</tbody></table>"
    return f'{note}<div class="scroll" tabindex="0">{table}</div>', columns > _WIDE_TABLE


def _format_value(value: Any) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "…"


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def normalize_text(text: str) -> str:
    """Return the text of a file made harmless, whichever line ends it has."""
    return sanitize_text(text.replace("\r\n", "\n").replace("\r", "\n"))


_STYLE = Path(__file__).parent / "templates" / "report.css"
_OWN_STYLE = """
.facts td { overflow-wrap: anywhere; }
.files { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); gap: 1.5rem 2rem;
  align-items: start; }
.files > .wide { grid-column: 1 / -1; }
.file { min-width: 0; }
.file h3 { margin: 0 0 .4rem; padding: 0; border: 0; font-size: .95rem; }
.file h3 small { font-weight: 400; color: var(--muted); }
.file :is(img, video) { max-width: 100%; max-height: 40rem; }
.file img { background: #ffffff; }
.file img.small { height: 5rem; width: auto; object-fit: contain; object-position: left; image-rendering: pixelated; }
.file audio { width: 100%; }
.file :is(pre, .scroll) { max-height: 30rem; overflow: auto; margin: 0; }
.file thead th { position: sticky; top: 0; background: var(--page); }
"""
_POLICY = (
    "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; base-uri "
    "'none'; form-action 'none'"
)
_MOST_LETTERS = 300
_FEW_PIXELS = 40  # greatest height of pictures that are enlarged so that single pixels can be seen


@dataclass(frozen=True)
class OutputSection:
    """The section of the page on one step of the plugin.

    Parameters
    ----------
    title
        Heading of the section.
    files
        The files that were written, in order.
    folder
        Address of the files' folder, relative to the page.
    more
        Number of further files that are not shown.
    failure
        The error of the step, if there was one.
    """

    title: str
    files: Sequence[OutputFile]
    folder: str
    more: int = 0
    failure: str = ""


def write_output_page(
    path: Path,
    title: str,
    facts: Mapping[str, str],
    sections: Sequence[OutputSection],
    warnings: Sequence[str] = (),
) -> None:
    """Write the page of a run of a plugin.

    Parameters
    ----------
    path
        The HTML file.
    title
        Title of the page.
    facts
        Facts about the run, by name.
    sections
        The sections on the steps of the run.
    warnings
        Warnings that are shown first.
    """
    style = _STYLE.read_text("utf-8") + _OWN_STYLE
    body = [f"<header><h1>{_format_line(title)}</h1></header>"]
    if len(sections) > 1:
        links = "".join(
            f'<li><a href="#part-{n}">{_format_line(s.title)}</a></li>'
            for n, s in enumerate(sections, 1)
        )
        body.append(f'<nav aria-label="Contents"><ul class="chips">{links}</ul></nav>')
    body.append("<main>")
    body += [f'<p class="warning">{_format_line(warning)}</p>' for warning in warnings]
    rows = "".join(
        f'<tr><th scope="row">{_format_line(name)}</th><td>{_format_line(value)}</td></tr>'
        for name, value in facts.items()
    )
    body.append(f'<div class="table facts"><table><tbody>{rows}</tbody></table></div>')
    body += [_render_section(number, section) for number, section in enumerate(sections, 1)]
    body.append(
        "</main>\n<footer>Made by nnpipe. This page loads nothing and runs nothing.</footer>"
    )
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" '
        'content="no-referrer">\n'
        f'<link rel="icon" '
        f'href="data:,">\n<title>{_format_line(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n'
    )
    write_text(path, head + "\n".join(body) + "\n</body>\n</html>\n")


def _render_section(number: int, section: OutputSection) -> str:
    shown = [_render_file(file, section.folder) for file in section.files]
    if section.failure:
        shown.insert(0, f'<p class="warning wide">{_format_line(section.failure)}</p>')
    elif not section.files:
        shown.append('<p class="note wide">Nothing was written.</p>')
    if section.more:
        shown.append(f'<p class="note wide">{section.more:,} further files are in the folder.</p>')
    heading, files = f"<h2>{_format_line(section.title)}</h2>", "\n".join(shown)
    return (
        f'<section id="part-{number}">\n{heading}\n<div class="files">\n{files}\n</div>\n</section>'
    )


def _render_file(file: OutputFile, folder: str) -> str:
    content, wide = _render_content(file, folder)
    told = [] if file.refused else [format_size(file.size)]
    told += [file.remark] if file.remark else []
    heading = f"<h3>{_format_line(file.name)} <small>{_format_line(', '.join(told))}</small></h3>"
    return f'<div class="file{" wide" if wide else ""}">{heading}\n{content}</div>'


def _render_content(file: OutputFile, folder: str) -> tuple[str, bool]:
    """Return the content of a file as HTML, and whether it needs the whole width of the page."""
    data = file.content
    if data is None:
        return _render_link(file, folder), False
    if file.kind == "picture":
        few = (
            " class=small"
            if file.mime == "image/png" and int.from_bytes(data[20:24], "big") <= _FEW_PIXELS
            else ""
        )
        return (
            f'<img{few} src="{_encode_data_url(file.mime, data)}" alt="{_format_line(file.name)}" '
            f'decoding="async">',
            False,
        )
    if file.kind in ("audio", "video"):
        controls = 'controls preload="metadata"'
        return (
            f'<{file.kind} {controls} src="{_encode_data_url(file.mime, data)}"></{file.kind}>',
            False,
        )
    if file.kind == "other":
        name = "".join(
            c if c.isalnum() or c in "-_." else "-" for c in file.name.rpartition("/")[2]
        )
        address = _encode_data_url("application/octet-stream", data)
        return (
            f'<p><a href="{address}" download="{escape_html(name)}">Save this file</a></p>',
            False,
        )
    text = data.decode("utf-8", "replace")
    rows = read_table_rows(file, text)
    if rows is not None:
        return render_html_table(rows)
    if file.kind == "json":
        text = _format_json(text)
    return f'<pre tabindex="0"><code>{escape_html(normalize_text(text))}</code></pre>', max(
        map(len, text.split("\n"))
    ) > 60


def _render_link(file: OutputFile, folder: str) -> str:
    if file.address is None:
        return "" if file.refused else f"<p>It lies in {_format_line(folder)}.</p>"
    return f'<p><a href="{escape_html(folder)}/{escape_html(file.address)}">Open this file</a></p>'


def _encode_data_url(mime: str, data: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode('ascii')}"


def _format_json(text: str) -> str:
    """Return JSON with indentation; text that is not complete, valid JSON is returned unchanged."""
    try:
        return json.dumps(parse_json(text), indent=1, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _format_line(text: str) -> str:
    return escape_html(clean(text, _MOST_LETTERS))
