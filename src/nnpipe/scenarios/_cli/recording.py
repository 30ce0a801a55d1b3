"""The recording of trainings and measurements in the run database."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError
from nnpipe.core.model import ModelWrapper
from nnpipe.core.secret import hide_settings_secrets
from nnpipe.core.training import TrainingHistory, TrainingOptions
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.database.records import RunRecord
from nnpipe.experiment.provenance import describe_environment, find_origins
from nnpipe.measuring.run import Run
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.writers.json_figures import collect_figures
from nnpipe.scenarios._cli.option_types import output_folder
from nnpipe.training.experiment import put_folder
from nnpipe.training.run_folder import RunFolder

HISTORY = "epochs"
"""Name of the history with the figures of each epoch."""


def add_recording_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say where and under which name a run is recorded."""
    parser.add_argument(
        "--database",
        metavar="ADDRESS",
        help=(
            "record the run here, for nnpipe runs: a file such as runs.sqlite, or "
            "postgresql://user@host/name"
        ),
    )
    parser.add_argument(
        "--store",
        type=output_folder,
        metavar="FOLDER",
        help="folder of the artifacts (default: beside a file)",
    )
    parser.add_argument(
        "--experiment",
        metavar="NAME",
        help="what the run is recorded as (default: MODEL on DATASET)",
    )


def check_database(options: argparse.Namespace) -> bool:
    """Return whether the options name a database.

    Raises
    ------
    ConfigError
        If they say how a run is recorded, but not where.
    """
    if options.database is None and (options.experiment is not None or options.store is not None):
        raise ConfigError(
            "--experiment and --store need --database, which says where the run is recorded"
        )
    return options.database is not None


def get_experiment_name(
    options: argparse.Namespace, wrapper: ModelWrapper, dataset: Dataset
) -> str:
    """Return what a run is recorded as."""
    return str(options.experiment or f"{type(wrapper).__name__} on {type(dataset).__name__}")


class TrainingRecording:
    """A run that is being recorded."""

    def __init__(self, database: RunDatabase, run: str) -> None:
        self._database = database
        self._epochs: list[dict[str, float]] = []
        self._figures: dict[str, float] = {}
        self.run = run

    def store_results(self, history: TrainingHistory, weights: Path, folder: Path | None) -> None:
        """Store the weights and the run's folder without the checkpoint for resuming; keep the
        figures for the end.
        """
        database, run = self._database, self.run
        self._epochs = [dict(row) for row in history.epochs]
        self._figures = dict(history.figures)  # the figures of the stored weights
        database.artifacts.put_file(run, "weights", weights)
        if folder is not None:
            put_folder(database, run, RunFolder(folder))

    def end(self, status: str, reason: str = "") -> None:
        """Store the figures, the status of the run and the reason for it."""
        database, run, epochs = self._database, self.run, self._epochs
        with database.together():
            if epochs:
                rows = [{"epoch": number, **row} for number, row in enumerate(epochs, 1)]
                database.figures.put_history(run, HISTORY, rows, at=0)
                database.figures.put_statistics(run, self._figures)
                database.runs.advance(run, len(rows), len(rows))
            database.runs.enter(run, status, reason)


@contextmanager
def record_to_database(
    options: argparse.Namespace, wrapper: ModelWrapper, dataset: Dataset, training: TrainingOptions
) -> Iterator[TrainingRecording | None]:
    """Record the run inside the block in a database; yield ``None`` if the options name no
    database.

    The run ends as completed, as failed with the reason, or as cancelled.  A run that has
    not completed is continued if its training is resumed from the same folder.  A training
    that continues a completed one has that run as its parent.

    Raises
    ------
    ConfigError
        If the database cannot be used, or another process owns the run.
    """
    if not check_database(options):
        yield None
        return
    tree = {
        "wrapper": wrapper.describe(),
        "dataset": dataset.describe(),
        "training": {name: value for name, value in training.to_json().items() if name != "resume"},
    }
    experiment = get_experiment_name(options, wrapper, dataset)
    with RunDatabase(options.database, store=options.store) as database:
        recording = TrainingRecording(
            database, _begin_run(database, experiment, Configuration(tree), training)
        )
        try:
            yield recording
        except BaseException as error:
            failed = isinstance(error, Exception)
            recording.end("failed" if failed else "cancelled", str(error) if failed else "stopped")
            raise
        recording.end("completed")


def _begin_run(
    database: RunDatabase, experiment: str, configuration: Configuration, training: TrainingOptions
) -> str:
    quoted = experiment.replace("\\", "\\\\").replace('"', '\\"')
    found = database.runs.find(f'experiment = "{quoted}"', order="-created", limit=1)
    before = (
        found[0]
        if found and training.resume and _is_in_folder(found[0], training.run_folder)
        else None
    )
    if (
        before is not None
        and before.status != "completed"
        and before.configuration == hide_settings_secrets(configuration.tree)
    ):
        database.runs.acquire(before.id)
        return before.id
    parents = [before.id] if before is not None and before.status == "completed" else []
    run = database.runs.create(
        experiment, configuration, parents=parents, environment=describe_environment()
    )
    known = find_origins(configuration)
    with database.together():
        database.runs.enter(run, "running")
        database.put_origins(run, known)
    return run


def _is_in_folder(run: RunRecord, folder: Path | None) -> bool:
    training: Any = run.configuration.get("training")
    return (
        folder is not None
        and isinstance(training, dict)
        and training.get("run_folder") == str(folder)
    )


def record_measurement(
    options: argparse.Namespace, wrapper: ModelWrapper, dataset: Dataset, run: Run
) -> None:
    """Record a measured run, if the options name a database, and print its identity.

    Its statistics are the figures of its result file, by their names in
    :mod:`nnpipe.measuring.quantities`: times, sizes, and every metric of the data's task.  The
    result file is one of its artifacts.

    Raises
    ------
    ConfigError
        If the database cannot be used.
    """
    if not check_database(options):
        return
    figures = collect_figures(Candidate.from_run(run))
    values = {name: figure.value for name, figure in figures.items() if figure.value is not None}
    if run.evaluation is not None and (lost := int(run.evaluation.not_finite.sum())):
        values["not_finite_samples"] = lost
    tree = Configuration(
        {**run.components, "title": run.title, "timing": {"batch_size": run.timing["batch_size"]}}
    )
    with RunDatabase(options.database, store=options.store) as database:
        around = describe_environment(run.frameworks)
        recorded = database.runs.create(
            get_experiment_name(options, wrapper, dataset), tree, environment=around
        )
        known = find_origins(tree)
        database.artifacts.put_file(recorded, "result", Path(options.output))
        with database.together():
            database.put_origins(recorded, known)
            database.figures.put_statistics(recorded, {n: float(v) for n, v in values.items()})
            database.runs.enter(recorded, "running")
            database.runs.enter(recorded, "completed")
    print(f"recorded: run {recorded[:12]} in {options.database}")
