"""Train in the background: submit, list, watch, logs, cancel, resume.

  nnpipe jobs submit train.py --output model.pt -- --epochs 20
  nnpipe jobs submit digits.yaml --watch      a pipeline; its report shows that it worked
  nnpipe jobs list                            state and progress of all jobs
  nnpipe jobs watch train.py                  until it ends; Ctrl-C leaves the job alone
  nnpipe jobs logs 3f2a --follow              what it writes
  nnpipe jobs cancel 3f2a                     end it, with all that it started
  nnpipe jobs resume 3f2a                     continue a job that failed or was cancelled

A job continues when the terminal is closed.  It is completed when the script has
ended with status 0 and has written each --output itself: a file from an earlier
run does not count.  A script reports its progress by lines such as
{"fraction": 0.4, "metrics": {"loss": 0.1}} in the file that the variable
NNPIPE_PROGRESS (or its own argument --progress) names.  Arguments after -- are
passed to the script.

A JOB is an identity, the beginning of one, or a name, which stands for the
newest job of that name.  nnpipe runs shows the same jobs as runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from nnpipe.core.arguments import Kind
from nnpipe.core.errors import ConfigError
from nnpipe.core.files import write_text
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.jobs.local import HERE
from nnpipe.jobs.publishing import build_summary
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.job_progress import format_jobs_table, print_job_log, show_job_progress
from nnpipe.scenarios._cli.option_types import output_file, secret_assignment
from nnpipe.scenarios._cli.run_database import add_database_options, get_database_address
from nnpipe.workflows.background_jobs import cancel_jobs, list_jobs, resume_job, submit_job


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe jobs ACTION ...``."""
    return execute(_run_action, argv, "jobs")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", metavar="ACTION", choices=tuple(_ACTIONS), help=", ".join(_ACTIONS)
    )
    parser.add_argument(
        "jobs",
        metavar="JOB",
        nargs="*",
        help="jobs; for submit a script, a pipeline file or an experiment file",
    )
    add_database_options(parser)
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help="submit: folder for jobs (default: beside a file)",
    )
    parser.add_argument(
        "--name", help="submit: what to call it (default: the file's name); list: only these"
    )
    parser.add_argument(
        "--output",
        action="append",
        default=[],
        metavar="FILE",
        help="submit: a file that it must write to count as completed; may be given several times",
    )
    parser.add_argument(
        "--no-output", action="store_true", help="submit: exit status 0 alone shows that it worked"
    )
    parser.add_argument(
        "--on",
        default=HERE,
        metavar="PLACE",
        help="submit: here (the default), ssh:HOST, ssh://USER@HOST:PORT or ray://HEAD:8265",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="FOLDER",
        help="submit: where it runs, or its outputs come to (default: here)",
    )
    parser.add_argument(
        "--send",
        action="append",
        default=[],
        type=Path,
        metavar="PATH",
        help=(
            "submit: a file or folder that the script needs beside it on another machine; may be "
            "given several times"
        ),
    )
    parser.add_argument(
        "--env",
        action="append",
        type=secret_assignment,
        default=[],
        metavar="NAME=VALUE",
        help="submit, resume: a variable of its environment; the run database holds its name alone",
    )
    parser.add_argument(
        "--python", metavar="PROGRAM", help="submit: the interpreter (default: this one)"
    )
    parser.add_argument(
        "--grace",
        type=Kind(float, minimum=0, maximum=86_400),
        metavar="SECONDS",
        help=(
            "submit, cancel: time between asking its processes to end and killing them (default: "
            "10)"
        ),
    )
    parser.add_argument(
        "--storage",
        metavar="ADDRESS",
        help="submit: publish script, progress and outputs here: a folder or s3://BUCKET/PREFIX",
    )
    parser.add_argument(
        "--cpus",
        type=Kind(float, minimum=0, maximum=10_000),
        default=0.0,
        metavar="N",
        help=(
            "submit: processors that a Ray cluster reserves for it, on whichever node has them "
            "(default: 0: the head)"
        ),
    )
    parser.add_argument(
        "--watch", action="store_true", help="submit, resume: watch it until it ends"
    )
    parser.add_argument("--follow", action="store_true", help="logs: go on until it ends")
    parser.add_argument(
        "--lines",
        type=Kind(int, minimum=0),
        default=0,
        metavar="N",
        help="logs: only the last N lines",
    )
    parser.add_argument(
        "--limit",
        type=Kind(int, minimum=0),
        default=50,
        metavar="N",
        help="list: how many at most (default: 50)",
    )
    parser.add_argument(
        "--json",
        type=output_file,
        metavar="OUT.json",
        help="list: also write all there is about them here",
    )


def _run_action(argv: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    # What follows -- belongs to the script, whatever it looks like.
    own, script = (
        (given[: given.index("--")], given[given.index("--") + 1 :])
        if "--" in given
        else (given, [])
    )
    options = parse(own, "jobs", __doc__ or "", (), _add_options).options
    options.script = script
    if script and options.action != "submit":
        raise ConfigError(f"{options.action}: nothing may follow --")
    with RunDatabase(
        get_database_address(options), store=options.store, create=options.action == "submit"
    ) as database:
        return _ACTIONS[options.action](database, options)


def _submit(database: RunDatabase, options: argparse.Namespace) -> int:
    if len(options.jobs) != 1:
        raise ConfigError("submit: name one script or pipeline file; its own arguments follow --")
    job = submit_job(
        database,
        options.jobs[0],
        options.script,
        outputs=options.output,
        without_output=options.no_output,
        place=options.on,
        folder=options.folder,
        name=options.name,
        directory=options.directory,
        send=options.send,
        environment=dict(options.env),
        python=options.python,
        grace=options.grace,
        storage=options.storage,
        cpus=options.cpus,
    )
    print(
        f"{job.id[:12]} {job.run.experiment}: {job.state}; nnpipe jobs watch {job.id[:12]} shows "
        f"how far it is"
    )
    return show_job_progress(database, job) if options.watch else 0


def _list(database: RunDatabase, options: argparse.Namespace) -> int:
    found = list_jobs(database, options.jobs, name=options.name, limit=options.limit)
    print(format_jobs_table(found.jobs) if found.jobs else "no jobs")
    for job, fault in found.faults.items():
        print(f"{job[:12]}: {fault}", file=sys.stderr)
    if options.json is not None:
        write_text(
            options.json,
            json.dumps({"jobs": [build_summary(job) for job in found.jobs]}, indent=2) + "\n",
        )
    return 0


def _show_progress(database: RunDatabase, options: argparse.Namespace) -> int:
    return show_job_progress(database, database.jobs.get(_require_one_job(options)))


def _print_log(database: RunDatabase, options: argparse.Namespace) -> int:
    return print_job_log(
        database,
        database.jobs.get(_require_one_job(options)),
        lines=options.lines,
        until_end=options.follow,
    )


def _cancel(database: RunDatabase, options: argparse.Namespace) -> int:
    if not options.jobs:
        raise ConfigError("cancel: name a job; nnpipe jobs list shows them")
    found = cancel_jobs(database, options.jobs, grace=options.grace)
    for job in found.jobs:
        print(f"{job.id[:12]} {job.run.experiment}: {job.state}")
    faults = list(found.faults.values())
    for fault in faults[:-1]:
        print(f"nnpipe jobs: {fault}", file=sys.stderr)
    if faults:
        raise faults[-1]
    return 0


def _resume(database: RunDatabase, options: argparse.Namespace) -> int:
    job, goes_on = resume_job(database, _require_one_job(options), dict(options.env))
    if not goes_on:
        print("the script has no argument --resume: it begins anew", file=sys.stderr)
    print(f"{job.id[:12]} {job.run.experiment}: {job.state}, attempt {job.attempt}")
    return show_job_progress(database, job) if options.watch else 0


def _require_one_job(options: argparse.Namespace) -> str:
    if len(options.jobs) != 1:
        raise ConfigError(f"{options.action}: name one job; nnpipe jobs list shows them")
    return str(options.jobs[0])


_ACTIONS: dict[str, Callable[[RunDatabase, argparse.Namespace], int]] = {
    "submit": _submit,
    "list": _list,
    "watch": _show_progress,
    "logs": _print_log,
    "cancel": _cancel,
    "resume": _resume,
}


if __name__ == "__main__":
    sys.exit(main())
