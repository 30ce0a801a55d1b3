"""Carrying out a pipeline: train, compile, measure, report."""

from __future__ import annotations

import contextlib
import filecmp
import logging
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from nnpipe.core.argument_checks import check_call
from nnpipe.core.artifact import Artifact, get_sidecar_path
from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, ConfigError, NNPipeError
from nnpipe.core.files import check_writable, compute_sha256
from nnpipe.core.foreign_text import show_text
from nnpipe.core.progress import Progress, tell
from nnpipe.formats.onnx import read_onnx
from nnpipe.measuring.host import get_framework_versions, read_host_facts
from nnpipe.measuring.run import Run
from nnpipe.report.sections.verdict import CandidateFailure
from nnpipe.training.sequences.dataset import DatasetSequence
from nnpipe.workflows.candidates.measure import Verification, measure_apart
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.stages import prepare_dataset
from nnpipe.workflows.journal import Journal, compute_digest, lock_folder
from nnpipe.workflows.pipeline.compile import (
    check_targets,
    compile_candidate,
    get_artifact_path,
    get_file_stem,
    get_time_limit,
    read_pipeline,
    start_verification,
    train_model,
)
from nnpipe.workflows.pipeline.file import CandidateSettings, ModelSettings, Pipeline
from nnpipe.workflows.progress import show_progress, split_progress
from nnpipe.workflows.reporting import write_report

# Resuming an interrupted run of a pipeline.
#
# While a run is unfinished, the folder ``.unfinished`` beside its results records which of them are
# complete and what each depends on.  A run that finishes removes the folder, so the next one
# measures everything again.

log = logging.getLogger("nnpipe")


@contextmanager
def lock_pipeline(pipeline: Pipeline, *, again: bool) -> Iterator[UnfinishedRun]:
    """Lock a pipeline's folder, and yield the measurements of an interrupted run there; ``again``
    discards them first.

    If the block ends without an error, the run is finished.

    Raises
    ------
    ConfigError
        If another run has locked the folder.
    """
    with lock_folder(pipeline.output, "run"):
        journal = Journal(pipeline.output / ".unfinished")
        if again:
            journal.remove()
        journal.folder.mkdir(exist_ok=True)
        yield UnfinishedRun(pipeline, journal)
        journal.remove()


@dataclass(frozen=True)
class UnfinishedRun:
    """The candidates of a pipeline that were measured in this run, or in an interrupted one."""

    pipeline: Pipeline
    journal: Journal

    def keys(self, model: ModelSettings) -> Mapping[str, str]:
        """Return a key for each candidate, by title, that is equal only for the same work on the
        same machine.

        The file of the weights must exist, and must not change until they are measured.
        """
        pipeline = self.pipeline
        common = {
            **self._surroundings,
            "model": _describe_with_code(model.wrapper),
            "weights": _compute_weight_digests(model.path),
            "calibration_samples": pipeline.calibration_samples,
            "measure": pipeline.measure.to_json(),
            "load": pipeline.load.to_json(),
            "verify": pipeline.verify.to_json(),
        }
        return {
            settings.title: compute_digest(
                {
                    **common,
                    **_describe_candidate(settings),
                    "time_limit": get_time_limit(pipeline, settings),
                }
            )
            for settings in model.candidates
        }

    def find_finished(self, key: str, settings: CandidateSettings, stem: Path) -> Run | None:
        """Return the measurement of a candidate; ``None`` if it or the compiled model is missing
        or has changed.
        """
        output = get_result_path(stem)
        try:
            if not filecmp.cmp(self.journal.get_result_path(key), output, shallow=False):
                return None
            run = Run.read(output)
            if settings.way is not None:
                artifact = Artifact.read(get_artifact_path(settings.way, settings, stem))
                if artifact.sha256 != run.artifact.get("sha256"):
                    return None
        except (OSError, ArtifactError):  # missing or damaged: measure again
            return None
        log.info(
            "%s: measured already, %s; --measure-again measures it anew", settings.title, output
        )
        return run

    def publish(self, key: str, stem: Path) -> None:
        """Put the result of a candidate, which is complete, from where it was worked on into its
        place.
        """
        self.journal.get_working_path(key).replace(get_result_path(stem))
        self.journal.record_result(key, get_result_path(stem))

    @cached_property
    def _surroundings(self) -> Mapping[str, Any]:
        return {
            "host": read_host_facts(),
            "machine": platform.node(),
            "versions": get_framework_versions(),
            "dataset": _describe_with_code(self.pipeline.dataset),
            "data": _describe_content(self.pipeline.dataset),
        }


def get_result_path(stem: Path) -> Path:
    """Return the path of a candidate's result file."""
    return stem.with_name(stem.name + ".json")


def _describe_candidate(settings: CandidateSettings) -> dict[str, Any]:
    """Return the description of a candidate without what its model's candidates share."""
    deployment = settings.deployment
    return {
        "title": settings.title,
        "export": settings.way.export if settings.way else None,
        "compilers": [_describe_with_code(compiler) for compiler in settings.compilers],
        "runtime": _describe_with_code(settings.runtime) if settings.runtime else None,
        "protocol": _describe_with_code(deployment.protocol) if deployment else None,
        "remote": [deployment.remote.to_json(), deployment.serve] if deployment else None,
    }


def _describe_with_code(component: Component) -> dict[str, Any]:
    """Return a component's description with a digest of its module, whose code the user may have
    changed.
    """
    file = getattr(sys.modules.get(type(component).__module__), "__file__", None)
    return {
        **component.describe(),
        "code": compute_sha256(file) if file and Path(file).is_file() else None,
    }


def list_weight_paths(path: Path) -> list[Path]:
    """Return those of the model file, its description, and the files with weights beside it that
    exist.
    """
    found = [path, get_sidecar_path(path)]
    if path.suffix.lower() == ".onnx":
        with contextlib.suppress(ArtifactError):
            found += [path.parent / name for name in read_onnx(path).external]
    return [file for file in found if file.is_file()]


def _compute_weight_digests(path: Path) -> dict[str, str]:
    return {file.name: compute_sha256(file) for file in list_weight_paths(path)}


def _describe_content(dataset: Dataset) -> list[Any]:
    """Return the indices of the splits that are used, and a digest of some samples."""
    found = []
    for split in ("train", "test"):
        with contextlib.suppress(NNPipeError):
            found.append(DatasetSequence(dataset, split).settings()["content"])
    return found


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
    failures: tuple[CandidateFailure, ...]
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
        raise ConfigError(
            f"no candidate {title!r} was measured; there are: "
            f"{', '.join(r.title for r in self.runs)}"
        )

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
    progress: Progress = show_progress,
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
        The measurements and the report, which are in the folder ``output`` of the settings;
        ``show()`` prints them.

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
    prepare_dataset(pipeline.dataset)
    results: list[Run] = []
    failures: list[CandidateFailure] = []
    report = pipeline.output / "report.rst"
    with lock_pipeline(pipeline, again=measure_again) as so_far:
        for model in pipeline.models:
            _measure_model(so_far, model, retrain, command, results, failures, progress)
        if not results:
            raise ConfigError("no candidate could be measured")
        told = write_report(
            results, pipeline.title, report, pipeline.report_types, failures=failures
        )
    return PipelineResult(pipeline, tuple(results), tuple(failures), report, told)


def _measure_model(
    so_far: UnfinishedRun,
    model: ModelSettings,
    retrain: bool,
    command: Sequence[str],
    results: list[Run],
    failures: list[CandidateFailure],
    progress: Progress,
) -> None:
    """Train a model and measure its candidates; add each to the results or the failures."""
    pipeline = so_far.pipeline
    parts = len(pipeline.models) + pipeline.count  # each counts as one step of the progress
    before = len(results) + len(failures)
    done = pipeline.models.index(model) + before
    train_model(pipeline, model, retrain, split_progress(progress, done, parts))
    done += 1
    tell(progress, done, parts, {})
    keys = so_far.keys(model)
    stems = {
        each.title: get_file_stem(pipeline, each, n)
        for n, each in enumerate(model.candidates, before + 1)
    }
    found = {
        each.title: so_far.find_finished(keys[each.title], each, stems[each.title])
        for each in model.candidates
    }
    known = {title: run for title, run in found.items() if run is not None}
    waiting = replace(
        model, candidates=tuple(each for each in model.candidates if each.title not in known)
    )
    with (
        ModelProcess(model.wrapper, pipeline.dataset, model.path) as source,
        start_verification(pipeline, waiting, source) as verification,
    ):
        for place, settings in enumerate(model.candidates, before):
            if settings.title in known:
                results.append(known[settings.title])
            else:
                log.info("\n[%d/%d] %s", place + 1, pipeline.count, settings.title)
                try:
                    key, stem = keys[settings.title], stems[settings.title]
                    working = so_far.journal.get_working_path(key)
                    run = _measure_candidate(
                        pipeline, model, settings, source, stem, working, command, verification
                    )
                    so_far.publish(key, stem)
                    results.append(run)
                except NNPipeError as error:
                    log.error("%s failed: %s", settings.title, error)
                    failures.append(CandidateFailure(place, settings.title, str(error)))
            done += 1
            tell(progress, done, parts, {})


def _measure_candidate(
    pipeline: Pipeline,
    model: ModelSettings,
    settings: CandidateSettings,
    source: ModelProcess,
    stem: Path,
    output: Path,
    command: Sequence[str],
    verification: Verification | None,
) -> Run:
    candidate = compile_candidate(pipeline, model, settings, source, stem)
    limit = get_time_limit(pipeline, settings)
    return measure_apart(
        candidate,
        pipeline.dataset,
        pipeline.measure,
        command,
        output,
        verification,
        limit,
        pipeline.load,
    )
