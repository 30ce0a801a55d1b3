"""The table that a command prints at its end, with a row for each candidate, including failed ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nnpipe.report.document import Block, Cell, Paragraph, Table
from nnpipe.report.formatting import NOTHING, Scale, clean, digits, share
from nnpipe.report.inputs.candidate import Candidate, listed, quality_text
from nnpipe.report.quantity_text import kinds
from nnpipe.report.sections.verdict import size_of

_TIMES = ("Size", "Load", "Median", "p90")
_AGREEMENT = ("Same class", "Error", "As its source", "Doubts")


@dataclass(frozen=True)
class Failure:
    """A candidate that could not be measured.

    Parameters
    ----------
    place
        Its position among all candidates, from 0.
    title
        Its title.
    cause
        The reason, in one line.
    """

    place: int
    title: str
    cause: str


def outcome(candidates: Sequence[Candidate], failures: Sequence[Failure] = ()) -> Table:
    """Return the table of size, load time, median and 90th percentile, quality, agreement with the source, and doubts.

    ``Same class`` is the share of the samples that get the same class as from the source, and ``Error`` is the largest
    relative error of an output.
    """
    sizes = Scale.of_sizes([c.size for c in candidates])
    loads = Scale.of_times([c.load_ns for c in candidates])
    times = Scale.of_times([c.latency.median if c.latency else None for c in candidates])
    rows: list[tuple[Cell, ...]] = []
    for candidate in candidates:
        latency = candidate.latency
        texts = (
            loads.text(candidate.load_ns),
            times.text(latency.median if latency else None),
            times.text(latency.percentile(0.9).value if latency else None),
            quality_text(candidate),
            share(_same_class(candidate)),
            _error(candidate),
            candidate.verdict or NOTHING,
            kinds(candidate.doubts) if latency else NOTHING,
        )
        size = Cell(sizes.text(candidate.size), None, size_of(candidate))
        rows.append((Cell(candidate.name), size, *map(Cell, texts)))
    for failure in sorted(failures, key=lambda failure: failure.place):
        blank = (NOTHING,) * (len(_TIMES) + len(_AGREEMENT) - 1)
        rows.insert(failure.place, tuple(map(Cell, (clean(failure.title, 120), *blank, "failed", NOTHING))))
    units = {"Size": sizes.unit, "Load": loads.unit, "Median": times.unit, "p90": times.unit}
    header = ("Candidate", *(f"{name}, {units[name]}" for name in _TIMES), _quality_heading(candidates), *_AGREEMENT)
    return Table(header, tuple(rows))


def failure_warnings(failures: Sequence[Failure]) -> list[Block]:
    """Return a warning for each failed candidate, with the reason."""
    return [
        Paragraph(f"{clean(failure.title, 120)} could not be measured: {clean(failure.cause, 600)}", "warning")
        for failure in failures
    ]


def _quality_heading(candidates: Sequence[Candidate]) -> str:
    """Return the heading of the metric by which the candidates are ranked, if all of them have the same one."""
    headings = {candidate.quality.metric.heading for candidate in candidates if candidate.quality is not None}
    return headings.pop() if len(headings) == 1 else "Quality"


def _same_class(candidate: Candidate) -> float | None:
    if candidate.same_class is None or not candidate.verified_samples:
        return None
    return candidate.same_class / candidate.verified_samples


def _error(candidate: Candidate) -> str:
    """Return the largest relative error of an output as text; it may have any order of magnitude."""
    found = []
    for tensor in listed(candidate.run.verification.get("tensors")):
        value = tensor.get("max_relative") if isinstance(tensor, Mapping) else None
        if value == "infinite":
            return "infinite"
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            found.append(float(value))
    if not found:
        return NOTHING
    largest = max(found)
    return f"{largest:.1e}" if 0 < largest < 1e-3 else digits(largest, 2)
