"""How well frameworks support ONNX, as text for a terminal and as a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nnpipe.core.onnx_conversion import ONNXConversion
from nnpipe.report.document import Block, Cell, Document, Paragraph, Section, Table
from nnpipe.workflows.verification.onnx_roundtrip import RoundtripRow

_TOLD = {"none": "no importer"}


def text_of(rows: Sequence[RoundtripRow], opsets: Sequence[int]) -> str:
    """Return a table in Markdown, and the causes of failures."""
    return "\n".join(_lines(rows, opsets))


def _lines(rows: Sequence[RoundtripRow], opsets: Sequence[int]) -> Iterator[str]:
    yield "| framework | model | " + " | ".join(f"opset {opset}" for opset in opsets) + " | import |"
    yield "| --- | --- |" + " --- |" * (len(opsets) + 1)
    for framework in dict.fromkeys(row.framework for row in rows):
        for model, mine in _by_model([row for row in rows if row.framework == framework]).items():
            by_opset = {row.opset: row for row in mine}
            cells = []
            for opset in opsets:
                row = by_opset.get(opset)
                cells.append("–" if row is None else ", ".join(filter(None, (_outcome(row), _written(row)))))
            yield f"| {framework} | {model} | " + " | ".join(cells) + f" | {_import(mine)} |"
    for row in rows:
        if row.failed:
            yield f"\n{row.framework}, {row.model}, opset {row.opset}: {_outcome(row)}: {row.cause}"
        elif row.imported == "failed":
            yield f"\n{row.framework}, {row.model}, opset {row.opset}: import failed: {row.import_cause}"


def document_of(
    rows: Mapping[type[ONNXConversion], Sequence[RoundtripRow]],
    opsets: Sequence[int],
    absent: Sequence[type[ONNXConversion]],
    frameworks: Mapping[str, str],
) -> Document:
    """Return a document with a section for each framework, the missing frameworks, and the versions."""
    introduction = (
        "Each model was exported in each operator set, checked by onnx, run by ONNX Runtime and compared with what its "
        "framework gives: same (no relative error above 0.0001), close or different, with the largest relative error. "
        "Where a file needs another operator set than the one asked for, the cell says which."
    )
    sections = [Section("How to read this", (Paragraph(introduction),))]
    sections += [_section(cls, found, opsets) for cls, found in rows.items()]
    if absent:
        needs = tuple((cls.framework, ", ".join(cls.missing()), cls.summary()) for cls in absent)
        table = Table(("Framework", "Missing", "What it would do"), needs)
        sections.append(Section("Not installed here", (table,)))
    versions = ", ".join(f"{name} {version}" for name, version in sorted(frameworks.items()))
    return Document("ONNX support", (*sections, Section("Versions", (Paragraph(versions),))))


def _section(cls: type[ONNXConversion], rows: Sequence[RoundtripRow], opsets: Sequence[int]) -> Section:
    lines = []
    for model, mine in _by_model(rows).items():
        by_opset = {row.opset: row for row in mine}
        cells = [
            Cell(_outcome(by_opset[opset]), None, _written(by_opset[opset])) if opset in by_opset else Cell("–")
            for opset in opsets
        ]
        lines.append((Cell(model), *cells, Cell(_import(mine))))
    header = ("Model", *(f"opset {opset}" for opset in opsets), "Import")
    blocks: list[Block] = [Paragraph(cls.summary()), Table(header, tuple(lines))]
    causes = tuple(
        (row.model, str(row.opset), _outcome(row) if row.failed else "import failed", row.cause or row.import_cause)
        for row in rows
        if row.failed or row.imported == "failed"
    )
    if causes:
        blocks.append(Table(("Model", "Opset", "What", "Cause"), causes, caption="What did not work, and why."))
    reasons = dict.fromkeys(row.import_cause for row in rows if row.imported == "none")
    blocks += [Paragraph(f"Import: {reason}.", "note") for reason in reasons]
    return Section(cls.framework, tuple(blocks))


def _outcome(row: RoundtripRow) -> str:
    if row.failed:
        return {"made": "not made", "exported": "not exported", "valid": "invalid", "run": "does not run"}.get(
            row.failed, row.failed
        )
    error = "infinite" if row.error < 0 else f"{row.error:.0e}"
    return f"{row.verdict}, {error}"


def _written(row: RoundtripRow) -> str:
    return f"needs {row.written}" if row.written and row.written != row.opset else ""


def _import(rows: Sequence[RoundtripRow]) -> str:
    """Return the results of importing one model's files as one cell, naming operator sets if they differ."""
    found: dict[str, list[int]] = {}
    for row in rows:
        if row.imported:
            found.setdefault(_TOLD.get(row.imported, row.imported), []).append(row.opset)
    if len(found) > 1:
        return "; ".join(f"{state} ({', '.join(map(str, opsets))})" for state, opsets in found.items())
    return next(iter(found), "–")


def _by_model(rows: Sequence[RoundtripRow]) -> dict[str, list[RoundtripRow]]:
    found: dict[str, list[RoundtripRow]] = {}
    for row in rows:
        found.setdefault(row.model, []).append(row)
    return found
