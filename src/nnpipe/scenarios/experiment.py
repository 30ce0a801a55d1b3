"""Carry out an experiment that a file describes, record it, and resume it.

  nnpipe experiment digits.yaml
  nnpipe experiment digits.yaml --set optimiser.arguments.rate=0.01 --name "digits 0.01"
  nnpipe runs show digits

The file is a tree of parts, in YAML or JSON: a model, data, an optimiser, ...
Each is {class: PATH, arguments: {...}}; {reference: NAME} stands for another
part.  The part called "experiment" is carried out.  examples/experiment.yaml
trains a network on digits, and needs nothing else.

The run is recorded in the database with its settings, figures, files, and the
origin of its code.  Repeat the command to continue a run that was stopped or killed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from nnpipe.core.arguments import Kind
from nnpipe.experiment.configuration import Configuration
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.experiment.session import Session
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.run_database import add_database_options, get_database_address
from nnpipe.workflows.progress import create_job_progress


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe experiment FILE ...``."""
    return execute(_run_experiment, argv, "experiment")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="the experiment: YAML, or JSON")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=(
            "change a setting, such as trainer.arguments.options.arguments.num_epochs=3; may be "
            "given several times"
        ),
    )
    parser.add_argument(
        "--name", help="what the run is recorded and resumed by (default: the file's name)"
    )
    add_database_options(parser)
    parser.add_argument(
        "--parent", action="append", default=[], metavar="RUN", help="a run that this one builds on"
    )
    parser.add_argument(
        "--save-every",
        type=Kind(int, minimum=1),
        metavar="N",
        help="save after so many steps (default: so often that saving takes a tenth of the time)",
    )
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="continue even if the run seems to belong to another process, which is gone",
    )


def _run_experiment(argv: Sequence[str] | None) -> None:
    options = parse(argv, "experiment", __doc__ or "", (), _add_options).options
    configuration = Configuration.read(options.file).with_changes(*options.set)
    name = options.name or options.file.stem
    # The user's classes are found beside the file, as a script finds its modules.
    sys.path.insert(0, str(options.file.resolve().parent))
    importlib.invalidate_caches()
    with RunDatabase(get_database_address(options), store=options.store) as database:
        session = Session(
            configuration,
            experiment=name,
            database=database,
            save_every=options.save_every,
            parents=tuple(options.parent),
            progress=create_job_progress(os.environ),
        )
        run = session.run(take_over=options.take_over)
        files = [artifact.name for artifact in database.artifacts.list(run.id)]
    for figure, value in run.statistics.items():
        print(f"{figure:<40} {value:.6g}")
    print(
        f"{name}: {run.status}, {run.done} steps, {len(files)} files; nnpipe runs show "
        f"{run.id[:12]} tells all"
    )


if __name__ == "__main__":
    sys.exit(main())
