"""Formatting of jobs as a table and as a line."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence

from nnpipe.experiment.database.jobs import JobRecord
from nnpipe.report.document import Cell, Table
from nnpipe.report.formatting import clean
from nnpipe.report.writers.terminal import to_text

_HEADER = ("job", "name", "place", "state", "done", "figures", "submitted (UTC)", "took", "reason")
_FIGURES = 3


def listing(jobs: Sequence[JobRecord]) -> str:
    """Return a table of jobs."""
    rows = tuple(tuple(map(Cell, _row(job))) for job in jobs)
    return to_text(Table(_HEADER, rows))


def line(job: JobRecord) -> str:
    """Return the state of a job as a line: name, state, progress, figures and reason."""
    parts = [job.state, done(job.fraction), figures(job.run.statistics), clean(job.run.reason)]
    return f"{clean(job.run.experiment)}: {' '.join(part for part in parts if part and part != '-')}"


def done(fraction: float | None) -> str:
    """Return the progress in percent, rounded down, so that 100% means completed; ``-`` if it is not known."""
    return "-" if fraction is None else f"{math.floor(100 * fraction)}%"


def figures(metrics: Mapping[str, float]) -> str:
    """Return the names and values of the first three figures as text."""
    return " ".join(f"{clean(name)} {value:.4g}" for name, value in list(metrics.items())[:_FIGURES])


def _row(job: JobRecord) -> tuple[str, ...]:
    run = job.run
    submitted = datetime.datetime.fromtimestamp(run.created, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    took = "-" if run.duration is None else f"{run.duration:.1f} s"
    if run.duration is not None and run.duration >= 600:
        took = str(datetime.timedelta(seconds=round(run.duration)))
    state = job.state if job.attempt == 1 else f"{job.state} ({job.attempt}.)"
    return (
        job.id[:12], clean(run.experiment), clean(job.place), state, done(job.fraction), figures(run.statistics) or "-",
        submitted, took, clean(run.reason) or "-",
    )  # fmt: skip
