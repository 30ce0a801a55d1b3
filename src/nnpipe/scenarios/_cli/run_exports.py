"""Exporting runs: to MLflow and TensorBoard, and searches as a report or a study of Optuna."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.exports.export import export_runs
from nnpipe.workflows.progress import show_progress
from nnpipe.workflows.search.run_file import load_search


def export_chosen(
    database: RunDatabase, chosen: Sequence[str], options: argparse.Namespace
) -> None:
    """Export runs to wherever the options of ``nnpipe runs`` say, and print where they are.

    Raises
    ------
    ConfigError
        If no place is named, or ``--report`` or ``--optuna`` is given for several runs.
    """
    targets = (options.mlflow, options.tensorboard, options.json, options.report, options.optuna)
    if all(target is None for target in targets):
        raise ConfigError(
            "export: to where? give --mlflow ADDRESS, --tensorboard FOLDER or --json OUT.json, or "
            "of a search --report OUT.html or --optuna URL"
        )
    if options.report or options.optuna:
        _export_search(database, chosen, options)
    if options.mlflow is None and options.tensorboard is None:
        return
    done, uri = export_runs(
        database,
        chosen,
        tensorboard=options.tensorboard,
        mlflow=options.mlflow,
        progress=show_progress,
    )
    for each in done:
        for place in filter(None, (each.tensorboard, each.mlflow and f"MLflow run {each.mlflow}")):
            print(f"{each.run[:12]}: {place}")
    if uri is not None and uri.startswith("sqlite:"):
        print(f"open it: mlflow ui --backend-store-uri {shlex.quote(uri)}")


def _export_search(
    database: RunDatabase, chosen: Sequence[str], options: argparse.Namespace
) -> None:
    if len(chosen) > 1:
        raise ConfigError("export: --report and --optuna take one search")
    found = load_search(database, chosen[0])
    if options.report:
        print(found.report(options.report))
    if options.optuna:
        found.to_optuna(options.optuna, found.title)
        print(f"written for Optuna: {options.optuna} (optuna-dashboard {options.optuna} shows it)")
