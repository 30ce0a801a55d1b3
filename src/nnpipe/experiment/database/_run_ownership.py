"""Recording which process owns a run, and whether it still exists."""

from __future__ import annotations

import os
import platform
import time
from typing import Any

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.database._tables import tables
from nnpipe.experiment.database.records import RunRecord


def hold(connection: Any, before: RunRecord, *, even_if_running: bool) -> None:
    """Make this process the owner of a run, within a transaction; see :meth:`Runs.take_up`."""
    table = tables().runs
    if before.status == "completed":
        raise ConfigError(f"run {before.id[:12]} of {before.experiment} is completed")
    if before.status == "running" and not even_if_running and may_be_alive(connection, before):
        raise ConfigError(
            f"run {before.id[:12]} of {before.experiment} is running in process {before.process} on {before.host}; "
            "if that is gone, take it over"
        )
    values = holder() | {"status": "running", "reason": "", "started": time.time(), "ended": None}
    connection.execute(table.update().where(table.c.id == before.id).values(**values))


def may_be_alive(connection: Any, record: RunRecord) -> bool:
    """Return whether the process that owns a run may still exist; on another machine this is not known."""
    import psutil
    import sqlalchemy as sa

    if record.process is None:
        return False
    if record.host != platform.node():
        return True
    table = tables().runs
    began = connection.scalar(sa.select(table.c.process_started).where(table.c.id == record.id))
    try:
        # Process ids are reused, but not together with the start time.
        return began is None or abs(psutil.Process(record.process).create_time() - began) < 1.0
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def holder() -> dict[str, Any]:
    """Return the columns of a run that identify this process."""
    import psutil

    return {
        "host": platform.node(),
        "process": os.getpid(),
        "process_started": psutil.Process().create_time(),
    }
