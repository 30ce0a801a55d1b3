"""Measure every combination of models, compilers, runtimes and batch sizes, and choose one.

One YAML or JSON file says what to combine, what must hold and what to choose by:

    models:                # each with its class, path and training, as in pipeline files
    compilers:             # chains; 'vary' lists values of an argument to try
    runtimes:
    threads: [1, 2]
    batch_sizes: [1, 8]
    constraints: [latency_p90 <= 5 ms, accuracy_loss <= 0.02, size <= 4 MB]
    objectives: [latency_median, accuracy, size]
    choose: latency_p90

The output folder holds the results, the Pareto front (sweep.json), the report,
and the chosen model's certificate (certificate.json).  A sweep that was stopped,
however roughly, goes on where it was when the same command is given again.  The
exit status is 0 if a candidate qualifies and 1 if none does.  --schema prints a
JSON Schema that editors use to complete and check such files.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ConfigError, MissingDependency, NNPipeError
from nnpipe.core.files import check_writable, write_text
from nnpipe.experiment.settings import override, read_settings
from nnpipe.report.inputs.candidate import candidates_of
from nnpipe.report.render import report_on
from nnpipe.report.result_files import subject
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.scenarios._cli.reporting import tell_where, write_document
from nnpipe.workflows.candidates.stages import prepared
from nnpipe.workflows.ledger import alone
from nnpipe.workflows.sweep.certificate import certificate, test_samples
from nnpipe.workflows.sweep.confirm import Confirmed, confirmed
from nnpipe.workflows.sweep.file import Sweep
from nnpipe.workflows.sweep.run import Done, sweep_through
from nnpipe.workflows.sweep.schema import schema
from nnpipe.workflows.sweep.select import Judged, judge, level_with, ranked, why_none
from nnpipe.workflows.sweep.summary import summary, table, told_again

log = logging.getLogger("nnpipe")
NONE_QUALIFIES = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe sweep SWEEP.yaml [KEY=VALUE ...]``."""
    return execute(_sweep, argv, "sweep")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sweep", type=Path, nargs="?", metavar="SWEEP", help="a YAML or JSON file")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="settings that differ from the file's")
    parser.add_argument("--dry-run", action="store_true", help="list the combinations, possible or not, and stop")
    parser.add_argument("--retry-failed", action="store_true", help="try again what failed before")
    parser.add_argument("--retrain", action="store_true", help="train even if the same training has been done")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of sweep files and stop")


def _sweep(argv: Sequence[str] | None) -> int:
    parsed = parse(argv, "sweep", __doc__ or "", (), _options)
    options = parsed.options
    if options.schema:
        print(json.dumps(schema(), indent=2))
        return 0
    if options.sweep is None:
        raise ConfigError("name a sweep file (nnpipe sweep -h explains)")
    try:
        sweep = Sweep.from_settings(override(read_settings(options.sweep), options.changes))
    except NNPipeError as error:
        place = str(options.sweep)
        raise type(error)(str(error) if str(error).startswith(place) else f"{place}: {error}") from None
    if options.dry_run:
        _list(sweep)
        return 0
    prepared(sweep.dataset)
    check_writable(sweep.output, folder=True)
    with alone(sweep.output):
        done = sweep_through(sweep, parsed.command, retrain=options.retrain, retry=options.retry_failed)
        judged = judge(sweep, done)
        if not judged:
            reasons = "; ".join(f"{each.point.title}: {each.outcome.reason}" for each in done[:3])
            raise ConfigError(f"not one of {len(done)} points could be measured: {reasons}")
        found = confirmed(sweep, ranked(sweep, judged), parsed.command, retry=options.retry_failed)
        _write(sweep, done, judged, found)
        report = sweep.output / "report.rst"
        reported = _report(sweep, report)
    _tell(sweep, done, judged, found)
    if reported:
        tell_where(report)
    return 0 if found.chosen else NONE_QUALIFIES


def _list(sweep: Sweep) -> None:
    for point in sweep.points:
        print(point.title)
    for title, reason in sweep.impossible.items():
        print(f"cannot be: {title}: {reason}")
    print(f"{len(sweep.points)} points, {len(sweep.impossible)} impossible combinations")


def _write(sweep: Sweep, done: Sequence[Done], judged: Sequence[Judged], found: Confirmed) -> None:
    place = sweep.output / "certificate.json"
    if found.chosen is None:
        place.unlink(missing_ok=True)
    else:
        level = level_with(sweep, found.chosen, ranked(sweep, judged))
        _dump(place, certificate(sweep, found.chosen, found, level, test_samples(sweep)))
    _dump(sweep.output / "sweep.json", summary(sweep, done, judged, found))


def _report(sweep: Sweep, output: Path) -> bool:
    """Write the report from what lies in the folder; whether that could be done."""
    found = subject([sweep.output / "sweep.json"])
    candidates = candidates_of(found.runs, found.sources)
    try:
        write_document(
            report_on(candidates, sweep.title, before=found.sections, measured=found.measured), candidates, output
        )
    except MissingDependency as error:
        log.warning("no report: %s", error)
        return False
    return True


def _dump(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def _tell(sweep: Sweep, done: Sequence[Done], judged: Sequence[Judged], found: Confirmed) -> None:
    print(f"\n{table(sweep, judged)}\n")
    failed = [each for each in done if each.outcome.run is None]
    for each in failed:
        print(f"failed: {each.point.title}: {each.outcome.reason}")
    if sweep.impossible:
        print(f"{len(sweep.impossible)} combinations cannot be (--dry-run lists them)")
    if found.chosen is None:
        print("no candidate qualifies:")
        print("\n".join("  " + line for line in why_none(judged, found.refuted)))
        return
    for title, reason in found.refuted.items():
        print(f"did not hold when measured again: {title}: {reason}")
    level = level_with(sweep, found.chosen, ranked(sweep, judged))
    print(f"chosen by {sweep.choose.name}: {found.chosen.title}")
    print("\n".join(f"  {line}" for line in told_again(sweep, found)))
    if level:
        print(f"  cannot be told from it in {sweep.choose.name}: {', '.join(level)}")
    print(f"model: {found.chosen.done.artifact or found.chosen.done.point.model.path}")
    print(f"certificate: {sweep.output / 'certificate.json'}")


if __name__ == "__main__":
    sys.exit(main())
