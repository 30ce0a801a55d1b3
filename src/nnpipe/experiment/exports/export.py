"""Copying recorded runs into other tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.argument_checks import check_call
from nnpipe.core.progress import Progress, silent
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.exports.mlflow import to_mlflow, tracking_uri
from nnpipe.experiment.exports.tensorboard import to_tensorboard


@dataclass(frozen=True)
class Exported:
    """Where a run has been copied to.

    Parameters
    ----------
    run
        Its identity here.
    tensorboard
        Its folder of event files, if it was asked for.
    mlflow
        Its identity in MLflow, if it was asked for.
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
) -> tuple[list[Exported], str | None]:
    """Copy runs to TensorBoard, to MLflow, or to both; nowhere unless one is named.

    Parameters
    ----------
    database
        Where the runs are recorded.
    runs
        Their identities.
    tensorboard
        The folder for event files.
    mlflow
        MLflow's tracking address, such as ``http://host:5000``, or a folder.
    progress
        Shows how far it is.

    Returns
    -------
    tuple of list of Exported and str or None
        Where each run is, and the address by which MLflow's own commands find them.

    Raises
    ------
    ConfigError
        If there is no such run, or MLflow does not take it.
    MissingDependency
        If a package that the tool needs is not installed.
    """
    check_call(export_runs, locals())
    done = [
        Exported(
            run,
            None if tensorboard is None else to_tensorboard(database, run, Path(tensorboard)),
            None if mlflow is None else to_mlflow(database, run, mlflow),
        )
        for run in progress(runs, "export")
    ]
    return done, None if mlflow is None else tracking_uri(mlflow)
