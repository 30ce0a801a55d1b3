"""The most important figures of a candidate with their intervals, its agreement with the source, and its doubts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from nnpipe.measuring.board_figures import BOARD_FIGURES
from nnpipe.measuring.constraints import Figure
from nnpipe.measuring.counted_figure import COUNTERS
from nnpipe.measuring.quantities import Quantity, quality, quantity
from nnpipe.report.document import Cell, Table
from nnpipe.report.formatting import NOTHING, count
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.quantity_text import interval, kinds, written
from nnpipe.report.sections.verdict import as_source, size_of
from nnpipe.report.writers.json_figures import costs_of


def headline_figures(candidate: Candidate) -> Iterator[tuple[Quantity, Figure]]:
    """Yield the figures of speed, quality and cost that are known, or whose absence has a reason."""
    found, timed, judged = costs_of(candidate), candidate.timed.name, candidate.quality
    if judged is not None:
        found[judged.metric.name] = judged.figure
    first = () if judged is None else (judged.metric.name,)
    others = (
        "round_trip_median",
        "paced_median",
        "throughput",
        *first,
        "size",
        "memory",
        *COUNTERS,
        *BOARD_FIGURES,
        "energy",
    )
    for name in dict.fromkeys((f"{timed}_median", f"{timed}_p90", *others)):
        known = found.get(name)
        if known is not None and (known.value is not None or known.reason):
            yield quantity(name), known


def headline(candidate: Candidate) -> Table:
    """Return a table of the most important figures, with the agreement and the doubts below.

    Metrics of quality behind the first one have no interval here, since these may take long.
    """
    rows, judged = [], candidate.quality
    for q, known in headline_figures(candidate):
        text = interval(q, known) or known.reason
        if q.name == "size":
            text = text or size_of(candidate)
        rows.append((q.title, Cell(written(q, known.value), known.value), text))
        if judged is None or q.name != judged.metric.name:
            continue
        for metric in judged.task.metrics[1:]:
            if not math.isnan(value := metric.of(judged.evaluation)):
                why = judged.evaluation.not_finite_words() if math.isinf(value) else ""
                rows.append((metric.title, Cell(written(quality(metric), value), value), why))
    if candidate.verdict:
        rows.append(("Agreement with the source", Cell(candidate.verdict), as_source(candidate)))
    if candidate.latency is not None:
        rows.append(("Doubts", Cell(kinds(candidate.doubts)), ""))
    calls = f"{count(len(candidate.latency))} timed calls" if candidate.latency is not None else NOTHING
    return Table(("Figure", "Value", "95\u00a0% interval"), tuple(rows), caption=calls)
