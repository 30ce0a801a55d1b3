"""The recording of a measurement in the run database."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnpipe.core.dataset import Dataset
from nnpipe.core.model import ModelWrapper
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.provenance import describe_environment, find_origins
from nnpipe.measuring.run import Run
from nnpipe.report.inputs.candidate import Candidate
from nnpipe.report.writers.json_figures import collect_figures
from nnpipe.scenarios._cli.recording import check_database, get_experiment_name


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
