"""Histories as curves, for other tools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nnpipe.experiment.database.database import RunDatabase

STEPS = ("step", "epoch")
"""Columns that can number the rows, in order of preference; without them rows count from 0."""


@dataclass(frozen=True)
class CurvePoint:
    """A point of a curve."""

    history: str
    name: str
    step: int
    value: float


def points(database: RunDatabase, run: str) -> Iterator[CurvePoint]:
    """Yield all values of a run's histories, row by row."""
    for history in database.figures.histories(run):
        for number, row in enumerate(database.figures.history(run, history).rows()):
            steps = [row[name] for name in STEPS if isinstance(row.get(name), int)]
            step = int(steps[0]) if steps else number
            for name, value in row.items():
                if name not in STEPS:
                    yield CurvePoint(history, name, step, float(value))
