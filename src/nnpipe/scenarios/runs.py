"""Look at recorded runs: list, show, compare, query, tree, delete, export.

  nnpipe runs list                       the newest runs; with names, of these experiments
  nnpipe runs query 'statistics.accuracy > 0.98 and configuration.seed = 1'
  nnpipe runs query 'best.accuracy > 0.9' --order=-best.accuracy    searches by their best value
  nnpipe runs show digits                everything about a run
  nnpipe runs compare 3f2a 91bc          where settings, code and figures differ
  nnpipe runs tree                       which runs are based on which; with names, the families of these
  nnpipe runs delete 3f2a --yes          without --yes it only lists what would be deleted
  nnpipe runs export digits --mlflow http://host:5000 --tensorboard logs --json runs.json
  nnpipe runs export widths --report widths.html --optuna sqlite:///study.db       a search

A RUN is an identity, the beginning of one, or an experiment, which stands for
its newest run.  A condition names fields (id, experiment, status, reason, host,
done, total, created, started, ended, duration, parent, statistics.NAME,
configuration.PATH, and of searches best.OBJECTIVE and trials.STATE), compares
them by = != < <= > >= or ~ (contains), and joins comparisons by and, or, not
and brackets.  Dates are such as 2026-11-21 (UTC).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from nnpipe.core.arguments import Kind
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.option_types import output_file, output_folder
from nnpipe.scenarios._cli.run_database import add_database_options, get_database_address
from nnpipe.scenarios._cli.run_exports import export_chosen
from nnpipe.scenarios._cli.run_tables import (
    find_related_runs,
    format_run_comparison,
    format_run_details,
    format_run_tree,
    format_runs_table,
    to_json,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe runs ACTION [RUN ...]``."""
    return execute(_run_action, argv, "runs")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", metavar="ACTION", choices=tuple(_ACTIONS), help=", ".join(_ACTIONS)
    )
    parser.add_argument(
        "runs", metavar="RUN", nargs="*", help="runs; for list experiments, for query a condition"
    )
    add_database_options(parser)
    parser.add_argument(
        "--order", default="-created", metavar="FIELD", help="sort by this; =-FIELD: greatest first"
    )
    parser.add_argument(
        "--limit",
        type=Kind(int, minimum=0),
        default=50,
        metavar="N",
        help="how many runs at most (default: 50)",
    )
    parser.add_argument(
        "--columns", default="", metavar="FIELDS", help="further fields to show, joined by commas"
    )
    parser.add_argument(
        "--json",
        type=output_file,
        metavar="OUT.json",
        help="also write all there is about these runs here",
    )
    parser.add_argument(
        "--mlflow", metavar="ADDRESS", help="export: MLflow's tracking address, or a folder"
    )
    parser.add_argument(
        "--tensorboard", type=output_folder, metavar="FOLDER", help="export: folder of event files"
    )
    parser.add_argument(
        "--report",
        type=output_file,
        metavar="OUT",
        help="export: report on a search, also a running one",
    )
    parser.add_argument(
        "--optuna",
        metavar="URL",
        help="export: study of Optuna of a search, such as sqlite:///study.db",
    )
    parser.add_argument("--yes", action="store_true", help="delete: do it")


def _run_action(argv: Sequence[str] | None) -> None:
    options = parse(argv, "runs", __doc__ or "", (), _add_options).options
    with RunDatabase(get_database_address(options), store=options.store, create=False) as database:
        chosen = _ACTIONS[options.action](database, options)
        if options.json is not None:
            found = [to_json(database, run) for run in chosen]
            write_text(options.json, json.dumps({"runs": found}, indent=2, allow_nan=False) + "\n")


def _list(database: RunDatabase, options: argparse.Namespace) -> list[str]:
    quoted = ['"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"' for name in options.runs]
    return _print_runs(database, options, " or ".join(f"experiment = {name}" for name in quoted))


def _find_runs(database: RunDatabase, options: argparse.Namespace) -> list[str]:
    if not options.runs:
        raise ConfigError("query: a condition is missing, such as 'statistics.accuracy > 0.9'")
    return _print_runs(database, options, " ".join(options.runs))


def _print_runs(database: RunDatabase, options: argparse.Namespace, where: str) -> list[str]:
    found = database.runs.find(where, order=options.order, limit=options.limit)
    fields = [name.strip() for name in options.columns.split(",") if name.strip()]
    searches = database.searches.select_searches([run.id for run in found])
    print(format_runs_table(found, fields, searches) if found else "no such runs")
    return [run.id for run in found]


def _print_tree(database: RunDatabase, options: argparse.Namespace) -> list[str]:
    chosen = _select_runs(database, options, least=0)
    found = find_related_runs(database.runs.find(), chosen)
    print(format_run_tree(found) if found else "no run is based on another")
    return [run.id for run in found]


def _show(database: RunDatabase, options: argparse.Namespace) -> list[str]:
    chosen = _select_runs(database, options, least=1)
    print("\n\n".join(format_run_details(database, run) for run in chosen))
    return chosen


def _compare(database: RunDatabase, options: argparse.Namespace) -> list[str]:
    chosen = _select_runs(database, options, least=2)
    print(format_run_comparison(database, chosen))
    return chosen


def _delete(database: RunDatabase, options: argparse.Namespace) -> list[str]:
    chosen = _select_runs(database, options, least=1)
    if options.json is not None:
        raise ConfigError("delete: export with --json first, then delete")
    for run in map(database.runs.get, chosen):
        print(
            f"{'delete' if options.yes else 'would delete'} {run.id[:12]} {run.experiment!r} "
            f"({run.status})"
        )
    if not options.yes:
        raise ConfigError("delete: nothing has been deleted; --yes deletes")
    database.delete(chosen)
    return []


def _export(database: RunDatabase, options: argparse.Namespace) -> list[str]:
    chosen = _select_runs(database, options, least=1)
    export_chosen(database, chosen, options)
    return chosen


def _select_runs(database: RunDatabase, options: argparse.Namespace, *, least: int) -> list[str]:
    chosen = list(dict.fromkeys(database.runs.get(run).id for run in options.runs))
    if len(chosen) < least:
        raise ConfigError(
            f"{options.action}: name at least {'two different runs' if least == 2 else 'one run'}"
        )
    return chosen


_ACTIONS: dict[str, Callable[[RunDatabase, argparse.Namespace], list[str]]] = {
    "list": _list,
    "show": _show,
    "compare": _compare,
    "query": _find_runs,
    "tree": _print_tree,
    "delete": _delete,
    "export": _export,
}


if __name__ == "__main__":
    sys.exit(main())
