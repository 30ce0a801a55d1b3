"""Copying recorded runs to MLflow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError, MissingDependency
from nnpipe.core.messages import one_line
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.exports.curves import points
from nnpipe.experiment.settings import leaves

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
        MLflow's tracking address, such as ``http://host:5000`` or ``sqlite:///mlflow.db``; or a folder for a database
        ``mlflow.db`` and the artifacts, since MLflow no longer writes its old folders of files.

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
    with mlflow_client(address, record.experiment) as (client, experiment):
        before = client.search_runs([experiment], f"tags.`{RUN_TAG}` = '{record.id}'")
        tags = {RUN_TAG: record.id, "nnpipe.status": record.status, "nnpipe.host": record.host}
        if record.parents:
            tags["nnpipe.parents"] = " ".join(record.parents)
        for origin in database.origins(record.id):
            tags[f"nnpipe.origin.{mlflow_key(origin.path)}"] = origin.told
        started = round(1000 * (record.started or record.created))
        made = client.create_run(experiment, start_time=started, tags=tags, run_name=record.id[:12]).info.run_id
        _log(client, made, database, record.id)
        if record.status in _STATUS and record.status != "running":
            client.set_terminated(made, _STATUS[record.status], end_time=round(1000 * (record.ended or record.created)))
        for other in before:
            client.delete_run(other.info.run_id)
    return str(made)


@contextmanager
def mlflow_client(address: str, experiment: str) -> Iterator[tuple[Any, str]]:
    """Yield MLflow's client and the identity of an experiment, which is made if there is none of this name.

    Raises
    ------
    ConfigError
        If MLflow refuses something in the block; the message has its reason.
    MissingDependency
        If MLflow, or a package for this address, is not installed.
    """
    address, artifacts = _store(address)
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise MissingDependency("MLflow is not installed: pip install 'nnpipe[tracking]'") from None
    try:
        client = MlflowClient(tracking_uri=address)
        found = client.get_experiment_by_name(experiment)
        own = found.experiment_id if found else client.create_experiment(experiment, artifact_location=artifacts)
        yield client, own
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"MLflow at {address} needs {error.name}, which is not installed: pip install 'nnpipe[tracking]'"
        ) from None
    except (MlflowException, OSError, ImportError) as error:
        raise ConfigError(one_line(f"MLflow at {address}: {str(error).splitlines()[0]}", 400)) from None


def tracking_uri(address: str) -> str:
    """Return the address for MLflow's own commands of what is exported to ``address``."""
    return _store(address)[0]


def _store(address: str) -> tuple[str, str | None]:
    """Return the tracking address, and the place for artifacts of new experiments if it is on this machine."""
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
            f"{folder}: a folder of files as older versions of MLflow wrote; move it into a database with "
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
    parameters = {mlflow_key(path): str(value)[:_VALUE] for path, value in leaves(record.configuration)}
    metrics = [Metric(mlflow_key(name), value, when, record.done) for name, value in record.statistics.items()]
    metrics += [Metric(mlflow_key(f"{p.history}/{p.name}"), p.value, when, p.step) for p in points(database, run)]
    for some in _batches([Param(key, value) for key, value in parameters.items()], _PARAMETERS):
        client.log_batch(made, params=some)
    for some in _batches(metrics, _METRICS):
        client.log_batch(made, metrics=some)
    for artifact in database.artifacts.list(run):
        client.log_artifact(
            made, str(database.artifacts.path(run, artifact.name)), artifact_path=mlflow_key(artifact.name)
        )


def mlflow_key(text: str) -> str:
    """Return a name with only the characters that MLflow accepts."""
    return re.sub(r"[^\w\-. /]", "_", text, flags=re.ASCII).strip("./ ")[:_KEY] or "_"


def _batches(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(values), size):
        yield values[begin : begin + size]
