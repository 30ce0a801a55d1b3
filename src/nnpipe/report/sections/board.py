"""The section on boards without an operating system: how much flash and memory a model needs there."""

from __future__ import annotations

from collections.abc import Sequence

from nnpipe.measuring.board_figures import board_bytes
from nnpipe.measuring.counted_figure import COUNTERS, counted_figure, counter_of
from nnpipe.measuring.quantities import quantity
from nnpipe.report.document import Cell, Section, Table
from nnpipe.report.formatting import NOTHING, clean, count, counted
from nnpipe.report.inputs.candidate import Candidate

_SIZES = ("flash", "ram", "arena", "data", "stack")
_HEADINGS = {"data": "Data", "stack": "Stack, most used"}
_CAPTION = (
    "In bytes. Flash is code, constants and initial values, as built for the core. RAM is arena, data and the stack "
    "that runs have used; the prediction adds the frames of the deepest chain of calls. The firmware is not included."
)


def board_section(candidates: Sequence[Candidate]) -> Section | None:
    """Return a table of what candidates need on their boards; None if none ran on one."""
    there = [(each, board_bytes(each.run)) for each in candidates if board_bytes(each.run)]
    if not there:
        return None
    counters = [name for name in COUNTERS if any(counter_of(each.run) == name for each, _ in there)]
    header = (
        "Candidate", "Board", *(_HEADINGS.get(name) or quantity(name).heading for name in _SIZES), "Stack, predicted",
        *(quantity(name).heading for name in counters),
    )  # fmt: skip
    rows = []
    for each, sizes in there:
        predicted = _about(each).get("stack_predicted_bytes")
        figures = [counted_figure(each.run, name).value for name in counters]
        rows.append((
            Cell(each.name, float(each.number), each.made_of), Cell(_board(each)),
            *(_bytes(sizes.get(f"{name}_bytes")) for name in _SIZES), _bytes(predicted),
            *(Cell(counted(value), value) for value in figures),
        ))  # fmt: skip
    return Section("On the board", (Table(header, tuple(rows), sortable=True, caption=_CAPTION),))


def _about(candidate: Candidate) -> dict[str, object]:
    session = candidate.run.timing.get("session")
    about = session.get("target") if isinstance(session, dict) else None
    return about if isinstance(about, dict) else {}


def _board(candidate: Candidate) -> str:
    told = [_about(candidate).get(key) for key in ("board", "core")]
    return ", ".join(clean(each, 60) for each in told if isinstance(each, str)) or NOTHING


def _bytes(value: object) -> Cell:
    return Cell(count(value), float(value)) if type(value) is int else Cell(NOTHING)
