"""Carrying out a pipeline: train, compile, measure, report."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.files import check_writable
from nnpipe.core.foreign_text import show_text
from nnpipe.core.progress import Progress, tell
from nnpipe.measuring.run import Run
from nnpipe.report.sections.outcome import Failure
from nnpipe.workflows.candidates.measure import Verification, measure_apart
from nnpipe.workflows.candidates.model_process import ModelProcess
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
from nnpipe.workflows.pipeline.resume import Unfinished, unfinished
from nnpipe.workflows.progress import bar, part
from nnpipe.workflows.reporting import write_report

log = logging.getLogger("nnpipe")


@dataclass(frozen=True, eq=False)
class PipelineResult:
    """The result of a pipeline.

    Parameters
    ----------
    pipeline
        The pipeline.
    runs
        The measurements, in the order of the file.
    failures
        Candidates that could not be compiled or measured, with reasons.
    report
        The path of the report; an HTML page and its figures as JSON are beside it.
    told
        The summary as text.

    Examples
    --------
    Of the example of :func:`nnpipe.run_pipeline`:


    >>> found.run_of("again").evaluation is None
    False
    >>> found.report.name
    'report.rst'
    """

    pipeline: Pipeline
    runs: tuple[Run, ...]
    failures: tuple[Failure, ...]
    report: Path
    told: str

    def run_of(self, title: str) -> Run:
        """Return the measurement of a candidate.

        Raises
        ------
        ConfigError
            If no candidate of this title was measured.
        """
        for run in self.runs:
            if run.title == title:
                return run
        raise ConfigError(f"no candidate {title!r} was measured; there are: {', '.join(r.title for r in self.runs)}")

    def show(self) -> None:
        """Print the summary and the path of the report."""
        show_text(str(self))

    def __str__(self) -> str:
        """Return the summary and the path of the report."""
        return self.told


def run_pipeline(
    settings: str | Path | Mapping[str, Any],
    changes: Sequence[str] = (),
    *,
    retrain: bool = False,
    measure_again: bool = False,
    command: Sequence[str] = (),
    progress: Progress = bar,
) -> PipelineResult:
    """Carry out a whole pipeline: train, compile in several ways, measure each, report.

    Call it again to resume an interrupted run: finished measurements are kept.  If
    one candidate fails, the others are still measured.

    Parameters
    ----------
    settings
        The path of a YAML or JSON file, or its content.
    changes
        Settings to change, such as ``"model.training.num_epochs=3"``.
    retrain
        Whether to train even if the same training has been done.
    measure_again
        Whether to repeat the measurements of an interrupted run.
    command
        The command line, for the result files.
    progress
        Shows the progress of the training.

    Returns
    -------
    PipelineResult
        The measurements and the report, which are in the folder ``output`` of the settings; ``show()`` prints them.

    Raises
    ------
    ConfigError
        If the settings are wrong (the message names the place), or no candidate could be measured.
    NNPipeError
        If the data or a target cannot be used, or a training fails.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from nnpipe.datasets.arrays import write_arrays
    >>> from nnpipe.testing.model_files import write_onnx_classifier
    >>> labels = np.arange(60) % 4
    >>> samples = np.random.default_rng(0).normal(labels[:, None], 0.1, (60, 6)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = write_onnx_classifier(Path(folder, "model.onnx"), samples, labels)
    ...     data = write_arrays(Path(folder, "data"), {"image": samples}, labels)
    ...     found = run_pipeline({
    ...         "output": f"{folder}/out",
    ...         "dataset": data,
    ...         "model": {"class": "ONNXModel", "arguments": {"model_path": model, "scale": 1}},
    ...         "candidates": [{"title": "as it is"}, {"title": "again", "runtime": "ONNXRuntime"}],
    ...     })
    >>> [run.title for run in found.runs], found.failures
    (['as it is', 'again'], ())
    """
    check_call(run_pipeline, locals())
    pipeline = read_pipeline(settings, changes)
    check_writable(pipeline.output, folder=True)
    check_targets(pipeline)
    prepared(pipeline.dataset)
    results: list[Run] = []
    failures: list[Failure] = []
    report = pipeline.output / "report.rst"
    with unfinished(pipeline, again=measure_again) as so_far:
        for model in pipeline.models:
            _measure_model(so_far, model, retrain, command, results, failures, progress)
        if not results:
            raise ConfigError("no candidate could be measured")
        told = write_report(results, pipeline.title, report, pipeline.report_types, failures=failures)
    return PipelineResult(pipeline, tuple(results), tuple(failures), report, told)


def _measure_model(
    so_far: Unfinished,
    model: ModelSettings,
    retrain: bool,
    command: Sequence[str],
    results: list[Run],
    failures: list[Failure],
    progress: Progress,
) -> None:
    """Train a model and measure its candidates; add each to the results or the failures."""
    pipeline = so_far.pipeline
    parts = len(pipeline.models) + pipeline.count  # each counts as one step of the progress
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
        ModelProcess(model.wrapper, pipeline.dataset, model.path) as source,
        verification_of(pipeline, waiting, source) as verification,
    ):
        for place, settings in enumerate(model.candidates, before):
            if settings.title in known:
                results.append(known[settings.title])
            else:
                log.info("\n[%d/%d] %s", place + 1, pipeline.count, settings.title)
                try:
                    key, stem = keys[settings.title], stems[settings.title]
                    working = so_far.journal.working_path(key)
                    run = _measured(pipeline, model, settings, source, stem, working, command, verification)
                    so_far.publish(key, stem)
                    results.append(run)
                except NNPipeError as error:
                    log.error("%s failed: %s", settings.title, error)
                    failures.append(Failure(place, settings.title, str(error)))
            done += 1
            tell(progress, done, parts, {})


def _measured(
    pipeline: Pipeline,
    model: ModelSettings,
    settings: CandidateSettings,
    source: ModelProcess,
    stem: Path,
    output: Path,
    command: Sequence[str],
    verification: Verification | None,
) -> Run:
    candidate = compiled_candidate(pipeline, model, settings, source, stem)
    limit = limit_of(pipeline, settings)
    return measure_apart(
        candidate, pipeline.dataset, pipeline.measure, command, output, verification, limit, pipeline.load
    )
