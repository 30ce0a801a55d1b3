"""Compare candidates side by side: which is faster, which more accurate, and how sure that is.

WHAT is a pipeline file, with KEY=VALUE changes as for nnpipe run, or two or
more model files with --dataset; name files before options.  All candidates are
alive at once, each in a process of its own, and take turns in short blocks in
random order.  All are started anew many times, since each start has luck of its
own with its place in memory.  Whoever is slower beyond doubt falls out.

Ctrl-C ends it early and loses nothing.

The verdict may be "cannot be told apart", with the number of starts that would
tell.  With --margin 1% candidates may also be found the same within 1 %.

To see what your machine can tell at all, give the same file twice: nnpipe
compare model.onnx model.onnx --dataset DigitsDataset.  It should find no
difference, and the interval shows how small a difference it would have found.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.files import check_writable
from nnpipe.core.kinds import Kind
from nnpipe.core.model import ModelWrapper
from nnpipe.measure.benchmark import MeasureOptions
from nnpipe.measure.pairing import Plan
from nnpipe.measure.run import is_result
from nnpipe.report.sections.comparison_findings import comparison_table, sentences
from nnpipe.report.writers.terminal import to_text
from nnpipe.scenarios._cli.command import CommandParser, Parsed, add_model_path, execute, parse
from nnpipe.scenarios._cli.option_types import Percentage, output_file
from nnpipe.workflows.candidates.measure import Verification
from nnpipe.workflows.candidates.model_files import wrapper_of_file
from nnpipe.workflows.candidates.source import LimitOptions, Source
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import prepared
from nnpipe.workflows.comparison.contest import Contest, carried_out
from nnpipe.workflows.pipeline.compile import (
    compiled_candidate,
    limit_of,
    read_pipeline,
    stem_of,
    train_model,
    verification_of,
)

log = logging.getLogger("nnpipe")
_PIPELINES = (".yaml", ".yml", ".json")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``nnpipe compare WHAT [WHAT ...] [options]``."""
    return execute(_compare, argv, "compare")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="+", metavar="WHAT", help="a pipeline file and changes to it, or model files")
    parser.add_argument("--dataset", metavar="CLASS", help="for model files: the data; its test split is used")
    parser.add_argument(
        "--output", type=output_file, metavar="OUT.json", help="the result file (default: comparison.json)"
    )
    parser.add_argument("--title", default="", help="of the comparison")
    parser.add_argument(
        "--confidence", type=Percentage(0.5, 0.9999), default=0.95, metavar="PERCENT",
        help="how often all intervals are to be right, together (default: 95%%)",
    )  # fmt: skip
    parser.add_argument(
        "--margin",
        type=Percentage(0.0001, 0.9999),
        metavar="PERCENT",
        help="difference in time that does not matter (default: none)",
    )
    parser.add_argument(
        "--precision",
        type=Percentage(0.0001, 0.9999),
        metavar="PERCENT",
        help="go on until each difference is known to so much either way",
    )
    parser.add_argument(
        "--max-seconds",
        type=Kind(float, minimum=0.1, maximum=86_400),
        default=300.0,
        metavar="S",
        help="how long to run candidates at most (default: 300)",
    )
    parser.add_argument(
        "--block-ms",
        type=Kind(float, minimum=0.1, maximum=60_000),
        default=10.0,
        metavar="MS",
        help="how long a candidate's turn lasts (default: 10)",
    )
    parser.add_argument(
        "--seed", type=Kind(int, minimum=0), default=0, help="of the order in which candidates run (default: 0)"
    )
    parser.add_argument(
        "--inference-batch-size",
        type=Kind(int, minimum=1),
        metavar="N",
        help="for model files: samples in one inference (default: 1)",
    )
    parser.add_argument(
        "--measure-samples", type=Kind(int, minimum=1), metavar="N",
        help="for model files: how many test samples accuracies are compared on (default: all)",
    )  # fmt: skip
    parser.add_argument("--retrain", action="store_true", help="train even if the same training has been done")
    add_model_path(parser, argparse.SUPPRESS, required=False)


def _compare(argv: Sequence[str] | None) -> int:
    files = _model_files(argv)
    wrappers = list(dict.fromkeys(cls for cls in map(_wrapper, files) if cls is not None))
    parsed = parse(
        argv, "compare", __doc__ or "", (), _options, fixed=(*wrappers, LimitOptions),
        named_by=[("--dataset", Dataset)],
    )  # fmt: skip
    options = parsed.options
    plan = Plan(
        confidence=options.confidence, margin=options.margin, precision=options.precision,
        max_seconds=options.max_seconds, block_seconds=options.block_ms / 1e3, seed=options.seed,
    )  # fmt: skip
    with ExitStack() as stack:
        if files:
            output = options.output or Path("comparison.json")
            contest = _of_files(parsed)
        else:
            contest, output = _of_pipeline(parsed, stack)
        found, interrupted = carried_out(contest, plan, title=options.title, command=parsed.command)
    found.write(output)
    print(f"\n{to_text(comparison_table(found))}\n")
    for told in sentences(found):
        print(told)
    print(f"\nresult: {output}")
    if found.failures:
        raise ConfigError(f"{len(found.failures)} candidates failed: {', '.join(found.failures)}")
    return 130 if interrupted else 0


# -- model files --------------------------------------------------------------------------------------


def _model_files(argv: Sequence[str] | None) -> list[str]:
    """Return what is named before the options, unless it is a pipeline file; none where help is asked for alone."""
    scout = CommandParser(prog="nnpipe compare", add_help=False, allow_abbrev=False)
    _options(scout)
    given = list(sys.argv[1:] if argv is None else argv)
    named = scout.parse_known_args(given)[0].what if given and not given[0].startswith("-") else []
    return [] if not named or Path(named[0]).suffix.lower() in _PIPELINES else named


def _wrapper(file: str) -> type[Component]:
    found = wrapper_of_file(file)
    if found is None:
        raise ConfigError(f"{file}: no pipeline file and no model file that is known here")
    return found


def _of_files(parsed: Parsed) -> Contest:
    options = parsed.options
    if not parsed.classes["--dataset"]:
        raise ConfigError("--dataset is missing: name the data that the model files run on")
    if len(options.what) < 2:
        raise ConfigError("a comparison needs two model files or more; give the same one twice to see what chance does")
    if options.model_path is not None:
        raise ConfigError("--model-path is not for compare: name the files themselves")
    dataset = prepared(cast(Dataset, parsed.make("--dataset")))
    candidates: list[tuple[CandidateSpec, Verification | None]] = []
    for title, file in zip(_titles(options.what), options.what, strict=True):
        if not Path(file).is_file():
            raise ConfigError(f"{file}: no such model file")
        options.model_path = Path(file)
        wrapper = cast(ModelWrapper, _wrapper(file).from_argparse(options))
        wrapper.check_installed()
        candidates.append((CandidateSpec(title, wrapper, Path(file)), None))
    options.model_path = None
    measure = MeasureOptions(
        measure_seconds=0.0,
        inference_batch_size=options.inference_batch_size or 1,
        measure_samples=options.measure_samples,
    )
    return Contest(candidates, dataset, measure, LimitOptions.from_argparse(options).time_limit, {})


def _refuse_results(names: Sequence[str]) -> None:
    """Raise :class:`ConfigError` for results that are there already: this command measures."""
    files = [name for name in names if Path(name).suffix.lower() == ".json" and Path(name).is_file()]
    if files and all(is_result(Path(name)) for name in files):
        raise ConfigError(
            f"{files[0]} is the result of a measurement, and this command measures: to see results beside each other, "
            f"nnpipe render_report {' '.join(files)} TITLE OUT.html; to judge two, nnpipe gate"
        )


def _titles(files: Sequence[str]) -> list[str]:
    """Call files by their names, or paths where names are alike, with a number where one comes again."""
    names = [Path(file).name for file in files]
    short = [file if len({f for f, n in zip(files, names, strict=True) if n == name}) > 1 else name
             for file, name in zip(files, names, strict=True)]  # fmt: skip
    return [f"{title} ({short[:place].count(title) + 1})" if title in short[:place] else title
            for place, title in enumerate(short)]  # fmt: skip


# -- a pipeline ---------------------------------------------------------------------------------------


def _of_pipeline(parsed: Parsed, stack: ExitStack) -> tuple[Contest, Path]:
    """Train and compile what a pipeline file names; what verifies it lasts as long as ``stack``."""
    options = parsed.options
    if Path(options.what[0]).suffix.lower() not in _PIPELINES:
        raise ConfigError(f"{options.what[0]}: name model files before all options")
    for flag, value in (
        ("--dataset", options.dataset),
        ("--inference-batch-size", options.inference_batch_size),
        ("--measure-samples", options.measure_samples),
    ):
        if value is not None:
            raise ConfigError(f"{flag} is for model files; the pipeline file says it itself")
    _refuse_results(options.what)
    pipeline = read_pipeline(Path(options.what[0]), options.what[1:])
    check_writable(pipeline.output, folder=True)
    if pipeline.count < 2:
        raise ConfigError(f"{options.what[0]}: a comparison needs two candidates or more")
    prepared(pipeline.dataset)
    candidates: list[tuple[CandidateSpec, Verification | None]] = []
    failures: dict[str, str] = {}
    limits = []
    for model in pipeline.models:
        train_model(pipeline, model, options.retrain)
        source = stack.enter_context(Source(model.wrapper, pipeline.dataset, model.path))
        verification = stack.enter_context(verification_of(pipeline, model, source))
        for settings in model.candidates:
            stem = stem_of(pipeline, settings, len(candidates) + len(failures) + 1)
            try:
                made = compiled_candidate(pipeline, model, settings, source, stem)
            except NNPipeError as error:
                log.error("%s failed: %s", settings.title, error)
                failures[settings.title] = str(error)
                continue
            candidates.append((made, verification))
            limits.append(limit_of(pipeline, settings))
        source.close()  # what trained the model keeps no thread and no memory while others run
    measure = dataclasses.replace(pipeline.measure, measure_seconds=0.0)
    # No limit for one means that none holds for what they do together.
    limit = 0.0 if 0.0 in limits else max(limits, default=0.0)
    output = options.output or pipeline.output / "comparison.json"
    return Contest(candidates, pipeline.dataset, measure, limit, failures), output


if __name__ == "__main__":
    sys.exit(main())
