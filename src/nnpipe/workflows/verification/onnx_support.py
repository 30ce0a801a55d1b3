"""Converting the models of frameworks to ONNX and back, in one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call, check_range
from nnpipe.core.errors import ConfigError, MissingDependency, NNPipeError
from nnpipe.core.foreign_text import show_text
from nnpipe.core.leases import create_temporary_folder
from nnpipe.core.onnx_conversion import ONNXConversion
from nnpipe.core.progress import Progress
from nnpipe.core.registry import components, find
from nnpipe.measuring.host import get_framework_versions
from nnpipe.report.document import Block, Cell, Document, Paragraph, Section, Table
from nnpipe.report.writers.html import write_html
from nnpipe.report.writers.rst import write_rst
from nnpipe.workflows.isolation.subprocess_worker import UnexpectedError, Worker, WorkerDied
from nnpipe.workflows.progress import show_progress
from nnpipe.workflows.verification.onnx_roundtrip import TASKS, RoundtripRow

_TOLD = {"none": "no importer"}


def format_support_table(rows: Sequence[RoundtripRow], opsets: Sequence[int]) -> str:
    """Return a table in Markdown, and the causes of failures."""
    return "\n".join(_format_lines(rows, opsets))


def _format_lines(rows: Sequence[RoundtripRow], opsets: Sequence[int]) -> Iterator[str]:
    yield (
        "| framework | model | " + " | ".join(f"opset {opset}" for opset in opsets) + " | import |"
    )
    yield "| --- | --- |" + " --- |" * (len(opsets) + 1)
    for framework in dict.fromkeys(row.framework for row in rows):
        for model, mine in _group_by_model(
            [row for row in rows if row.framework == framework]
        ).items():
            by_opset = {row.opset: row for row in mine}
            cells = []
            for opset in opsets:
                row = by_opset.get(opset)
                cells.append(
                    "–"
                    if row is None
                    else ", ".join(filter(None, (_format_outcome(row), _format_needed_opset(row))))
                )
            yield f"| {framework} | {model} | " + " | ".join(cells) + f" | {_import(mine)} |"
    for row in rows:
        if row.failed:
            yield (
                f"\n{row.framework}, {row.model}, opset {row.opset}: {_format_outcome(row)}: "
                f"{row.cause}"
            )
        elif row.imported == "failed":
            yield (
                f"\n{row.framework}, {row.model}, opset {row.opset}: import failed: "
                f"{row.import_cause}"
            )


def build_support_document(
    rows: Mapping[type[ONNXConversion], Sequence[RoundtripRow]],
    opsets: Sequence[int],
    absent: Sequence[type[ONNXConversion]],
    frameworks: Mapping[str, str],
) -> Document:
    """Return a document with a section for each framework, the missing frameworks, and the
    versions.
    """
    introduction = (
        "Each model was exported in each operator set, checked by onnx, run by ONNX Runtime and "
        "compared with what its framework gives: same (no relative error above 0.0001), close or "
        "different, with the largest relative error. Where a file needs another operator set than "
        "the one asked for, the cell says which."
    )
    sections = [Section("How to read this", (Paragraph(introduction),))]
    sections += [_build_section(cls, found, opsets) for cls, found in rows.items()]
    if absent:
        needs = tuple((cls.framework, ", ".join(cls.missing()), cls.summary()) for cls in absent)
        table = Table(("Framework", "Missing", "What it would do"), needs)
        sections.append(Section("Not installed here", (table,)))
    versions = ", ".join(f"{name} {version}" for name, version in sorted(frameworks.items()))
    return Document("ONNX support", (*sections, Section("Versions", (Paragraph(versions),))))


def _build_section(
    cls: type[ONNXConversion], rows: Sequence[RoundtripRow], opsets: Sequence[int]
) -> Section:
    lines = []
    for model, mine in _group_by_model(rows).items():
        by_opset = {row.opset: row for row in mine}
        cells = [
            Cell(_format_outcome(by_opset[opset]), None, _format_needed_opset(by_opset[opset]))
            if opset in by_opset
            else Cell("–")
            for opset in opsets
        ]
        lines.append((Cell(model), *cells, Cell(_import(mine))))
    header = ("Model", *(f"opset {opset}" for opset in opsets), "Import")
    blocks: list[Block] = [Paragraph(cls.summary()), Table(header, tuple(lines))]
    causes = tuple(
        (
            row.model,
            str(row.opset),
            _format_outcome(row) if row.failed else "import failed",
            row.cause or row.import_cause,
        )
        for row in rows
        if row.failed or row.imported == "failed"
    )
    if causes:
        blocks.append(
            Table(
                ("Model", "Opset", "What", "Cause"), causes, caption="What did not work, and why."
            )
        )
    reasons = dict.fromkeys(row.import_cause for row in rows if row.imported == "none")
    blocks += [Paragraph(f"Import: {reason}.", "note") for reason in reasons]
    return Section(cls.framework, tuple(blocks))


def _format_outcome(row: RoundtripRow) -> str:
    if row.failed:
        return {
            "made": "not made",
            "exported": "not exported",
            "valid": "invalid",
            "run": "does not run",
        }.get(row.failed, row.failed)
    error = "infinite" if row.error < 0 else f"{row.error:.0e}"
    return f"{row.verdict}, {error}"


def _format_needed_opset(row: RoundtripRow) -> str:
    return f"needs {row.written}" if row.written and row.written != row.opset else ""


def _import(rows: Sequence[RoundtripRow]) -> str:
    """Return the results of importing one model's files as one cell, naming operator sets if
    they differ.
    """
    found: dict[str, list[int]] = {}
    for row in rows:
        if row.imported:
            found.setdefault(_TOLD.get(row.imported, row.imported), []).append(row.opset)
    if len(found) > 1:
        return "; ".join(
            f"{state} ({', '.join(map(str, opsets))})" for state, opsets in found.items()
        )
    return next(iter(found), "–")


def _group_by_model(rows: Sequence[RoundtripRow]) -> dict[str, list[RoundtripRow]]:
    found: dict[str, list[RoundtripRow]] = {}
    for row in rows:
        found.setdefault(row.model, []).append(row)
    return found


OPSETS = (17, 18, 21)
"""The default operator sets for export."""


@dataclass(frozen=True)
class ONNXSupport:
    """How well frameworks write and read ONNX.

    Parameters
    ----------
    rows
        A row for each model in each operator set, by the class that converts it.
    opsets
        The requested operator sets.
    absent
        Classes whose frameworks are not installed.
    frameworks
        Versions of the packages that were used.

    Examples
    --------
    Of the example of :func:`nnpipe.onnx_support`:


    >>> found.passed
    True
    >>> found.save_report("support.rst").name
    'support.html'
    """

    rows: Mapping[type[ONNXConversion], Sequence[RoundtripRow]]
    opsets: tuple[int, ...]
    absent: tuple[type[ONNXConversion], ...]
    frameworks: Mapping[str, str]

    @property
    def every(self) -> tuple[RoundtripRow, ...]:
        """The rows of all frameworks."""
        return tuple(row for found in self.rows.values() for row in found)

    @property
    def passed(self) -> bool:
        """Whether every file that runs agrees with its model, and every imported model with its
        file.
        """
        return not any("different" in (row.verdict, row.imported) for row in self.every)

    def show(self) -> None:
        """Print the table, and the causes of failures."""
        show_text(str(self))

    def __str__(self) -> str:
        """Return the table in Markdown, and the causes of failures."""
        return format_support_table(self.every, self.opsets)

    def to_json(self) -> dict[str, Any]:
        """Return versions and rows as JSON can hold them."""
        return {"frameworks": dict(self.frameworks), "rows": [row.to_json() for row in self.every]}

    def save_report(self, path: str | Path) -> Path:
        """Write the table as reStructuredText with an HTML page beside it, and return the path
        of the page.
        """
        document = build_support_document(self.rows, self.opsets, self.absent, self.frameworks)
        write_rst(document, path)
        page = Path(path).with_suffix(".html")
        write_html(document, page)
        return page


def onnx_support(
    conversions: Sequence[str | type[ONNXConversion]] = (),
    *,
    opsets: Sequence[int] = OPSETS,
    folder: str | Path | None = None,
    time_limit: float = 180.0,
    progress: Progress = show_progress,
) -> ONNXSupport:
    """Convert the models of frameworks to ONNX and back, and return what works.

    Each model is exported in each operator set, checked by onnx, run by ONNX
    Runtime, compared with the framework's outputs, imported and compared again.
    Frameworks run in subprocesses: a crash or a hang affects only one row, which
    records it.

    Parameters
    ----------
    conversions
        Conversions, by name or as classes; by default all whose frameworks are installed.
    opsets
        Operator sets to export in.
    folder
        The folder in which to keep the ONNX files; by default they are not kept.
    time_limit
        The greatest time of one model in seconds, at least 0.1.
    progress
        Shows the progress.

    Returns
    -------
    ONNXSupport
        The ``rows``; ``passed`` summarises them and ``show()`` prints them.

    Raises
    ------
    ComponentNotFound
        If there is no conversion of a given name.
    ConfigError
        If no operator set is named, or an argument is out of range.
    MissingDependency
        If a named framework is not installed, or none is.

    Examples
    --------
    Of one framework:

    >>> found = onnx_support(["SklearnONNXConversion"], opsets=[18])
    >>> {row.verdict for row in found.every}
    {'same'}
    """
    check_call(onnx_support, locals())
    if not len(opsets):
        raise ConfigError("onnx_support: opsets takes at least one operator set, such as 18")
    for opset in opsets:
        check_range("onnx_support: opsets", opset, 1)
    check_range("onnx_support: time_limit", time_limit, 0.1)
    given = [find(each, ONNXConversion) if isinstance(each, str) else each for each in conversions]
    for cls in given:
        cls.check_installed()
    chosen = given or [cls for cls in components(ONNXConversion) if not cls.missing()]
    absent = () if given else tuple(cls for cls in components(ONNXConversion) if cls.missing())
    if not chosen:
        raise MissingDependency(
            "no framework that writes ONNX is installed; nnpipe list onnxconverters shows them"
        )
    wanted = tuple(dict.fromkeys(opsets))
    with ExitStack() as stack:
        place = Path(stack.enter_context(create_temporary_folder()) if folder is None else folder)
        place.mkdir(parents=True, exist_ok=True)
        rows = {
            cls: tuple(_run_roundtrips(cls, wanted, place, time_limit, progress)) for cls in chosen
        }
    return ONNXSupport(rows, wanted, absent, get_framework_versions())


def _run_roundtrips(
    cls: type[ONNXConversion],
    opsets: Sequence[int],
    folder: Path,
    seconds: float,
    progress: Progress,
) -> Iterator[RoundtripRow]:
    """Yield a row for every model in every operator set; errors are recorded in the row."""
    name = cls.get_dotted_path()
    try:
        with Worker(f"{TASKS}:list_model_names") as worker:
            models = worker.call({"conversion": name}, seconds)
    except (NNPipeError, UnexpectedError) as error:
        yield RoundtripRow(
            name, cls.framework, "(all)", opsets[0], failed="made", cause=_get_brief(error)
        )
        return
    tries = [(model, opset) for model in models for opset in opsets]
    with Worker(f"{TASKS}:convert") as worker:
        for model, opset in progress(tries, cls.framework, len(tries)):
            path = folder / f"{cls.__name__}-{model}-opset{opset}.onnx"
            task = {"conversion": name, "model": model, "opset": opset, "path": str(path)}
            try:
                yield RoundtripRow(**worker.call(task, seconds))
            except WorkerDied as error:
                yield RoundtripRow(
                    name, cls.framework, model, opset, failed="crashed", cause=str(error)
                )
            except (NNPipeError, UnexpectedError) as error:
                yield RoundtripRow(
                    name, cls.framework, model, opset, failed="made", cause=_get_brief(error)
                )


def _get_brief(error: Exception) -> str:
    return error.brief if isinstance(error, UnexpectedError) else str(error)
