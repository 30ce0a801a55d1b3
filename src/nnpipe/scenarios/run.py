"""Carry out a whole pipeline from one YAML or JSON file: train, compile, measure, report.

Every setting can be overridden:

  nnpipe run digits.yaml model.training.num_epochs=3 candidates.0.title="As trained"

Repeat the command to continue an interrupted run; finished measurements are kept,
unless --measure-again.  After a finished run, everything is measured again.

--dry-run says for every candidate whether it would work, and stops; the exit status
is 1 if one would not.  --schema prints a JSON Schema that editors use to complete and
check pipeline files.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.workflows.pipeline.compile import dry_run
from nnpipe.workflows.pipeline.run import run_pipeline
from nnpipe.workflows.pipeline.schema import build_pipeline_schema
from nnpipe.workflows.progress import create_job_progress

ONE_REFUSED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe run PIPELINE.yaml [KEY=VALUE ...]``."""
    return execute(_run, argv, "run")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pipeline", type=Path, nargs="?", metavar="PIPELINE", help="a YAML or JSON file"
    )
    parser.add_argument(
        "changes", nargs="*", metavar="KEY=VALUE", help="settings that differ from the file's"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="list the candidates, possible or not, and stop"
    )
    parser.add_argument(
        "--retrain", action="store_true", help="train even if the same training has been done"
    )
    parser.add_argument(
        "--measure-again",
        action="store_true",
        help="measure also what an interrupted run has measured already",
    )
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of pipeline files and stop"
    )


def _run(argv: Sequence[str] | None) -> int:
    parsed = parse(argv, "run", __doc__ or "", (), _add_options)
    options = parsed.options
    if options.schema:
        print(json.dumps(build_pipeline_schema(), indent=2))
        return 0
    if options.pipeline is None:
        raise ConfigError("name a pipeline file (nnpipe run -h explains)")
    if options.dry_run:
        expected = dry_run(options.pipeline, options.changes)
        print(expected)
        return ONE_REFUSED if expected.refused else 0
    found = run_pipeline(
        options.pipeline,
        options.changes,
        retrain=options.retrain,
        measure_again=options.measure_again,
        command=parsed.command,
        progress=create_job_progress(os.environ),
    )
    print(found)
    if found.failures:
        titles = ", ".join(failure.title for failure in found.failures)
        raise ConfigError(
            f"{len(found.failures)} of {found.pipeline.count} candidates failed: {titles}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
