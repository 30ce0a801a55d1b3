"""Writing a report as files: an HTML page, a text file, and figures as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.measuring.run import Run
from nnpipe.report.document import Document, Section
from nnpipe.report.drawing.pictures import Pictures
from nnpipe.report.inputs.candidate import Candidate, create_candidates, describe_sample_differences
from nnpipe.report.inputs.search_file import SearchFile
from nnpipe.report.render import build_search_page, report_on
from nnpipe.report.sections.verdict import CandidateFailure, build_outcome_table
from nnpipe.report.writers.html import write_html
from nnpipe.report.writers.json_figures import build_json_summary
from nnpipe.report.writers.markdown import write_markdown
from nnpipe.report.writers.picture_files import ImageFormat
from nnpipe.report.writers.rst import write_rst
from nnpipe.report.writers.tables import to_text

# Writers of text with separate pictures, by the ending of the file; HTML has none.
_WRITERS: Mapping[str, Callable[..., None] | None] = {
    ".rst": write_rst,
    ".md": write_markdown,
    ".html": None,
}
SUFFIXES = tuple(_WRITERS)


def write_report(
    runs: Sequence[Run],
    title: str,
    output: Path,
    report_types: Sequence[str] | None = None,
    *,
    image_folder: Path | None = None,
    root_dir: Path | None = None,
    image_format: ImageFormat = "svg",
    sources: Sequence[Path] = (),
    failures: Sequence[CandidateFailure] = (),
    before: Sequence[Section] = (),
    measured: int | None = None,
) -> str:
    """Write a report on runs, and return its summary and its path, for the terminal.

    It takes the arguments of :func:`~nnpipe.report.render.report_on` and :func:`write_document`.
    """
    candidates = create_candidates(runs, sources)
    document = report_on(candidates, title, report_types, failures, before, measured)
    write_document(
        document,
        candidates,
        output,
        failures,
        image_folder=image_folder,
        root_dir=root_dir,
        image_format=image_format,
    )
    table = (
        f"\n{to_text(build_outcome_table(candidates, failures))}\n\n"
        if len(runs) + len(failures) > 1
        else ""
    )
    unlike = describe_sample_differences(
        [(candidate.name, candidate.quality) for candidate in candidates]
    )
    return table + (f"{unlike}\n\n" if unlike else "") + format_report_paths(output)


def write_document(
    document: Document,
    candidates: Sequence[Candidate],
    output: Path,
    failures: Sequence[CandidateFailure] = (),
    *,
    image_folder: Path | None = None,
    root_dir: Path | None = None,
    image_format: ImageFormat = "svg",
) -> None:
    """Write a report to ``output``, and an HTML page and the figures as JSON beside it.

    Parameters
    ----------
    document, candidates, failures
        The report, its candidates, and the failed ones.
    output
        The path of the text, ``.rst`` or ``.md``; or of the HTML page only, ``.html``.
    image_folder, root_dir, image_format
        As for :func:`~nnpipe.report.writers.rst.write_rst`.

    Raises
    ------
    ConfigError
        If a file cannot be written.
    """
    try:
        _write_pages(document, output, image_folder, root_dir, image_format)
        _dump(
            output.with_suffix(".summary.json"),
            build_json_summary(candidates, document.title, failures),
        )
    except OSError as error:
        raise ConfigError(f"the report cannot be written: {error}") from None


def write_search_report(
    found: SearchFile,
    output: Path,
    title: str = "",
    *,
    image_folder: Path | None = None,
    root_dir: Path | None = None,
    image_format: ImageFormat = "svg",
) -> str:
    """Write a report on a search, and return a line with its path.

    Parameters
    ----------
    found
        The content of the search's file.
    output
        The path of the text, ``.rst`` or ``.md``, beside which there is an HTML page; or of the
        page only, ``.html``.
    title
        The title of the report; by default that of the search.
    image_folder, root_dir, image_format
        As for :func:`~nnpipe.report.writers.rst.write_rst`.

    Raises
    ------
    ConfigError
        If the ending is unknown, or a file cannot be written.
    """
    report_suffix(output)
    try:
        _write_pages(build_search_page(found, title), output, image_folder, root_dir, image_format)
    except OSError as error:
        raise ConfigError(f"the report cannot be written: {error}") from None
    page = output.with_suffix(".html")
    return f"report: {page} (in the browser)" + ("" if output == page else f" and {output}")


def report_suffix(output: Path) -> None:
    """Raise :class:`ConfigError` unless a report can be written to a path."""
    if output.suffix not in SUFFIXES:
        raise ConfigError(
            f"the report's file must end in {', '.join(SUFFIXES)}, not {output.name!r}"
        )


def _write_pages(
    document: Document,
    output: Path,
    image_folder: Path | None,
    root_dir: Path | None,
    image_format: ImageFormat,
) -> None:
    pictures, writer = Pictures(), _WRITERS[output.suffix]
    if writer is not None:
        writer(
            document, output, image_folder, root_dir, image_format=image_format, pictures=pictures
        )
    write_html(document, output.with_suffix(".html"), pictures=pictures)


def format_report_paths(output: Path) -> str:
    """Return a line with the paths of a report."""
    page = output.with_suffix(".html")
    beside = "" if output == page else f", {output}"
    return f"report: {page} (in the browser){beside} and {output.with_suffix('.summary.json')}"


def _dump(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")
