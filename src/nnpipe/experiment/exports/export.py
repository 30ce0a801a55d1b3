"""Copying recorded runs into other tools."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import secrets
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.core.messages import format_one_line
from nnpipe.core.progress import Progress, silent
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.readers.tfrecord import compute_masked_crc32c
from nnpipe.experiment.settings import iterate_leaves

STEPS = ("step", "epoch")
"""Columns that can number the rows, in order of preference; without them rows count from 0."""


@dataclass(frozen=True)
class CurvePoint:
    """A point of a curve."""

    history: str
    name: str
    step: int
    value: float


def iterate_points(database: RunDatabase, run: str) -> Iterator[CurvePoint]:
    """Yield all values of a run's histories, row by row."""
    for history in database.figures.histories(run):
        for number, row in enumerate(database.figures.history(run, history).rows()):
            steps = [row[name] for name in STEPS if isinstance(row.get(name), int)]
            step = int(steps[0]) if steps else number
            for name, value in row.items():
                if name not in STEPS:
                    yield CurvePoint(history, name, step, float(value))


def check_installed(what: str) -> None:
    """Raise :class:`MissingDependency` if the package for event files is not installed."""
    if importlib.util.find_spec("tensorboardX") is None:
        raise MissingDependency(
            f"{what} needs tensorboardX, which is not installed: pip install tensorboardX"
        )


class EventFile:
    """A file of events: a TFRecord of ``tensorflow.Event``, whose name must contain ``tfevents``.

    It belongs to one thread; events are on the disk after :meth:`flush`.

    Parameters
    ----------
    path
        The file; missing folders are created.
    size
        The number of bytes of an existing file to keep; new events follow them.  By default the
        file is new.

    Raises
    ------
    MissingDependency
        If tensorboardX is not installed.  Only its messages are used: its writers can neither
        continue a file nor choose its name.
    OSError
        If the file cannot be written.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        check_installed("TensorBoard's format")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("r+b" if size else "wb")
        if size:
            self._file.truncate(size)
            self._file.seek(size)
        else:
            self._write(_create_event(file_version="brain.Event:2"))

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self._file.tell()

    def add_scalar(self, tag: str, value: float, step: int, when: float) -> None:
        """Add a number."""
        from tensorboardX.summary import scalar

        self._write(_create_event(summary=scalar(tag, value), step=step, wall_time=when))

    def text(self, tag: str, text: str, step: int, when: float) -> None:
        """Add a text in Markdown."""
        from tensorboardX.summary import text as summary

        self._write(_create_event(summary=summary(tag, text), step=step, wall_time=when))

    def add_histogram(
        self, tag: str, edges: Sequence[float], counts: Sequence[int], step: int, when: float
    ) -> None:
        """Add a histogram; ascending edges ``(n + 1,)``, counts ``(n,)``.  Sums are computed
        from the bins' centres.
        """
        from tensorboardX.summary import histogram_raw

        middles = [(low + high) / 2 for low, high in pairwise(edges)]
        pairs = list(zip(middles, counts, strict=True))
        # The format has upper edges only: an empty bin gives the lowest edge.
        summary = histogram_raw(
            tag,
            edges[0],
            edges[-1],
            sum(counts),
            sum(m * n for m, n in pairs),
            sum(m * m * n for m, n in pairs),
            list(edges),
            [0, *counts],
        )
        self._write(_create_event(summary=summary, step=step, wall_time=when))

    def picture(self, tag: str, png: bytes, step: int, when: float) -> None:
        """Add a picture: the content of a PNG file."""
        from tensorboardX.proto.summary_pb2 import Summary

        width, height = struct.unpack(">II", png[16:24])
        image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=png)
        summary = Summary(value=[Summary.Value(tag=tag, image=image)])
        self._write(_create_event(summary=summary, step=step, wall_time=when))

    def graph(self, definition: bytes, when: float) -> None:
        """Add the graph of a model: a serialised ``GraphDef``, of which TensorBoard shows the
        last.
        """
        self._write(_create_event(graph_def=definition, wall_time=when))

    def _write(self, event: Any) -> None:
        data = event.SerializeToString()
        head = struct.pack("<Q", len(data))
        self._file.write(
            head
            + struct.pack("<I", compute_masked_crc32c(head))
            + data
            + struct.pack("<I", compute_masked_crc32c(data))
        )

    def flush(self) -> None:
        """Write all events to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write all events to the disk, and close the file."""
        if not self._file.closed:
            self.flush()
            self._file.close()


def _create_event(**fields: Any) -> Any:
    from tensorboardX.proto.event_pb2 import Event

    return Event(**fields)


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
        for point in iterate_points(database, record.id):
            file.add_scalar(f"{point.history}/{point.name}", point.value, point.step, when)
        for name, value in record.statistics.items():
            file.add_scalar(f"statistics/{name}", value, record.done, when)
        told = json.dumps(
            {"experiment": record.experiment, "configuration": record.configuration}, indent=2
        )
        indented = "\n".join(f"    {line}" for line in told.splitlines())  # code in Markdown
        file.text("configuration", indented, 0, when)
    finally:
        file.close()
    for path in before:
        path.unlink(missing_ok=True)
    return own


RUN_TAG = "nnpipe.run"
"""The tag that holds the run's identity in the run database."""

_STATUS = {"completed": "FINISHED", "failed": "FAILED", "cancelled": "KILLED", "running": "RUNNING"}
_PARAMETERS, _METRICS = 100, 1000  # MLflow's limits for a request
_KEY, _VALUE = 250, 6000  # and for a parameter


def to_mlflow(database: RunDatabase, run: str, address: str) -> str:
    """Copy a run: configuration, statistics, histories, origins and artifacts.

    An earlier copy is replaced.

    Parameters
    ----------
    database
        The database of the run.
    run
        The identity of the run.
    address
        MLflow's tracking address, such as ``http://host:5000`` or ``sqlite:///mlflow.db``; or a
        folder for a database ``mlflow.db`` and the artifacts, since MLflow no longer writes its old
        folders of files.

    Returns
    -------
    str
        The run's identity in MLflow.

    Raises
    ------
    ConfigError
        If MLflow refuses it; the message has its reason.
    MissingDependency
        If MLflow, or a package for this address, is not installed.
    """
    record = database.runs.get(run)
    with open_mlflow_client(address, record.experiment) as (client, experiment):
        before = client.search_runs([experiment], f"tags.`{RUN_TAG}` = '{record.id}'")
        tags = {RUN_TAG: record.id, "nnpipe.status": record.status, "nnpipe.host": record.host}
        if record.parents:
            tags["nnpipe.parents"] = " ".join(record.parents)
        for origin in database.origins(record.id):
            tags[f"nnpipe.origin.{to_mlflow_key(origin.path)}"] = origin.told
        started = round(1000 * (record.started or record.created))
        made = client.create_run(
            experiment, start_time=started, tags=tags, run_name=record.id[:12]
        ).info.run_id
        _log(client, made, database, record.id)
        if record.status in _STATUS and record.status != "running":
            client.set_terminated(
                made,
                _STATUS[record.status],
                end_time=round(1000 * (record.ended or record.created)),
            )
        for other in before:
            client.delete_run(other.info.run_id)
    return str(made)


@contextmanager
def open_mlflow_client(address: str, experiment: str) -> Iterator[tuple[Any, str]]:
    """Yield MLflow's client and the identity of an experiment, which is made if there is none of
    this name.

    Raises
    ------
    ConfigError
        If MLflow refuses something in the block; the message has its reason.
    MissingDependency
        If MLflow, or a package for this address, is not installed.
    """
    address, artifacts = _resolve_store(address)
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise MissingDependency("MLflow is not installed: pip install 'nnpipe[tracking]'") from None
    try:
        client = MlflowClient(tracking_uri=address)
        found = client.get_experiment_by_name(experiment)
        own = (
            found.experiment_id
            if found
            else client.create_experiment(experiment, artifact_location=artifacts)
        )
        yield client, own
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"MLflow at {address} needs {error.name}, which is not installed: pip install "
            f"'nnpipe[tracking]'"
        ) from None
    except (MlflowException, OSError, ImportError) as error:
        raise ConfigError(
            format_one_line(f"MLflow at {address}: {str(error).splitlines()[0]}", 400)
        ) from None


def get_tracking_uri(address: str) -> str:
    """Return the address for MLflow's own commands of what is exported to ``address``."""
    return _resolve_store(address)[0]


def _resolve_store(address: str) -> tuple[str, str | None]:
    """Return the tracking address, and the place for artifacts of new experiments if it is on
    this machine.
    """
    scheme, separator, rest = address.partition("://")
    if separator and scheme not in ("file", "sqlite"):
        return address, None
    if scheme == "sqlite" and separator:
        path = Path(rest.removeprefix("/")).absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        return address, path.with_name(f"{path.stem}.artifacts").as_uri()
    folder = Path(rest if separator else address.removeprefix("file:")).absolute()
    if any(folder.glob("*/meta.yaml")):
        raise ConfigError(
            f"{folder}: a folder of files as older versions of MLflow wrote; move it into a "
            f"database with "
            "'mlflow migrate-filestore', and give the database's address"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be made: {error.strerror or error}") from None
    return f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()


def _log(client: Any, made: str, database: RunDatabase, run: str) -> None:
    from mlflow.entities import Metric, Param

    record = database.runs.get(run)
    when = round(1000 * (record.ended or record.started or record.created))
    parameters = {
        to_mlflow_key(path): str(value)[:_VALUE]
        for path, value in iterate_leaves(record.configuration)
    }
    metrics = [
        Metric(to_mlflow_key(name), value, when, record.done)
        for name, value in record.statistics.items()
    ]
    metrics += [
        Metric(to_mlflow_key(f"{p.history}/{p.name}"), p.value, when, p.step)
        for p in iterate_points(database, run)
    ]
    for some in _split_batches(
        [Param(key, value) for key, value in parameters.items()], _PARAMETERS
    ):
        client.log_batch(made, params=some)
    for some in _split_batches(metrics, _METRICS):
        client.log_batch(made, metrics=some)
    for artifact in database.artifacts.list(run):
        client.log_artifact(
            made,
            str(database.artifacts.path(run, artifact.name)),
            artifact_path=to_mlflow_key(artifact.name),
        )


def to_mlflow_key(text: str) -> str:
    """Return a name with only the characters that MLflow accepts."""
    return re.sub(r"[^\w\-. /]", "_", text, flags=re.ASCII).strip("./ ")[:_KEY] or "_"


def _split_batches(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(values), size):
        yield values[begin : begin + size]


@dataclass(frozen=True)
class ExportedRun:
    """The copies of a run in other tools.

    Parameters
    ----------
    run
        Its identity in the run database.
    tensorboard
        Its folder of event files, if requested.
    mlflow
        Its identity in MLflow, if requested.
    """

    run: str
    tensorboard: Path | None = None
    mlflow: str | None = None


def export_runs(
    database: RunDatabase,
    runs: Sequence[str],
    *,
    tensorboard: str | Path | None = None,
    mlflow: str | None = None,
    progress: Progress = silent,
) -> tuple[list[ExportedRun], str | None]:
    """Copy runs to TensorBoard, to MLflow, or to both.

    Parameters
    ----------
    database
        The database of the runs.
    runs
        The identities of the runs.
    tensorboard
        The folder for event files.
    mlflow
        MLflow's tracking address, such as ``http://host:5000``, or a folder.
    progress
        Shows the progress.

    Returns
    -------
    tuple of list of Exported and str or None
        The copies of each run, and the address for MLflow's own commands; None without MLflow.

    Raises
    ------
    ConfigError
        If a run does not exist, or MLflow refuses it.
    MissingDependency
        If a package that the tool needs is not installed.
    """
    check_call(export_runs, locals())
    done = [
        ExportedRun(
            run,
            None if tensorboard is None else to_tensorboard(database, run, Path(tensorboard)),
            None if mlflow is None else to_mlflow(database, run, mlflow),
        )
        for run in progress(runs, "export")
    ]
    return done, None if mlflow is None else get_tracking_uri(mlflow)
