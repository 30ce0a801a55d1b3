"""Collect the results of an ended job: store its metrics, log and files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ConfigError
from nnpipe.core.progress_file import MOST_METRICS, Reader, Report
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.jobs import COMPLETED, JobRecord
from nnpipe.jobs.place import JobError, Place
from nnpipe.jobs.place_address import place_at
from nnpipe.jobs.publishing import publish_end, publish_progress

VARIABLE = "NNPIPE_SETTLE"
"""The environment variable that names the job to ``nnpipe.jobs.collect_results_command``.

It is not an option, since addresses may contain passwords, which must not appear on a command line.
"""

LOG = "log.txt"
"""The name of the artifact with the end of a job's log."""

HISTORY = "progress"
"""The name of the history with a job's progress reports."""

_MOST_ROWS = 10_000
_MOST_LOG, _MOST_REPORTS = 16 << 20, 16 << 20


def call(database: RunDatabase, job: str) -> dict[str, str]:
    """Return the environment variables that name a job to ``nnpipe.jobs.collect_results_command``."""
    address, store = database.opened_by
    return {VARIABLE: json.dumps({"job": job, "address": address, "store": store})}


def called(environment: Mapping[str, str]) -> tuple[str, str, str | None]:
    """Read the variables of :func:`call`: the job, and the address and store of the database."""
    try:
        told = parse_json(environment[VARIABLE])
        return told["job"], told["address"], told["store"]
    except (KeyError, ValueError, TypeError):
        raise ConfigError(f"{VARIABLE} does not say which job has ended") from None


def collect_results(database: RunDatabase, job: JobRecord) -> None:
    """Fetch, record and publish the results of an ended job; it can be repeated safely.

    Raises
    ------
    NNPipeError
        If files could not be fetched or published; it can be tried again.
    """
    place = place_at(job.place)
    if job.state == COMPLETED:
        work = job.details["work"]
        outputs = [one for one in job.details.get("ended", {}).get("outputs", []) if one["path"] in work["outputs"]]
        place.fetch(job.folder, outputs, Path(work["directory"]))
    reports, log = _whole(place, job, "progress", _MOST_REPORTS), _whole(place, job, "log", _MOST_LOG)
    rows = rows_of(Reader().feed(reports + b"\n"))  # the last line may have no line end
    if rows:
        database.figures.put_history(job.id, HISTORY, rows, at=0)
    if database.opened_by[1] is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / LOG
            path.write_bytes(log)
            database.artifacts.put_file(job.id, path.name, path)
    publish_end(job, reports, log)
    database.jobs.change(job, job.state, settled=True)


def tell_storage(job: JobRecord) -> None:
    """Publish the progress of a running job, if it has a storage."""
    if job.details.get("work", {}).get("storage") is not None and job.folder and not job.ended:
        publish_progress(job, _whole(place_at(job.place), job, "progress", _MOST_REPORTS))


def rows_of(reports: Sequence[Report]) -> list[dict[str, float]]:
    """Return evenly spaced rows, including the last, within a history's limits on rows and names."""
    if not reports:
        return []
    chosen = reports[::-1][:: -(-len(reports) // _MOST_ROWS)][::-1]
    names = list(dict.fromkeys(name for report in chosen for name in report.metrics))[:MOST_METRICS]
    return [
        {name: report.metrics[name] for name in names if name in report.metrics}
        | ({} if report.fraction is None else {"fraction": report.fraction})
        for report in chosen
    ]


def _whole(place: Place, job: JobRecord, which: Literal["progress", "log"], most: int) -> bytes:
    """Return a job's progress reports or log, at most the last ``most`` bytes."""
    first = place.look(job.folder, -1, -1)
    size = first.progress_size if which == "progress" else first.log_size
    begin, pieces = max(0, size - most), []
    while begin < size:
        look = place.look(job.folder, begin, -1) if which == "progress" else place.look(job.folder, -1, begin)
        piece = (look.progress if which == "progress" else look.log)[: size - begin]
        if not piece:
            raise JobError(f"job {job.id[:12]}: its {which} became shorter while it was read")
        pieces.append(piece)
        begin += len(piece)
    return b"".join(pieces)
