"""Train in the background: submit, list, watch, logs, cancel, resume.

  nnpipe jobs submit train.py --output model.pt -- --epochs 20
  nnpipe jobs submit digits.yaml --watch      a pipeline; its report shows that it worked
  nnpipe jobs list                            what runs, how far it is, and how it ended
  nnpipe jobs watch train.py                  until it ends; Ctrl-C leaves the job alone
  nnpipe jobs logs 3f2a --follow              what it writes
  nnpipe jobs cancel 3f2a                     end it, with all that it started
  nnpipe jobs resume 3f2a                     go on with what failed or was cancelled

A job goes on when the terminal is closed.  It is completed when the script has
ended with status 0 and has written each --output itself: a file that an earlier
run left does not count.  A script tells how far it is by lines such as
{"fraction": 0.4, "metrics": {"loss": 0.1}} in the file that the variable
NNPIPE_PROGRESS (or its own argument --progress) names.  What follows -- goes to
the script.

A JOB is an identity, the beginning of one, or a name, which stands for the
newest job of that name.  nnpipe runs shows the same jobs as runs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.files import write_text
from nnpipe.core.kinds import Kind
from nnpipe.experiment.database.database import RunDatabase
from nnpipe.jobs.here import HERE
from nnpipe.jobs.jobs import cancel, refresh, resume, submit
from nnpipe.jobs.places import place_at
from nnpipe.jobs.publishing import summary
from nnpipe.jobs.work import Work
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.job_progress import follow, watch
from nnpipe.scenarios._cli.job_table import listing
from nnpipe.scenarios._cli.option_types import output_file
from nnpipe.scenarios._cli.run_database import add_database, database_of


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe jobs ACTION ...``."""
    return execute(_jobs, argv, "jobs")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=tuple(_ACTIONS), help=", ".join(_ACTIONS))
    parser.add_argument(
        "jobs", metavar="JOB", nargs="*", help="jobs; for submit a script, a pipeline file or an experiment file"
    )
    add_database(parser)
    parser.add_argument(
        "--folder", type=Path, metavar="FOLDER", help="submit: folder for jobs (default: beside a file)"
    )
    parser.add_argument("--name", help="submit: what to call it (default: the file's name); list: only these")
    parser.add_argument(
        "--output", action="append", default=[], metavar="FILE",
        help="submit: a file that it must write to count as completed; may be given several times",
    )  # fmt: skip
    parser.add_argument("--no-output", action="store_true", help="submit: exit status 0 alone shows that it worked")
    parser.add_argument(
        "--on",
        default=HERE,
        metavar="PLACE",
        help="submit: here (the default), ssh://USER@HOST:PORT or ray+http://HOST:8265",
    )
    parser.add_argument(
        "--directory", type=Path, metavar="FOLDER", help="submit: where it runs, or its outputs come to (default: here)"
    )
    parser.add_argument(
        "--send", action="append", default=[], type=Path, metavar="PATH",
        help="submit: a file or folder that the script needs beside it on another machine; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="submit, resume: a variable of its environment; the run database holds its name alone",
    )
    parser.add_argument("--python", metavar="PROGRAM", help="submit: the interpreter (default: this one)")
    parser.add_argument(
        "--grace", type=Kind(float, minimum=0, maximum=86_400), metavar="SECONDS",
        help="submit, cancel: time between asking its processes to end and killing them (default: 10)",
    )  # fmt: skip
    parser.add_argument(
        "--storage",
        metavar="ADDRESS",
        help="submit: publish script, progress and outputs here: a folder or s3://BUCKET/PREFIX",
    )
    parser.add_argument("--watch", action="store_true", help="submit, resume: watch it until it ends")
    parser.add_argument("--follow", action="store_true", help="logs: go on until it ends")
    parser.add_argument(
        "--lines", type=Kind(int, minimum=0), default=0, metavar="N", help="logs: only the last N lines"
    )
    parser.add_argument(
        "--limit", type=Kind(int, minimum=0), default=50, metavar="N", help="list: how many at most (default: 50)"
    )
    parser.add_argument(
        "--json", type=output_file, metavar="OUT.json", help="list: also write all there is about them here"
    )


def _jobs(argv: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    # What follows -- belongs to the script, whatever it looks like.
    own, script = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    options = parse(own, "jobs", __doc__ or "", (), _options).options
    options.script = script
    if script and options.action != "submit":
        raise ConfigError(f"{options.action}: nothing may follow --")
    with RunDatabase(database_of(options), store=options.store, create=options.action == "submit") as database:
        return _ACTIONS[options.action](database, options)


def _submit(database: RunDatabase, options: argparse.Namespace) -> int:
    if len(options.jobs) != 1:
        raise ConfigError("submit: name one script or pipeline file; its own arguments follow --")
    work = Work(
        file=Path(options.jobs[0]), arguments=options.script, outputs=options.output, send=options.send,
        directory=options.directory or Path.cwd(), environment=_environment(options.env),
        python=_interpreter(options),
        grace=10.0 if options.grace is None else options.grace, storage=options.storage,
    )  # fmt: skip
    work.check()
    if not work.outputs and not options.no_output:
        if not work.is_pipeline:
            raise ConfigError(
                "submit: which file shows that it worked? name it with --output FILE (several, if you like); "
                "with --no-output its exit status alone tells"
            )
        work = _with_report(work)
    job = submit(database, work, place_at(options.on, options.folder or _beside(database)), name=options.name)
    print(f"{job.id[:12]} {job.run.experiment}: {job.state}; nnpipe jobs watch {job.id[:12]} shows how far it is")
    return watch(database, job) if options.watch else 0


def _interpreter(options: argparse.Namespace) -> str:
    if options.on != HERE:
        return options.python or "python3"
    chosen = options.python or sys.executable
    return str(Path(chosen).absolute()) if os.sep in chosen else chosen


def _beside(database: RunDatabase) -> Path | None:
    address, _ = database.opened_by
    return None if "://" in address else Path(f"{address}.jobs")


def _with_report(work: Work) -> Work:
    """Let the report that ends a pipeline show that it was carried out."""
    import dataclasses

    from nnpipe.workflows.pipeline.compile import read_pipeline

    pipeline = read_pipeline(work.file, work.arguments)
    return dataclasses.replace(work, outputs=[str(pipeline.output / "report.rst")])


def _environment(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise ConfigError(f"--env {text}: expected NAME=VALUE")
        found[name] = value
    return found


def _list(database: RunDatabase, options: argparse.Namespace) -> int:
    if options.jobs:
        found = [database.jobs.get(job) for job in options.jobs]
    else:
        found = database.jobs.find(options.name, limit=options.limit)
    seen, told = [], []
    for job in found:
        try:
            seen.append(refresh(database, job, settling=False))
        except NNPipeError as error:  # a machine that cannot be reached does not hide the others
            seen.append(job)
            told.append(f"{job.id[:12]}: {error}")
    print(listing(seen) if seen else "no jobs")
    for line in told:
        print(line, file=sys.stderr)
    if options.json is not None:
        write_text(options.json, json.dumps({"jobs": [summary(job) for job in seen]}, indent=2) + "\n")
    return 0


def _watch(database: RunDatabase, options: argparse.Namespace) -> int:
    return watch(database, database.jobs.get(_one(options)))


def _logs(database: RunDatabase, options: argparse.Namespace) -> int:
    if options.lines < 0:
        raise ConfigError(f"lines: expected 0 (all) or more, not {options.lines}")
    return follow(database, database.jobs.get(_one(options)), lines=options.lines, until_end=options.follow)


def _cancel(database: RunDatabase, options: argparse.Namespace) -> int:
    if not options.jobs:
        raise ConfigError("cancel: name a job; nnpipe jobs list shows them")
    if options.grace is not None and not 0 <= options.grace <= 3600:
        raise ConfigError(f"grace: expected 0 to 3600 seconds, not {options.grace:g}")
    told = []
    for job in [database.jobs.get(job) for job in options.jobs]:
        try:
            ended = cancel(database, job, options.grace)
        except NNPipeError as error:  # the others are to end all the same
            told.append(error)
        else:
            print(f"{ended.id[:12]} {ended.run.experiment}: {ended.state}")
    for fault in told[:-1]:
        print(f"nnpipe jobs: {fault}", file=sys.stderr)
    if told:
        raise told[-1]
    return 0


def _resume(database: RunDatabase, options: argparse.Namespace) -> int:
    job = database.jobs.get(_one(options))
    if not Work.from_json(job.details["work"]).can_resume:
        print("the script has no argument --resume: it begins anew", file=sys.stderr)
    job = resume(database, job, _environment(options.env))
    print(f"{job.id[:12]} {job.run.experiment}: {job.state}, attempt {job.attempt}")
    return watch(database, job) if options.watch else 0


def _one(options: argparse.Namespace) -> str:
    if len(options.jobs) != 1:
        raise ConfigError(f"{options.action}: name one job; nnpipe jobs list shows them")
    return str(options.jobs[0])


_ACTIONS: dict[str, Callable[[RunDatabase, argparse.Namespace], int]] = {
    "submit": _submit, "list": _list, "watch": _watch, "logs": _logs, "cancel": _cancel, "resume": _resume,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
