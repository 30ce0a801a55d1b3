"""Search good arguments of a function, or good settings of a pipeline, trial after trial.

One YAML or JSON file says what is searched and how:

    title: widths
    function: mymodule.train     # any Python function by its import path
    arguments: {epochs: 10}      # the same in all trials
    space:
      rate: {kind: power, low: -5, high: -1}            # 0.00001 to 0.1
      units: {kind: int, low: 8, high: 512, log: true}
      optimiser: {kind: discrete, values: [adam, sgd]}
      momentum: {kind: uniform, low: 0, high: 0.9, when: optimiser == 'sgd'}
    constraints: [units * rate <= 5]
    objectives: {accuracy: maximize, size: minimize}    # what it returns
    sampler: tpe      # random, grid, tpe, cmaes, nsga2, gp, evolution
    pruner: {kind: hyperband, most: 27}                 # or median, asha
    trials: 100

Instead of a function, any setting of a pipeline file can be searched; the
names are paths in it, and the objectives are metrics as in sweeps:

    pipeline: digits.yaml
    candidate: int8              # whose metrics count; left out: the last one
    space:
      model.training.learning_rate: {kind: power, low: -4, high: -2}
      candidates.1.runtime.arguments.num_threads: {kind: discrete, values: [1, 2]}
    objectives: [accuracy, latency_median]
    constraints: [latency_p90 <= 2 ms, loss(accuracy) <= 0.01]
    choose: latency_median       # the winner is measured again, as in sweeps

So can the form in which each layer of a trained model is stored:

    compress: {class: KerasModel, path: resnet.h5, arguments: {scale: 1}}
    dataset: {class: CIFAR10Dataset}
    constraints: [loss(accuracy) <= 0.01]
    choose: size

With an architecture, its networks are trained and measured by the pipeline:

    architecture:
      cell: {operations: [none, skip_connect, nor_conv_3x3, avg_pool_3x3]}
      channels: [8, 16]

Each trial is printed when it ends; a star marks a new best one.  On a terminal,
a table below says what runs, the best so far, and the time left.  Trials are
kept in the run database under the title: repeat the command to go on after any
interruption, or with a greater number of trials or more choices.  --workers
and --on start processes that carry out trials, here and on other machines; they
are started again when they die.  The exit status is 0 if a trial finished and,
of models, one qualifies, and otherwise 1.  --schema prints a JSON Schema for
editors.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from nnpipe.core.errors import ConfigError
from nnpipe.core.foreign_text import get_raw_stream
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.scenarios._cli.run_database import add_database_options, get_database_address
from nnpipe.scenarios._cli.worker_options import add_exchange, add_workers, create_worker_options
from nnpipe.searching.database_trials import DatabaseTrials
from nnpipe.searching.trial_store import SearchTrial
from nnpipe.workflows.reporting import report_suffix
from nnpipe.workflows.search.file import build_search_schema
from nnpipe.workflows.search.live_table import LiveTable, SearchProgress
from nnpipe.workflows.search.result import TrialTable
from nnpipe.workflows.search.run_file import read_search, run_search

NONE_FINISHED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe search SEARCH.yaml [KEY=VALUE ...]``."""
    return execute(_search, argv, "search")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "search", type=Path, nargs="?", metavar="SEARCH", help="a YAML or JSON file"
    )
    parser.add_argument(
        "changes", nargs="*", metavar="KEY=VALUE", help="settings that differ from the file's"
    )
    add_database_options(parser)
    add_workers(parser, "trials")
    add_exchange(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="check the file, show the space, and stop"
    )
    parser.add_argument(
        "--optuna",
        metavar="URL",
        help="also write a study of Optuna, for example sqlite:///study.db, at the end",
    )
    parser.add_argument(
        "--report",
        type=output_file,
        metavar="OUT",
        help="also write a report at the end: .html, .rst or .md",
    )
    parser.add_argument(
        "--fanova",
        action="store_true",
        help="importance by fANOVA in the report, too, with a warning (slow)",
    )
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of search files and stop"
    )


def _search(argv: Sequence[str] | None) -> int:
    parsed = parse(argv, "search", __doc__ or "", (), _add_options)
    options = parsed.options
    if options.schema:
        print(json.dumps(build_search_schema(), indent=2))
        return 0
    if options.search is None:
        raise ConfigError("name a search file (nnpipe search -h explains)")
    if options.report:
        report_suffix(options.report)
    settings = read_search(options.search, options.changes)
    if options.dry_run:
        many = (
            "infinitely many"
            if settings.space.count is None
            else f"at most {settings.space.count:,}"
        )
        for name, parameter in settings.space.parameters.items():
            print(f"{name}: {parameter.text}")
        print(f"{many} configurations, {settings.trials} trials")
        return 0
    table = TrialTable(settings.space, settings.objectives)
    with (
        RunDatabase(get_database_address(options), store=options.store) as database,
        ExitStack() as stack,
    ):
        show: Callable[[str], None] = print_now

        def begin(trials: Sequence[SearchTrial]) -> None:
            ended = [trial for trial in trials if trial.ended]
            known = sum(bool(trial.origin) for trial in ended)
            if known:
                print(f"{known} trials of earlier runs are known")
            if len(ended) > known:
                print(f"going on after {len(ended) - known} trials")
            table.skip(ended)
            print(table.head, flush=True)
            if sys.stdout.isatty():
                nonlocal show
                progress = SearchProgress(settings.objectives, settings.trials)
                store = DatabaseTrials(database, settings.title)
                show = stack.enter_context(
                    LiveTable(store, progress, get_raw_stream(sys.stdout))
                ).draw

        def show_trial(trial: SearchTrial) -> None:
            show(table.line(trial))

        workers = create_worker_options(options, options.folder or Path("build/search/workers"))
        found = run_search(
            settings,
            database,
            workers=workers,
            begin=begin,
            watch=show_trial,
            command=parsed.command,
        )
    report = found.report(options.report, fanova=options.fanova) if options.report else ""
    if options.optuna:
        found.to_optuna(options.optuna, settings.title)
    print(f"\n{found}")
    for name in settings.objectives.names if found.finished else ():
        print(f"\n{found.importance(name)}")
    if options.report:
        print(f"\n{report}")
    if options.optuna:
        print(
            f"\nwritten for Optuna: {options.optuna} (optuna-dashboard {options.optuna} shows it)"
        )
    qualifies = found.final is None or found.final.chosen is not None
    return 0 if found.finished and qualifies else NONE_FINISHED


def print_now(line: str) -> None:
    """Print a line, also into a pipe, at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
