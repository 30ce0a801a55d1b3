"""A page of HTML that shows a run's folder; it needs no server and nothing from the network."""

from __future__ import annotations

import csv
import html
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.training.runfolder import RunFolder

_ROWS = 200
"""Of longer tables only the last rows are shown; the file has them all."""

_FIRST = ("history", "epochs", "model", "datasets")
"""What a reader looks for first; the rest follows by name."""

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 0 auto; max-width: 75rem; padding: 1rem; }
nav a { margin-right: .8rem; }
img { background: white; height: auto; max-width: 100%; }
pre, .table { overflow: auto; max-height: 30rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #8884; padding: .1rem .6rem; text-align: right; vertical-align: top; }
th { position: sticky; top: 0; background: Canvas; }
"""


def write_run_page(folder: str | Path) -> Path:
    """Gather the pictures and tables of a run's folder in ``index.html``, and give its path.

    Pictures and files are linked by relative addresses, so the folder can be
    moved or sent as a whole.  Whatever lies in the folder is shown as text,
    never as HTML.

    Raises
    ------
    ConfigError
        If there is no such folder.
    """
    folder = Path(folder)
    own = RunFolder(folder)
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder; a training writes one where it is given a folder")
    sections: dict[str, list[str]] = {}
    for path in own.pictures():
        name, address = html.escape(_title(path.stem)), _address(folder, path)
        sections.setdefault(path.stem, []).append(
            f'<a href="{address}"><img src="{address}" alt="{name}" loading="lazy"></a>'
        )
    for path in own.tables():
        link = f'<p><a href="{_address(folder, path)}">{html.escape(path.name)}</a></p>'
        sections.setdefault(path.stem, []).extend([_shown(path), link])
    names = [name for name in _FIRST if name in sections] + sorted(name for name in sections if name not in _FIRST)
    others = [
        f'<li><a href="{_address(folder, path)}">{html.escape(path.relative_to(folder).as_posix())}</a>, '
        f"{path.stat().st_size:,} bytes</li>"
        for path in own.others()[:_ROWS]
    ]
    title = html.escape(folder.resolve().name)
    body = [f"<h1>{title}</h1>"]
    body.append("<nav>" + "".join(f'<a href="#{quote(n)}">{html.escape(_title(n))}</a>' for n in names) + "</nav>")
    for name in names:
        text = "\n".join(sections[name])
        body.append(f'<section id="{html.escape(quote(name))}"><h2>{html.escape(_title(name))}</h2>\n{text}</section>')
    if others:
        body.append("<section><h2>other files</h2><ul>" + "\n".join(others) + "</ul></section>")
    page = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n<body>\n'
    )
    write_text(own.page, page + "\n".join(body) + "\n</body></html>\n")
    return own.page


def _address(folder: Path, path: Path) -> str:
    return html.escape(quote(path.relative_to(folder).as_posix()))


def _title(name: str) -> str:
    return name.replace("_", " ").replace("-", " ")


def _shown(path: Path) -> str:
    """Give a table or a text as HTML; a file that is damaged is named and does not hide the others."""
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".txt":
            return f"<pre>{html.escape(text)}</pre>"
        rows = list(csv.DictReader(text.splitlines())) if path.suffix == ".csv" else json.loads(text)
    except (ValueError, csv.Error) as error:
        return f"<p>{html.escape(path.name)} cannot be read: {html.escape(str(error))}</p>"
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return f"<pre>{html.escape(json.dumps(rows, indent=1)[:20_000])}</pre>"
    return _table(rows)


def _table(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    left_out = f"<p>the last {_ROWS} of {len(rows):,} rows</p>" if len(rows) > _ROWS else ""
    lines = ("<tr>" + "".join(f"<td>{_cell(row.get(name))}</td>" for name in names) + "</tr>" for row in rows[-_ROWS:])
    whole = f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>\n' + "\n".join(lines)
    # Tables of tables are for programs first: a reader opens them where he wants to.
    nested = any(isinstance(value, dict) for row in rows for value in row.values())
    whole = f"{left_out}{whole}</tbody></table></div>"
    return f"<details><summary>table</summary>{whole}</details>" if nested else whole


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, dict):
        return "<br>".join(f"{html.escape(str(name))}: {_cell(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(_cell(item) for item in value[:20]) + (", ..." if len(value) > 20 else "")
    text = str(value)
    try:
        return text if text.isdigit() else f"{float(text):.5g}"
    except ValueError:
        return html.escape(text)
