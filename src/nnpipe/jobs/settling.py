"""What follows the end of a job: its figures, its log and its files are put where they stay."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.progressfile import Reader, Report
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.jobs import COMPLETED, JobRecord
from nnpipe.jobs.place import JobError, Place
from nnpipe.jobs.places import place_at

VARIABLE = "NNPIPE_SETTLE"
"""Tells ``nnpipe.jobs.settle`` which job; addresses may hold passwords, which no command line should show."""

HISTORY = "progress"
"""The history that the reports of a job go to."""

_MOST_ROWS = 10_000
_MOST_LOG = 16 << 20


def call(database: RunDatabase, job: str) -> dict[str, str]:
    """Give the environment variables that tell ``nnpipe.jobs.settle`` which job is meant."""
    address, store = database.opened_by
    return {VARIABLE: json.dumps({"job": job, "address": address, "store": store})}


def called(environment: Mapping[str, str]) -> tuple[str, str, str | None]:
    """Read what :func:`call` gave: the job, and the address and store of the database."""
    try:
        told = json.loads(environment[VARIABLE])
        return told["job"], told["address"], told["store"]
    except (KeyError, ValueError, TypeError):
        raise ConfigError(f"{VARIABLE} does not say which job has ended") from None


def settle(database: RunDatabase, job: JobRecord) -> None:
    """Do what follows the end of a job; done twice it does no harm.

    Raises
    ------
    NNPipeError
        If files could not be brought or published; it can be tried again.
    """
    place = place_at(job.place)
    if job.state == COMPLETED:
        work = job.details["work"]
        outputs = [one for one in job.details.get("ended", {}).get("outputs", []) if one["path"] in work["outputs"]]
        place.fetch(job.folder, outputs, Path(work["directory"]))
    rows = [_row(report) for report in _reports(place, job)]
    if rows:
        database.figures.put_history(job.id, HISTORY, thinned(rows), at=0)
    if database.opened_by[1] is not None:
        _keep_log(database, place, job)
    database.jobs.change(job, job.state, settled=True)


def thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give so many rows, evenly chosen and the last among them, as a history should have at most."""
    step = -(-len(rows) // _MOST_ROWS)
    return rows[::-1][::step][::-1]


def _row(report: Report) -> dict[str, Any]:
    fraction = {} if report.fraction is None else {"fraction": report.fraction}
    return {**report.metrics, **fraction}


def _reports(place: Place, job: JobRecord) -> Iterator[Report]:
    reader, begin = Reader(), 0
    while True:
        piece = place.look(job.folder, begin, -1).progress
        if not piece:
            yield from reader.feed(b"\n")  # the last line may lack its end
            return
        begin += len(piece)
        yield from reader.feed(piece)


def _keep_log(database: RunDatabase, place: Place, job: JobRecord) -> None:
    """Store the end of the log as an artifact."""
    size = place.look(job.folder, -1, -1).log_size
    begin = max(0, size - _MOST_LOG)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.txt"
        with open(path, "wb") as handle:
            while begin < size:
                piece = place.look(job.folder, -1, begin).log[: size - begin]
                if not piece:
                    raise JobError(f"job {job.id[:12]}: its log became shorter while it was read")
                handle.write(piece)
                begin += len(piece)
        database.artifacts.put_file(job.id, "log.txt", path)
