"""The results of test vectors, as text for a terminal and as a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nnpipe.report.document import Block, Cell, Document, Paragraph, Section, Table
from nnpipe.report.formatting import shortened
from nnpipe.workflows.verification.conformance_cases import PASSED, STATUSES, Result, by_cause, counted

Found = Mapping[str, Mapping[str, Sequence[Result]]]
"""Results by format and title of the way."""

_TITLES = {"onnx": "ONNX operators", "tflite": "TensorFlow Lite layers"}


def text_of(found: Found) -> str:
    """Return a Markdown table of each format, and the causes of cases that did not pass."""
    return "\n".join(line for format, ways in found.items() for line in _lines(format, ways))


def _lines(format: str, ways: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    yield f"\n{_TITLES[format]}\n"
    yield "| way | cases | " + " | ".join(STATUSES) + " |"
    yield "| --- |" + " ---: |" * (len(STATUSES) + 1)
    for title, members in ways.items():
        counts = counted(members)
        yield f"| {title} | {len(members)} | " + " | ".join(str(counts[status]) for status in STATUSES) + " |"
    for title, members in ways.items():
        for status, _, like in by_cause(members):
            names = ", ".join(result.case.name for result in like[:3]) + (" ..." if len(like) > 3 else "")
            yield f"\n{title}: {len(like)} {status}: {shortened(like[0].told, 240)}\n    ({names})"


def document_of(found: Found, frameworks: Mapping[str, str]) -> Document:
    """Return a document with a section for each format and one with the versions."""
    sections = [_section(format, ways) for format, ways in found.items()]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(frameworks.items()))
    return Document("Conformance", (*sections, Section("Versions", (Paragraph(versions),))))


def _section(format: str, ways: Mapping[str, Sequence[Result]]) -> Section:
    rows = []
    for title, members in ways.items():
        counts = counted(members)
        rows.append((Cell(title), *(_number(counts[status]) for status in STATUSES)))
    blocks: list[Block] = [Table(("Way", *STATUSES), tuple(rows), caption="Cases by what came of them.")]
    for title, members in ways.items():
        causes = by_cause(members)
        if causes:
            blocks.append(Section(title, (_causes(title, causes),)))
        elif any(result.status == PASSED for result in members):
            blocks.append(Section(title, (Paragraph("Everything passed."),)))
    return Section(_TITLES[format], tuple(blocks))


def _causes(title: str, causes: Sequence[tuple[str, str, Sequence[Result]]]) -> Table:
    rows = tuple(
        (status, _number(len(like)), like[0].told, ", ".join(result.case.name for result in like))
        for status, _, like in causes
    )
    caption = f"What did not pass on {title}; of like causes one is shown."
    return Table(("Status", "Cases", "Cause", "Which"), rows, caption=caption)


def _number(count: int) -> Cell:
    return Cell(str(count), float(count))
