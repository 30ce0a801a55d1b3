"""Recorded runs as event files, which TensorBoard shows."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.exports.curves import points


def to_tensorboard(database: RunDatabase, run: str, folder: str | Path) -> Path:
    """Write a run's histories, statistics and configuration.

    Parameters
    ----------
    database
        Where the run is recorded.
    run
        The run.
    folder
        What TensorBoard is pointed at.

    Returns
    -------
    Path
        The run's own folder in it, named by its identity; what was there before is replaced.

    Raises
    ------
    ConfigError
        If the folder cannot be written.
    MissingDependency
        If tensorboardX is not installed.
    """
    try:
        # Not its SummaryWriter: that one writes from a thread of its own, whenever that comes round to it.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar, text
    except ImportError:
        raise MissingDependency("TensorBoard's files need tensorboardX: pip install 'nnpipe[tracking]'") from None
    record = database.runs.get(run)
    own = Path(folder) / record.id
    try:
        own.mkdir(parents=True, exist_ok=True)
        before = list(own.glob("events.*"))
        writer = EventsWriter(str(own / "events"), f".{secrets.token_hex(4)}")
    except OSError as error:
        raise ConfigError(f"{own}: cannot be written: {error.strerror or error}") from None
    when = record.ended or record.started or record.created
    try:
        for point in points(database, record.id):
            summary = scalar(f"{point.history}/{point.name}", point.value)
            writer.write_event(Event(summary=summary, step=point.step, wall_time=when))
        for name, value in record.statistics.items():
            writer.write_event(Event(summary=scalar(f"statistics/{name}", value), step=record.done, wall_time=when))
        told = json.dumps({"experiment": record.experiment, "configuration": record.configuration}, indent=2)
        indented = "\n".join(f"    {line}" for line in told.splitlines())  # Markdown's word for code
        writer.write_event(Event(summary=text("configuration", indented), step=0, wall_time=when))
    finally:
        writer.close()
    for path in before:
        path.unlink(missing_ok=True)
    return own
