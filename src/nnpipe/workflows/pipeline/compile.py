"""Reading a pipeline file, and compiling the candidates that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from nnpipe.core.errors import NNPipeError
from nnpipe.core.plan import Plan
from nnpipe.core.progress import Progress
from nnpipe.workflows.candidates.deployment import check_reached
from nnpipe.workflows.candidates.measure import Verification, source_outputs
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import suffix, train_once
from nnpipe.workflows.pipeline.entries import made_from
from nnpipe.workflows.pipeline.file import CandidateSettings, ModelSettings, Pipeline, file_name
from nnpipe.workflows.progress import bar


def read_pipeline(settings: str | Path | Mapping[str, Any], changes: Sequence[str] = ()) -> Pipeline:
    """Return the pipeline of a file, or of its content, with some settings changed.

    Raises
    ------
    NNPipeError
        If a setting is wrong; the message names the file and the place in it.
    """
    return made_from(settings, changes, Pipeline.from_settings)


def check_targets(pipeline: Pipeline) -> None:
    """Raise :class:`NNPipeError` naming the candidate if a target does not answer or refuses the token."""
    for candidate in (candidate for model in pipeline.models for candidate in model.candidates):
        if candidate.deployment is not None:
            try:
                check_reached(candidate.deployment)
            except NNPipeError as error:
                raise type(error)(f"candidate {candidate.title!r}: {error}") from None


def train_model(pipeline: Pipeline, model: ModelSettings, retrain: bool = False, progress: Progress = bar) -> None:
    """Train a model of a pipeline, unless exactly this training has been done."""
    record = f"{file_name(model.title)}.training.json" if model.title else "training.json"
    train_once(
        model.wrapper, pipeline.dataset, model.training, model.path, record=pipeline.output / record,
        makes=model.makes_weights, retrain=retrain, progress=progress,
    )  # fmt: skip


def verification_of(
    pipeline: Pipeline, model: ModelSettings, source: ModelProcess
) -> AbstractContextManager[Verification | None]:
    """Load the source and run it, if any candidate is compiled from it."""
    model.wrapper.check_installed()
    if all(candidate.way is None for candidate in model.candidates):
        return nullcontext()
    source.load(pipeline.time_limit)
    return source_outputs(source, pipeline.verify, pipeline.time_limit)


def compiled_candidate(
    pipeline: Pipeline, model: ModelSettings, settings: CandidateSettings, source: ModelProcess, stem: Path
) -> CandidateSpec:
    """Return a candidate, compiled if it has to be; names of its files start with ``stem``."""
    artifact = None
    if settings.way is not None:
        destination = artifact_path(settings.way, settings, stem)
        artifact = source.compile(
            settings.way, settings.compilers, destination, pipeline.calibration_samples, limit_of(pipeline, settings)
        )
    return CandidateSpec(
        settings.title, model.wrapper, model.path, settings.compilers, settings.runtime, artifact, settings.deployment
    )


def artifact_path(way: Plan, settings: CandidateSettings, stem: Path) -> Path:
    """Return the path of a candidate's compiled model."""
    return stem.with_name(stem.name + suffix(way, settings.compilers))


def limit_of(pipeline: Pipeline, settings: CandidateSettings) -> float:
    """Return the time limit of a candidate's steps in seconds."""
    return pipeline.time_limit if settings.time_limit is None else settings.time_limit


def stem_of(pipeline: Pipeline, settings: CandidateSettings, number: int) -> Path:
    """Return the path with which the names of a candidate's files start; numbers count from 1."""
    return pipeline.output / f"{number:02d}-{file_name(settings.title)}"
