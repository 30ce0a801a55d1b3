"""An HTML page that shows a run's folder, without a server or a network."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nnpipe.core.bounded_json import parse_json, read_object
from nnpipe.core.errors import ArtifactError, ConfigError
from nnpipe.core.files import write_text
from nnpipe.core.foreign_text import escape_html
from nnpipe.training.final_weights import TABLE
from nnpipe.training.fit import TrainingRun
from nnpipe.training.run_folder import RunFolder
from nnpipe.training.run_status import read_status, tell

_ROWS = 200
"""The number of rows shown of a longer table, or of lines of a longer text: the last ones; the
file has all.
"""

_TITLES = {
    "history": "Course of the training",
    "best": "Best figures",
    "epochs": "Epochs",
    "confusion": "Confusion matrix",
    "classes": "Class by class",
    "confusions": "What is taken for what",
    "roc": "ROC curves",
    "pr": "Precision and recall",
    "worst": "Worst samples",
    "losses": "Losses of all samples",
    "live": "History by line",
    "resources": "Processor and memory",
    "samples": "Samples",
    "augmentations": "Augmentations",
    "explanations": "Explanations",
    "learning_rate": "Learning rate",
    "final_weights": "The weights that the model has",
    "datasets": "Data",
    "model": "Model",
}
"""The titles of sections by the first part of a file's name, in the order of the page; others
follow.
"""

_LAST_SPLITS = ("train",)
"""Splits that the model has learned; figures of other splits are shown first."""

_WEIGHTS = {
    "last": "the last weights",
    "best": "the best weights",
    "average": "the average of the weights",
}

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 0 auto; max-width: 75rem; overflow-wrap: anywhere; padding: 1rem; }
nav a { margin-right: .8rem; }
img { background: white; height: auto; max-width: 100%; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; padding: 0; }
.tiles div { background: #8882; border-radius: .4rem; padding: .5rem .9rem; }
.tiles dt { font-size: .85rem; opacity: .75; }
.tiles dd { font-size: 1.15rem; font-weight: 600; margin: 0; }
.failed, .cancelled { border-left: 4px solid #c40; }
pre, .table { overflow: auto; max-height: 30rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #8884; padding: .1rem .6rem; text-align: right; vertical-align: top; }
th { position: sticky; top: 0; background: Canvas; }
"""


def write_run_page(folder: str | Path) -> Path:
    """Write ``index.html``, which shows the pictures and tables of a run's folder, and return its
    path.

    Pictures and files are linked by relative addresses, so the folder can be
    moved or sent as a whole.  The content of files is shown as text, never as HTML.

    Raises
    ------
    ConfigError
        If the folder does not exist.
    """
    folder = Path(folder)
    own = RunFolder(folder)
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: there is no such folder; a training writes one where it is given a folder"
        )
    sections: dict[str, list[str]] = {}
    for path in own.pictures():
        name, address = escape_html(_format_title(path.stem)), _format_address(folder, path)
        sections.setdefault(_choose_section(path.stem), []).append(
            f'<a href="{address}"><img src="{address}" alt="{name}" loading="lazy"></a>'
        )
    tables = own.tables()
    rows = {path.stem for path in tables if path.suffix != ".txt"}
    for path in tables:
        link = f'<p><a href="{_format_address(folder, path)}">{escape_html(path.name)}</a></p>'
        # A table that exists as rows and as text is shown once.
        shown = [] if path.suffix == ".txt" and path.stem in rows else [_render_file(path)]
        sections.setdefault(_choose_section(path.stem), []).extend([*shown, link])
    names = sorted(sections, key=_get_file_sort_key)
    others = [
        f'<li><a href="{_format_address(folder, path)}">{escape_html(path.relative_to(folder).as_posix())}</a>, '
        f"{path.stat().st_size:,} bytes</li>"
        for path in own.list_others()[:_ROWS]
    ]
    what, name = _describe_model(own), folder.resolve().name
    title = escape_html(what or name)
    body = [
        f"<h1>{title}</h1>",
        *([f"<p>{escape_html(name)}</p>"] if what else []),
        *_render_result(own),
        *_render_settings(own),
    ]
    body.append(
        "<nav>"
        + "".join(f'<a href="#{quote(n)}">{escape_html(_format_title(n))}</a>' for n in names)
        + "</nav>"
    )
    for name in names:
        text = "\n".join(sections[name])
        body.append(
            f"<section "
            f'id="{escape_html(quote(name))}"><h2>{escape_html(_format_title(name))}</h2>\n{text}</section>'
        )
    if others:
        body.append("<section><h2>Other files</h2><ul>" + "\n".join(others) + "</ul></section>")
    page = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" '
        f'content="width=device-width"><style>{_STYLE}</style></head>\n<body>\n'
    )
    write_text(own.page, page + "\n".join(body) + "\n</body></html>\n")
    return own.page


def _describe_model(own: RunFolder) -> str:
    """Return the model and its data, if the run's settings name them."""
    try:
        begun = read_object(own.begun)
        model, data = (
            str(begun[part]["class"]).rpartition(".")[2] for part in ("wrapper", "dataset")
        )
    except (ArtifactError, KeyError, TypeError):
        return ""
    return f"{model} on {data}"


def _render_settings(own: RunFolder) -> list[str]:
    """Return the HTML of the settings that the run was begun with, closed at first."""
    try:
        text = own.begun.read_text("utf-8")
    except (OSError, ValueError):
        return []
    return [f"<details><summary>Settings</summary>{_render_text(text)}</details>"]


def _render_result(own: RunFolder) -> list[str]:
    """Return the HTML of the training's status and figures."""
    try:
        status = read_status(own)
    except ConfigError as error:
        return [f"<p>{escape_html(str(error))}</p>"]
    history = _read_history(own)
    lines = []
    if status is not None:
        what = f"epoch {status.epoch:,} of {status.epochs:,}, {status.changed}".rstrip(", ")
        lines += _render_tiles("", [("Training", status.state, what, status.state)])
        lines += [f"<p>{escape_html(status.reason)}</p>"] if status.reason else []
    if not history:
        return lines
    best = status.best_epoch if status is not None else 0
    row = next((each for each in history if each.get("epoch") == str(best)), history[-1])
    epoch = row.get("epoch", "")
    which = f"After epoch {epoch}, {'the best' if epoch == str(best) else 'the last'}"
    final = _read_final_weights(own)
    if final:
        epoch = final.pop("epoch")
        which = (
            f"The model has {_WEIGHTS.get(final.pop('weights'), 'the weights')}, of epoch {epoch}"
        )
        row = next((each for each in history if each.get("epoch") == epoch), {})
    row = {name: value for name, value in row.items() if name.count("/") >= 2 and value}
    evaluated = final or {
        name: value for name, value in row.items() if name.split("/")[1] not in _LAST_SPLITS
    }
    # Figures of training batches are of weights that changed from batch to batch.
    learned = {name: value for name, value in row.items() if name not in evaluated}
    for title, figures in (
        (which, evaluated),
        (f"Means over epoch {epoch}, while the weights changed", learned),
    ):
        names = sorted(figures, key=_get_figure_sort_key)
        lines += _render_tiles(
            title,
            [
                (_format_figure_title(name), _format_figure(name, figures[name]), "", "")
                for name in names
            ],
        )
    return lines


def _render_tiles(title: str, tiles: list[tuple[str, str, str, str]]) -> list[str]:
    """Return the HTML of tiles below a title; each has a label, a value in HTML, a note and a
    class.
    """
    texts = (
        f'<div class="{kind}"><dt>{escape_html(label)}</dt><dd>{value}</dd><dt>{escape_html(note)}</dt></div>'
        for label, value, note, kind in tiles
    )
    heading = [f"<h3>{escape_html(title)}</h3>"] if title and tiles else []
    return [*heading, f'<dl class="tiles">{"".join(texts)}</dl>'] if tiles else []


def _read_final_weights(own: RunFolder) -> dict[str, str]:
    """Return the final weights and their figures; empty while the training is running."""
    try:
        (found,) = parse_json(own.table(TABLE).read_text("utf-8"))
        return {"weights": str(found["weights"]), "epoch": str(found["epoch"])} | {
            str(name): str(value) for name, value in found.items() if "/" in str(name)
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _read_history(own: RunFolder) -> list[dict[str, str]]:
    try:
        found = csv.DictReader(own.table("history", ending="csv").read_text("utf-8").splitlines())
        return [{str(name): value or "" for name, value in row.items()} for row in found]
    except (OSError, ValueError, csv.Error):
        return []


def _format_figure_title(name: str) -> str:
    """Return the title of a figure of the history, DATASET/SPLIT/FIGURE, with the split last."""
    dataset, split, figure = name.split("/", 2)
    return f"{figure.removeprefix('output/').replace('_', ' ')}, {split}" + (
        f" of {dataset}" * (dataset != "data")
    )


def _format_figure(name: str, text: str) -> str:
    """Return a figure as text; an accuracy is in percent, as everywhere else."""
    try:
        return (
            f"{100 * float(text):.2f}\u00a0%" if name.endswith("accuracy") else _format_cell(text)
        )
    except ValueError:
        return _format_cell(text)


def _get_figure_sort_key(name: str) -> tuple[bool, bool, str]:
    parts = name.split("/")
    return len(parts) > 1 and parts[1] in _LAST_SPLITS, parts[-1] == "loss", name


def _choose_section(stem: str) -> str:
    """Return the name of the section in which a file is shown; related files share a section."""
    return stem.removesuffix("-samples") if stem.startswith("worst-") else stem


def _get_file_sort_key(name: str) -> tuple[int, bool, str]:
    kinds, parts = list(_TITLES), name.split("-")
    place = kinds.index(parts[0]) if parts[0] in kinds else len(kinds)
    return place, parts[-1] in _LAST_SPLITS, name


def _format_address(folder: Path, path: Path) -> str:
    return escape_html(quote(path.relative_to(folder).as_posix()))


def _format_title(name: str) -> str:
    kind, _, rest = name.partition("-")
    rest = rest.removesuffix("-output").removeprefix("data-").replace("-", " ").replace("_", " ")
    kind = _TITLES.get(kind) or kind[:1].upper() + kind[1:].replace("_", " ")
    return f"{kind}: {rest}" if rest else kind


def _render_file(path: Path) -> str:
    """Return a table or a text as HTML; a damaged file is named and does not hide the others."""
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".txt":
            return _render_text(text)
        rows = (
            list(csv.DictReader(text.splitlines())) if path.suffix == ".csv" else parse_json(text)
        )
    except (ValueError, csv.Error) as error:
        return f"<p>{escape_html(path.name)} cannot be read: {escape_html(str(error))}</p>"
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return f"<pre>{escape_html(json.dumps(rows, indent=1)[:20_000])}</pre>"
    return _render_table(rows)


def _render_text(text: str) -> str:
    lines = text.splitlines()
    left_out = f"<p>the last {_ROWS} of {len(lines):,} lines</p>" if len(lines) > _ROWS else ""
    return f"{left_out}<pre>{escape_html(chr(10).join(lines[-_ROWS:]))}</pre>"


def _render_table(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    head = "".join(f"<th>{escape_html(name)}</th>" for name in names)
    left_out = f"<p>the last {_ROWS} of {len(rows):,} rows</p>" if len(rows) > _ROWS else ""
    lines = (
        "<tr>" + "".join(f"<td>{_format_cell(row.get(name))}</td>" for name in names) + "</tr>"
        for row in rows[-_ROWS:]
    )
    whole = f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>\n' + "\n".join(lines)
    # Nested tables are mainly for programs, so they are closed at first.
    nested = any(isinstance(value, dict) for row in rows for value in row.values())
    whole = f"{left_out}{whole}</tbody></table></div>"
    return f"<details><summary>table</summary>{whole}</details>" if nested else whole


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, dict):
        return "<br>".join(
            f"{escape_html(str(name))}: {_format_cell(item)}" for name, item in value.items()
        )
    if isinstance(value, list):
        return ", ".join(_format_cell(item) for item in value[:20]) + (
            ", ..." if len(value) > 20 else ""
        )
    text = str(value)
    try:
        return text if text.isdigit() else f"{float(text):.5g}"
    except ValueError:
        return escape_html(text)


@contextmanager
def record_status(fit: TrainingRun) -> Iterator[None]:
    """Write that a training is running, and at the end of the block how it ended."""
    tell(fit, "running")
    try:
        yield
    except BaseException as error:
        tell_end(fit, error)
        raise
    tell_end(fit, None)


def tell_end(fit: TrainingRun, error: BaseException | None) -> None:
    """Write how a training ended, also to its page if it has one; a full disk must not hide the
    original error.
    """
    if error is None:
        tell(fit, "cancelled" if fit.unfinished else "completed", fit.stopping or "")
        _tell_page(fit)
        return
    state = "cancelled" if isinstance(error, KeyboardInterrupt) else "failed"
    with suppress(OSError):
        tell(fit, state, f"{type(error).__name__}: {error}".rstrip(": "))
        _tell_page(fit)


def _tell_page(fit: TrainingRun) -> None:
    if fit.folder is not None and fit.folder.page.exists():
        write_run_page(fit.folder.path)
