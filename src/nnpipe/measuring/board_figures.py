"""Flash and memory that a model needs on a board without an operating system, as the board tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from nnpipe.measuring.constraints import Figure

if TYPE_CHECKING:
    from nnpipe.measuring.run import Run

BOARD_FIGURES = ("flash", "ram", "arena", "stack")
"""The figures; each is ``timing.session.board`` with ``_bytes`` behind its name."""


def board_bytes(run: Run) -> Mapping[str, int]:
    """Return what the target of a run tells of flash and memory, by the names there; empty if it tells nothing."""
    session = run.timing.get("session")
    told = session.get("board") if isinstance(session, Mapping) else None
    if not isinstance(told, Mapping):
        return {}
    return {name: value for name, value in told.items() if type(value) is int and value >= 0}


def board_figure(run: Run, name: str) -> Figure:
    """Return one of :data:`BOARD_FIGURES`; it has no value, but a reason, if the target does not tell it."""
    value = board_bytes(run).get(f"{name}_bytes")
    if value is None:
        return Figure.unknown("only boards without an operating system tell it")
    return Figure.exactly(value)
