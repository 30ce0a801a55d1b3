"""Publish a job's script, progress and results in a storage, each file atomically."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.core.files import sha256_of
from nnpipe.experiment.database.jobs import COMPLETED, JobRecord
from nnpipe.jobs.job_spec import JobSpec
from nnpipe.jobs.place import JobError
from nnpipe.storage.names import checked_name
from nnpipe.storage.storage import Storage, open_storage

SCRIPTS, PROGRESS, RESULTS = "training-scripts", "training-progress", "training-results"
REPORTS, LOG, STATUS = "progress.jsonl", "log.txt", "job.json"

_LONGEST = 80


def folder_of(name: str, job: str) -> str:
    """Return the folder of a job on each shelf: its name, without unsuitable characters, and its identifier."""
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".- ")[:_LONGEST].strip(".- ")
    return checked_name(f"{plain or 'job'}-{job[:12]}")


def published_names(outputs: Sequence[str]) -> dict[str, str]:
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
        name = checked_name(str(path) if inside else path.name, "output")
        if name in (REPORTS, LOG, STATUS) or name in found.values():
            raise ConfigError(f"output {output}: another file is published as {name!r}; call it otherwise")
        found[output] = name
    return found


def publish_script(work: JobSpec, name: str, job: str) -> None:
    """Publish a job's script before it starts, so that a storage that cannot be written to is detected early."""
    if work.storage is None:
        return
    published_names(work.outputs)
    storage = open_storage(work.storage)
    storage.put(SCRIPTS, f"{folder_of(name, job)}/{checked_name(work.file.name)}", work.file, replace=True)


def publish_progress(job: JobRecord, reports: bytes) -> None:
    """Publish a job's progress: all reports so far, and a summary."""
    storage = _storage(job)
    if storage is not None:
        _put_progress(storage, job, reports)


def publish_end(job: JobRecord, reports: bytes, log: bytes) -> None:
    """Publish the end of a job: its log, the outputs if it completed, and then the summary.

    Raises
    ------
    JobError
        If an output has changed since the job ended.
    """
    storage = _storage(job)
    if storage is None:
        return
    folder = folder_of(job.run.experiment, job.id)
    _put_progress(storage, job, reports)
    shelf = RESULTS if job.state == COMPLETED else PROGRESS
    _put(storage, shelf, f"{folder}/{LOG}", log)
    if job.state != COMPLETED:
        return
    work = JobSpec.from_json(job.details["work"])
    names, noted = published_names(work.outputs), _noted(job)
    for output, name in names.items():
        path = work.directory / output
        if not path.is_file() or sha256_of(path) != noted.get(output):
            raise JobError(f"{path} is not what the job left; it was changed since, and is not published")
        storage.put(RESULTS, f"{folder}/{name}", path, replace=True)
    _put(storage, RESULTS, f"{folder}/{STATUS}", _summary(job))


def summary(job: JobRecord) -> dict[str, Any]:
    """Return the facts about a job in JSON form, without its environment, which is private."""
    finite = {name: value if math.isfinite(value) else str(value) for name, value in job.run.statistics.items()}
    work = {
        name: value for name, value in job.details.get("work", {}).items() if name not in ("environment", "variables")
    }
    return {
        "id": job.id, "name": job.run.experiment, "place": job.place, "folder": job.folder, "state": job.state,
        "reason": job.run.reason, "fraction": job.fraction, "metrics": finite, "attempt": job.attempt,
        "created": job.run.created, "started": job.run.started, "ended": job.run.ended,
        "work": work, "outputs": job.details.get("ended", {}).get("outputs", []),
    }  # fmt: skip


def _summary(job: JobRecord) -> bytes:
    return json.dumps(summary(job), indent=2).encode() + b"\n"


def _noted(job: JobRecord) -> Mapping[str, str]:
    return {one["path"]: one["sha256"] for one in job.details.get("ended", {}).get("outputs", [])}


def _put_progress(storage: Storage, job: JobRecord, reports: bytes) -> None:
    folder = folder_of(job.run.experiment, job.id)
    _put(storage, PROGRESS, f"{folder}/{REPORTS}", reports)
    _put(storage, PROGRESS, f"{folder}/{STATUS}", _summary(job))


def _put(storage: Storage, shelf: str, name: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "content"
        path.write_bytes(content)
        storage.put(shelf, name, path, replace=True)


def _storage(job: JobRecord) -> Storage | None:
    address = job.details.get("work", {}).get("storage")
    return None if address is None else open_storage(address)
