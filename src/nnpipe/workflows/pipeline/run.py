"""Carrying out a pipeline: train, compile, measure, report."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.errors import ConfigError, NNPipeError
from nnpipe.core.files import check_writable
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
from nnpipe.workflows.pipeline.resume import Unfinished, result_path, unfinished
from nnpipe.workflows.progress import bar, part
from nnpipe.workflows.reporting import write_report

log = logging.getLogger("nnpipe")


@dataclass(frozen=True, eq=False)
class PipelineResult:
    """What a pipeline gave.

    Parameters
    ----------
    pipeline
        What was carried out.
    runs
        What was measured, in the order of the file.
    failures
        Candidates that could not be compiled or measured, with the reason.
    report
        The report; a page for the browser and its figures as JSON lie beside it.
    told
        What came out, as a text.

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
        """Return what was measured of a candidate.

        Raises
        ------
        ConfigError
            If none of this title was measured.
        """
        for run in self.runs:
            if run.title == title:
                return run
        raise ConfigError(f"no candidate {title!r} was measured; there are: {', '.join(r.title for r in self.runs)}")

    def show(self) -> None:
        """Print what came out, and where the report is."""
        sys.stdout.write(f"{self}\n")

    def __str__(self) -> str:
        """Return what came out, and where the report is."""
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

    A run that was interrupted is taken up when it is called again: what is
    measured stays.  A candidate that fails costs the others nothing.

    Parameters
    ----------
    settings
        The path of a YAML or JSON file, or what stands in one.
    changes
        Settings that differ, such as ``"model.training.num_epochs=3"``.
    retrain
        Whether to train even if the same training has been done.
    measure_again
        Whether to measure also what an interrupted run has measured already.
    command
        The command line, for the result files.
    progress
        Shows how far training is.

    Returns
    -------
    PipelineResult
        Shown by ``show()``; the results and the report lie in the folder that ``output`` of the settings names.

    Raises
    ------
    ConfigError
        If the settings cannot be used, naming the place in them, or no candidate could be measured.
    NNPipeError
        If the data or a target cannot be used, or a training failed.

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
        ModelProcess(model.wrapper, pipeline.dataset, model.path) as source,
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
                    so_far.journal.keep(keys[settings.title], result_path(stem))
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
    command: Sequence[str],
    verification: Verification | None,
) -> Run:
    candidate = compiled_candidate(pipeline, model, settings, source, stem)
    output, limit = result_path(stem), limit_of(pipeline, settings)
    return measure_apart(
        candidate, pipeline.dataset, pipeline.measure, command, output, verification, limit, pipeline.load
    )
