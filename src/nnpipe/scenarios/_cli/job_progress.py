"""Display of a running job's progress and log, which does not affect the job."""

from __future__ import annotations

import codecs
import datetime
import math
import re
import sys
import time
from collections.abc import Mapping, Sequence

from nnpipe.core.foreign_text import get_raw_stream, sanitize_text
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.jobs import COMPLETED, FAILED, JobRecord
from nnpipe.jobs.jobs import refresh
from nnpipe.jobs.local import HERE
from nnpipe.jobs.place import ABSENT, Unreached
from nnpipe.jobs.place_address import create_place
from nnpipe.jobs.publishing import COLLECTED_LOG, tell_storage
from nnpipe.report.document import Cell, Table
from nnpipe.report.formatting import clean
from nnpipe.report.writers.tables import to_text
from nnpipe.workflows.isolation.signals import INTERRUPTED

_HEADER = ("job", "name", "place", "state", "done", "figures", "submitted (UTC)", "took", "reason")
_FIGURES = 3


def format_jobs_table(jobs: Sequence[JobRecord]) -> str:
    """Return a table of jobs."""
    rows = tuple(tuple(map(Cell, _format_row(job))) for job in jobs)
    return to_text(Table(_HEADER, rows))


def format_job_line(job: JobRecord) -> str:
    """Return the state of a job as a line: name, state, progress, figures and reason."""
    parts = [
        job.state,
        format_progress(job.fraction),
        format_statistics(job.run.statistics),
        clean(job.run.reason),
    ]
    return (
        f"{clean(job.run.experiment)}: {' '.join(part for part in parts if part and part != '-')}"
    )


def format_progress(fraction: float | None) -> str:
    """Return the progress in percent, rounded down, so that 100% means completed; ``-`` if it is
    not known.
    """
    return "-" if fraction is None else f"{math.floor(100 * fraction)}%"


def format_statistics(metrics: Mapping[str, float]) -> str:
    """Return the names and values of the first three figures as text."""
    return " ".join(
        f"{clean(name)} {value:.4g}" for name, value in list(metrics.items())[:_FIGURES]
    )


def _format_row(job: JobRecord) -> tuple[str, ...]:
    run = job.run
    submitted = datetime.datetime.fromtimestamp(run.created, datetime.timezone.utc).strftime(
        "%Y-%m-%d %H:%M:%S"
    )
    took = "-" if run.duration is None else f"{run.duration:.1f} s"
    if run.duration is not None and run.duration >= 600:
        took = str(datetime.timedelta(seconds=round(run.duration)))
    state = job.state if job.attempt == 1 else f"{job.state} ({job.attempt}.)"
    return (
        job.id[:12],
        clean(run.experiment),
        clean(job.place),
        state,
        format_progress(job.fraction),
        format_statistics(run.statistics) or "-",
        submitted,
        took,
        clean(run.reason) or "-",
    )


_PAUSE, _PAUSE_AFAR = 0.5, 3.0
_BETWEEN = 30.0  # seconds between two updates of a storage
_SHOWN = 20  # number of lines of the log that are shown for a failed job
_TAIL = 1 << 18

_CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ "
    r"-/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)


def show_job_progress(database: RunDatabase, job: JobRecord) -> int:
    """Show the progress of a job until it ends, and return the exit status: a bar on a terminal,
    lines elsewhere.

    The status is 0 if the job is completed, 130 after Ctrl-C, which does not end the job, and 1
    otherwise.
    """
    try:
        job = _wait_for_end(database, job)
    except KeyboardInterrupt:
        print(f"\nthe job goes on; nnpipe jobs watch {job.id[:12]} shows it again", file=sys.stderr)
        return INTERRUPTED
    print(format_job_line(job))
    for output in job.details.get("ended", {}).get("outputs", []):
        if not output["fault"]:
            print(f"  {output['path']} ({output['size']:,} bytes)")
    if job.state == FAILED and job.folder:
        tail = _extract_tail(
            _read_stored_log(database, job)
            or create_place(job.place).look(job.folder, -1, -_TAIL).log,
            _SHOWN,
        )
        print(
            f"the end of its log (nnpipe jobs logs {job.id[:12]} shows all):\n{tail}",
            file=sys.stderr,
        )
    return 0 if job.state == COMPLETED else 1


def _wait_for_end(database: RunDatabase, job: JobRecord) -> JobRecord:
    from tqdm import tqdm

    terminal = sys.stderr.isatty()
    form = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
    printed, reached, updated_at = "", False, time.monotonic()
    with tqdm(
        total=1.0,
        file=get_raw_stream(sys.stderr),
        disable=not terminal,
        dynamic_ncols=True,
        bar_format=form,
    ) as bar:
        while True:
            try:
                job, reached = refresh(database, job), True
                # On this machine the job's supervisor updates the storage.
                if job.place != HERE and time.monotonic() > updated_at + _BETWEEN:
                    updated_at = time.monotonic()
                    tell_storage(job)
            except Unreached as error:
                if not reached:
                    raise
                print(f"{error}; the job goes on, trying again", file=sys.stderr, flush=True)
            bar.set_description_str(f"{clean(job.run.experiment)}: {job.state}", refresh=False)
            bar.set_postfix_str(format_statistics(job.run.statistics), refresh=False)
            bar.n = job.fraction or 0.0
            bar.refresh()
            if job.ended:
                return job
            if not terminal and format_job_line(job) != printed:
                printed = format_job_line(job)
                print(printed, file=sys.stderr, flush=True)
            time.sleep(_get_pause(job))


def print_job_log(database: RunDatabase, job: JobRecord, *, lines: int, until_end: bool) -> int:
    """Print the log of a job, and return the exit status.

    Parameters
    ----------
    database
        The run database of the job.
    job
        The job.
    lines
        Number of last lines to begin with; 0 prints the whole log.
    until_end
        Whether to go on until the job ends.  Ctrl-C then gives status 130.
    """
    kept = _read_stored_log(database, job)
    if kept is not None or not job.folder:
        sys.stdout.write(
            _extract_tail(kept or b"", lines) + "\n"
            if lines
            else _remove_control_sequences(kept or b"")
        )
        return 0
    place, begin = create_place(job.place), 0
    # a block may end inside a character
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    if lines:
        look = place.look(job.folder, -1, -_TAIL)
        sys.stdout.write(_extract_tail(look.log, lines) + "\n")
        begin = look.log_size
    try:
        while True:
            look = place.look(job.folder, -1, begin)
            begin += len(look.log)
            # A carriage return draws a bar of the script again.
            get_raw_stream(sys.stdout).write(
                "\r".join(map(sanitize_text, _CONTROL.sub("", decode(look.log)).split("\r")))
            )
            sys.stdout.flush()
            if not look.log:
                gone = look.state == ABSENT and refresh(database, job, collect=False).ended
                if not until_end or gone or look.ended is not None:
                    return 0
                time.sleep(_get_pause(job))
    except KeyboardInterrupt:
        if not until_end:
            raise
        print("\nthe job goes on", file=sys.stderr)
        return INTERRUPTED


def _read_stored_log(database: RunDatabase, job: JobRecord) -> bytes | None:
    """Return the log of a job that has ended; ``None`` if the job runs or the run database does
    not have the log.
    """
    if not (job.ended and job.settled) or database.opened_by[1] is None:
        return None
    if all(artifact.name != COLLECTED_LOG for artifact in database.artifacts.list(job.id)):
        return None
    return database.artifacts.path(job.id, COLLECTED_LOG).read_bytes()


def _get_pause(job: JobRecord) -> float:
    return _PAUSE if job.place == HERE else _PAUSE_AFAR


def _extract_tail(data: bytes, lines: int) -> str:
    shown = _remove_control_sequences(data).rstrip("\n").split("\n")[-lines:]
    return "\n".join(text.rpartition("\r")[2] for text in shown)  # the last state of a progress bar


def _remove_control_sequences(data: bytes) -> str:
    """Return a log without the control sequences of terminals."""
    return _CONTROL.sub("", data.decode("utf-8", "replace"))
