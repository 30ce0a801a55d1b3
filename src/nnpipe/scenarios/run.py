"""Carry out a whole pipeline from one YAML or JSON file: train, compile, measure, report.

Every setting can be overridden: nnpipe run digits.yaml model.training.num_epochs=3
candidates.0.title="As trained".  A run that was interrupted is taken up when the
same command is given again: what is measured stays, unless --measure-again.
After a run that came to its end everything is measured anew.  --schema prints a
JSON Schema that editors use to complete and check pipeline files.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.files import check_writable
from nnpipe.core.progress import Progress, tell
from nnpipe.measure.run import Run
from nnpipe.report.sections.outcome import Failure
from nnpipe.scenarios._cli.command import execute, parse
from nnpipe.workflows.candidates.measure import Verification, measure_apart
from nnpipe.workflows.candidates.source import Source
from nnpipe.workflows.candidates.stages import prepared
from nnpipe.workflows.pipeline.compile import (
    check_targets,
    compiled_candidate,
    limit_of,
    read_pipeline,
    stem_of,
    train_model,
    verification_of,
)
from nnpipe.workflows.pipeline.file import CandidateSettings, ModelSettings, Pipeline
from nnpipe.workflows.pipeline.resume import Unfinished, result_path, unfinished
from nnpipe.workflows.pipeline.schema import schema
from nnpipe.workflows.progress import part, reported

log = logging.getLogger("nnpipe")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe run PIPELINE.yaml [KEY=VALUE ...]``."""
    return execute(_run, argv, "run")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pipeline", type=Path, nargs="?", metavar="PIPELINE", help="a YAML or JSON file")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="settings that differ from the file's")
    parser.add_argument("--retrain", action="store_true", help="train even if the same training has been done")
    parser.add_argument(
        "--measure-again", action="store_true", help="measure also what an interrupted run has measured already"
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of pipeline files and stop")


def _run(argv: Sequence[str] | None) -> None:
    parsed = parse(argv, "run", __doc__ or "", (), _options)
    options = parsed.options
    if options.schema:
        print(json.dumps(schema(), indent=2))
        return
    if options.pipeline is None:
        raise ConfigError("name a pipeline file (nnpipe run -h explains)")
    pipeline = read_pipeline(options.pipeline, options.changes)
    check_writable(pipeline.output, folder=True)
    check_targets(pipeline)
    prepared(pipeline.dataset)
    results: list[Run] = []
    failures: list[Failure] = []
    progress = reported(os.environ)
    with unfinished(pipeline, again=options.measure_again) as so_far:
        for model in pipeline.models:
            _measure_model(so_far, model, options.retrain, parsed.command, results, failures, progress)
        if not results:
            raise ConfigError("no candidate could be measured")
        _report(pipeline, results, failures)
    if failures:
        titles = ", ".join(failure.title for failure in failures)
        raise ConfigError(f"{len(failures)} of {pipeline.count} candidates failed: {titles}")


def _measure_model(
    so_far: Unfinished,
    model: ModelSettings,
    retrain: bool,
    command: Sequence[str],
    results: list[Run],
    failures: list[Failure],
    progress: Progress,
) -> None:
    """Train a model and measure its candidates; what comes of each is put to the results or the failures."""
    pipeline = so_far.pipeline
    parts = len(pipeline.models) + pipeline.count  # trainings and candidates, told as if all took as long
    before = len(results) + len(failures)
    done = pipeline.models.index(model) + before
    train_model(pipeline, model, retrain, part(progress, done, parts))
    done += 1
    tell(progress, done, parts, {})
    keys = so_far.keys(model)
    stems = {each.title: stem_of(pipeline, each, n) for n, each in enumerate(model.candidates, before + 1)}
    found = {each.title: so_far.finished(keys[each.title], each, stems[each.title]) for each in model.candidates}
    known = {title: run for title, run in found.items() if run is not None}
    waiting = replace(model, candidates=tuple(each for each in model.candidates if each.title not in known))
    with (
        Source(model.wrapper, pipeline.dataset, model.path) as source,
        verification_of(pipeline, waiting, source) as verification,
    ):
        for place, settings in enumerate(model.candidates, before):
            if settings.title in known:
                results.append(known[settings.title])
            else:
                log.info("\n[%d/%d] %s", place + 1, pipeline.count, settings.title)
                try:
                    stem = stems[settings.title]
                    results.append(_measured(pipeline, model, settings, source, stem, command, verification))
                    so_far.ledger.keep(keys[settings.title], result_path(stem))
                except NNPipeError as error:
                    log.error("%s failed: %s", settings.title, error)
                    failures.append(Failure(place, settings.title, str(error)))
            done += 1
            tell(progress, done, parts, {})


def _measured(
    pipeline: Pipeline,
    model: ModelSettings,
    settings: CandidateSettings,
    source: Source,
    stem: Path,
    command: Sequence[str],
    verification: Verification | None,
) -> Run:
    candidate = compiled_candidate(pipeline, model, settings, source, stem)
    output, limit = result_path(stem), limit_of(pipeline, settings)
    return measure_apart(
        candidate, pipeline.dataset, pipeline.measure, command, output, verification, limit, pipeline.load
    )


def _report(pipeline: Pipeline, runs: Sequence[Run], failures: Sequence[Failure]) -> None:
    from nnpipe.scenarios._cli.reporting import write_report

    write_report(runs, pipeline.title, pipeline.output / "report.rst", pipeline.report_types, failures=failures)


if __name__ == "__main__":
    sys.exit(main())
