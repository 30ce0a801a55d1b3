"""Publish a job's script, progress and results in a storage, each file atomically."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from nnpipe.core.bounded_json import parse_json
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import compute_sha256
from nnpipe.core.progress import MOST_METRICS, Reader, Report
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.jobs import COMPLETED, JobRecord
from nnpipe.jobs.job_spec import JobSpec
from nnpipe.jobs.place import JobError, Place
from nnpipe.jobs.place_address import create_place
from nnpipe.storage.storage import Storage, open_storage
from nnpipe.storage.store import validate_name

SCRIPTS, PROGRESS, RESULTS = "training-scripts", "training-progress", "training-results"
REPORTS, LOG, STATUS = "progress.jsonl", "log.txt", "job.json"

_LONGEST = 80


def build_folder_name(name: str, job: str) -> str:
    """Return the folder of a job on each shelf: its name, without unsuitable characters, and its
    identifier.
    """
    plain = (
        "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
        .strip(".- ")[:_LONGEST]
        .strip(".- ")
    )
    return validate_name(f"{plain or 'job'}-{job[:12]}")


def map_published_names(outputs: Sequence[str]) -> dict[str, str]:
    """Return the published name of each output in the job's folder.

    Raises
    ------
    ConfigError
        If a storage does not accept a name, or two outputs would have the same.
    """
    found: dict[str, str] = {}
    for output in outputs:
        path = PurePosixPath(output)
        inside = not path.is_absolute() and ".." not in path.parts
        name = validate_name(str(path) if inside else path.name, "output")
        if name in (REPORTS, LOG, STATUS) or name in found.values():
            raise ConfigError(
                f"output {output}: another file is published as {name!r}; call it otherwise"
            )
        found[output] = name
    return found


def publish_script(work: JobSpec, name: str, job: str) -> None:
    """Publish a job's script before it starts, so that a storage that cannot be written to is
    detected early.
    """
    if work.storage is None:
        return
    map_published_names(work.outputs)
    storage = open_storage(work.storage)
    storage.put(
        SCRIPTS,
        f"{build_folder_name(name, job)}/{validate_name(work.file.name)}",
        work.file,
        replace=True,
    )


def publish_progress(job: JobRecord, reports: bytes) -> None:
    """Publish a job's progress: all reports so far, and a summary."""
    storage = _open_storage(job)
    if storage is not None:
        _put_progress(storage, job, reports)


def publish_end(job: JobRecord, reports: bytes, log: bytes) -> None:
    """Publish the end of a job: its log, the outputs if it completed, and then the summary.

    Raises
    ------
    JobError
        If an output has changed since the job ended.
    """
    storage = _open_storage(job)
    if storage is None:
        return
    folder = build_folder_name(job.run.experiment, job.id)
    _put_progress(storage, job, reports)
    shelf = RESULTS if job.state == COMPLETED else PROGRESS
    _put(storage, shelf, f"{folder}/{LOG}", log)
    if job.state != COMPLETED:
        return
    work = JobSpec.from_json(job.details["work"])
    names, noted = map_published_names(work.outputs), _get_recorded_digests(job)
    for output, name in names.items():
        path = work.directory / output
        if not path.is_file() or compute_sha256(path) != noted.get(output):
            raise JobError(
                f"{path} is not what the job left; it was changed since, and is not published"
            )
        storage.put(RESULTS, f"{folder}/{name}", path, replace=True)
    _put(storage, RESULTS, f"{folder}/{STATUS}", _encode_summary(job))


def build_summary(job: JobRecord) -> dict[str, Any]:
    """Return the facts about a job in JSON form, without its environment, which is private."""
    finite = {
        name: value if math.isfinite(value) else str(value)
        for name, value in job.run.statistics.items()
    }
    work = {
        name: value
        for name, value in job.details.get("work", {}).items()
        if name not in ("environment", "variables")
    }
    return {
        "id": job.id,
        "name": job.run.experiment,
        "place": job.place,
        "folder": job.folder,
        "state": job.state,
        "reason": job.run.reason,
        "fraction": job.fraction,
        "metrics": finite,
        "attempt": job.attempt,
        "created": job.run.created,
        "started": job.run.started,
        "ended": job.run.ended,
        "work": work,
        "outputs": job.details.get("ended", {}).get("outputs", []),
    }


def _encode_summary(job: JobRecord) -> bytes:
    return json.dumps(build_summary(job), indent=2).encode() + b"\n"


def _get_recorded_digests(job: JobRecord) -> Mapping[str, str]:
    return {one["path"]: one["sha256"] for one in job.details.get("ended", {}).get("outputs", [])}


def _put_progress(storage: Storage, job: JobRecord, reports: bytes) -> None:
    folder = build_folder_name(job.run.experiment, job.id)
    _put(storage, PROGRESS, f"{folder}/{REPORTS}", reports)
    _put(storage, PROGRESS, f"{folder}/{STATUS}", _encode_summary(job))


def _put(storage: Storage, shelf: str, name: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "content"
        path.write_bytes(content)
        storage.put(shelf, name, path, replace=True)


def _open_storage(job: JobRecord) -> Storage | None:
    address = job.details.get("work", {}).get("storage")
    return None if address is None else open_storage(address)


VARIABLE = "NNPIPE_SETTLE"
"""The environment variable that names the job to ``nnpipe.jobs.collect_results_command``.

It is not an option, since addresses may contain passwords, which must not appear on a command line.
"""

COLLECTED_LOG = "log.txt"
"""The name of the artifact with the end of a job's log."""

HISTORY = "progress"
"""The name of the history with a job's progress reports."""

_MOST_ROWS = 10_000
_MOST_LOG, _MOST_REPORTS = 16 << 20, 16 << 20


def call(database: RunDatabase, job: str) -> dict[str, str]:
    """Return the environment variables that name a job to
    ``nnpipe.jobs.collect_results_command``.
    """
    address, store = database.opened_by
    return {VARIABLE: json.dumps({"job": job, "address": address, "store": store})}


def read_call_variables(environment: Mapping[str, str]) -> tuple[str, str, str | None]:
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
    place = create_place(job.place)
    if job.state == COMPLETED:
        work = job.details["work"]
        outputs = [
            one
            for one in job.details.get("ended", {}).get("outputs", [])
            if one["path"] in work["outputs"]
        ]
        place.fetch(job.folder, outputs, Path(work["directory"]))
    reports, log = (
        _read_whole(place, job, "progress", _MOST_REPORTS),
        _read_whole(place, job, "log", _MOST_LOG),
    )
    rows = build_rows(Reader().feed(reports + b"\n"))  # the last line may have no line end
    if rows:
        database.figures.put_history(job.id, HISTORY, rows, at=0)
    if database.opened_by[1] is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / COLLECTED_LOG
            path.write_bytes(log)
            database.artifacts.put_file(job.id, path.name, path)
    publish_end(job, reports, log)
    database.jobs.record_state(job, job.state, settled=True)


def tell_storage(job: JobRecord) -> None:
    """Publish the progress of a running job, if it has a storage."""
    if job.details.get("work", {}).get("storage") is not None and job.folder and not job.ended:
        publish_progress(job, _read_whole(create_place(job.place), job, "progress", _MOST_REPORTS))


def build_rows(reports: Sequence[Report]) -> list[dict[str, float]]:
    """Return evenly spaced rows, including the last, within a history's limits on rows and
    names.
    """
    if not reports:
        return []
    chosen = reports[::-1][:: -(-len(reports) // _MOST_ROWS)][::-1]
    names = list(dict.fromkeys(name for report in chosen for name in report.metrics))[:MOST_METRICS]
    return [
        {name: report.metrics[name] for name in names if name in report.metrics}
        | ({} if report.fraction is None else {"fraction": report.fraction})
        for report in chosen
    ]


def _read_whole(
    place: Place, job: JobRecord, which: Literal["progress", "log"], most: int
) -> bytes:
    """Return a job's progress reports or log, at most the last ``most`` bytes."""
    first = place.look(job.folder, -1, -1)
    size = first.progress_size if which == "progress" else first.log_size
    begin, pieces = max(0, size - most), []
    while begin < size:
        look = (
            place.look(job.folder, begin, -1)
            if which == "progress"
            else place.look(job.folder, -1, begin)
        )
        piece = (look.progress if which == "progress" else look.log)[: size - begin]
        if not piece:
            raise JobError(f"job {job.id[:12]}: its {which} became shorter while it was read")
        pieces.append(piece)
        begin += len(piece)
    return b"".join(pieces)
