"""Writing recorded runs as event files for TensorBoard."""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.exports.curves import points
from nnpipe.experiment.exports.event_files import EventFile, check_installed


def to_tensorboard(database: RunDatabase, run: str, folder: str | Path) -> Path:
    """Write a run's histories, statistics and configuration as event files.

    Parameters
    ----------
    database
        The database of the run.
    run
        The identity of the run.
    folder
        The folder that TensorBoard reads.

    Returns
    -------
    Path
        The run's own folder in it, named by its identity; its earlier content is replaced.

    Raises
    ------
    ConfigError
        If the folder cannot be written.
    MissingDependency
        If tensorboardX is not installed.
    """
    check_installed("TensorBoard's format")
    record = database.runs.get(run)
    own = Path(folder) / record.id
    try:
        before = list(own.glob("events.*"))
        # A new name each time, so that a running TensorBoard reads the new file from its beginning.
        file = EventFile(own / f"events.out.tfevents.{int(time.time())}.{secrets.token_hex(4)}")
    except OSError as error:
        raise ConfigError(f"{own}: cannot be written: {error.strerror or error}") from None
    when = record.ended or record.started or record.created
    try:
        for point in points(database, record.id):
            file.scalar(f"{point.history}/{point.name}", point.value, point.step, when)
        for name, value in record.statistics.items():
            file.scalar(f"statistics/{name}", value, record.done, when)
        told = json.dumps({"experiment": record.experiment, "configuration": record.configuration}, indent=2)
        indented = "\n".join(f"    {line}" for line in told.splitlines())  # code in Markdown
        file.text("configuration", indented, 0, when)
    finally:
        file.close()
    for path in before:
        path.unlink(missing_ok=True)
    return own
