"""Measure every combination of models, compilers, runtimes and batch sizes, and choose one.

One YAML or JSON file has the combinations, the constraints and the metric to choose by:

    models:                # each with its class, path and training, as in pipeline files
    compilers:             # chains; 'vary' lists values of an argument to try
    runtimes:
    threads: [1, 2]
    batch_sizes: [1, 8]
    constraints: [latency_p90 <= 5 ms, accuracy_loss <= 0.02, size <= 4 MB]
    objectives: [latency_median, accuracy, size]
    choose: latency_p90

The output folder holds the results, the Pareto front (sweep.json), the report,
and the chosen model's certificate (certificate.json).  Repeat the command to
continue a sweep that was interrupted in any way.  --workers and --on start
processes that train and measure, here and on other machines.  The exit status is 0 if a
candidate qualifies and 1 if none does.  --schema prints a
JSON Schema that editors use to complete and check such files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.run_database import add_database_options, get_database_address
from nnpipe.scenarios._cli.worker_options import add_exchange, add_workers, create_worker_options
from nnpipe.workflows.sweep.schema import build_sweep_schema
from nnpipe.workflows.sweep.sweep import read_sweep, sweep

NONE_QUALIFIES = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe sweep SWEEP.yaml [KEY=VALUE ...]``."""
    return execute(_run_sweep, argv, "sweep")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sweep", type=Path, nargs="?", metavar="SWEEP", help="a YAML or JSON file")
    parser.add_argument(
        "changes", nargs="*", metavar="KEY=VALUE", help="settings that differ from the file's"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="list the combinations, possible or not, and stop"
    )
    parser.add_argument("--retry-failed", action="store_true", help="try again what failed before")
    parser.add_argument(
        "--retrain", action="store_true", help="train even if the same training has been done"
    )
    add_database_options(parser)
    add_workers(parser, "points")
    add_exchange(parser)
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of sweep files and stop"
    )


def _run_sweep(argv: Sequence[str] | None) -> int:
    parsed = parse(argv, "sweep", __doc__ or "", (), _add_options)
    options = parsed.options
    if options.schema:
        print(json.dumps(build_sweep_schema(), indent=2))
        return 0
    if options.sweep is None:
        raise ConfigError("name a sweep file (nnpipe sweep -h explains)")
    if options.dry_run:
        wanted = read_sweep(options.sweep, options.changes)
        for point in wanted.points:
            print(point.title)
        for title, reason in wanted.impossible.items():
            print(f"cannot be: {title}: {reason}")
        print(f"{len(wanted.points)} points, {len(wanted.impossible)} impossible combinations")
        return 0
    workers = create_worker_options(options, options.folder or Path("build/sweep/workers"))
    with ExitStack() as stack:
        database = None
        if workers is not None:
            database = stack.enter_context(
                RunDatabase(get_database_address(options), store=options.store)
            )
        found = sweep(
            options.sweep,
            options.changes,
            retrain=options.retrain,
            retry_failed=options.retry_failed,
            command=parsed.command,
            workers=workers,
            database=database,
        )
    print(f"\n{found}")
    return 0 if found.chosen else NONE_QUALIFIES


if __name__ == "__main__":
    sys.exit(main())
