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
) -> tuple[list[Exported], str | None]:
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
        Exported(
            run,
            None if tensorboard is None else to_tensorboard(database, run, Path(tensorboard)),
            None if mlflow is None else to_mlflow(database, run, mlflow),
        )
        for run in progress(runs, "export")
    ]
    return done, None if mlflow is None else tracking_uri(mlflow)
