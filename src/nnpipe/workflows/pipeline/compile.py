"""From a pipeline file to candidates that can be opened: read it, and compile what it names."""

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
    """Read a pipeline file, or what stands in one, with some settings changed.

    Raises
    ------
    NNPipeError
        Naming the file, and the place in it.
    """
    return made_from(settings, changes, Pipeline.from_settings)


def check_targets(pipeline: Pipeline) -> None:
    """See that the target of each candidate answers and takes the token; :class:`NNPipeError` names the candidate."""
    for candidate in (candidate for model in pipeline.models for candidate in model.candidates):
        if candidate.deployment is not None:
            try:
                check_reached(candidate.deployment)
            except NNPipeError as error:
                raise type(error)(f"candidate {candidate.title!r}: {error}") from None


def train_model(pipeline: Pipeline, model: ModelSettings, retrain: bool = False, progress: Progress = bar) -> None:
    """Train a model of a pipeline, unless exactly that has been done."""
    record = f"{file_name(model.title)}.training.json" if model.title else "training.json"
    train_once(
        model.wrapper, pipeline.dataset, model.training, model.path, record=pipeline.output / record, retrain=retrain,
        progress=progress,
    )  # fmt: skip


def verification_of(
    pipeline: Pipeline, model: ModelSettings, source: ModelProcess
) -> AbstractContextManager[Verification | None]:
    """Load the source and run it, if anything is made of it."""
    model.wrapper.check_installed()
    if all(candidate.way is None for candidate in model.candidates):
        return nullcontext()
    source.load(pipeline.time_limit)
    return source_outputs(source, pipeline.verify, pipeline.time_limit)


def compiled_candidate(
    pipeline: Pipeline, model: ModelSettings, settings: CandidateSettings, source: ModelProcess, stem: Path
) -> CandidateSpec:
    """Compile what a candidate runs, if it runs something compiled; the file's name starts with ``stem``."""
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
    """Return where the compiled model of a candidate lies."""
    return stem.with_name(stem.name + suffix(way, settings.compilers))


def limit_of(pipeline: Pipeline, settings: CandidateSettings) -> float:
    """Return the seconds that a step of a candidate may take."""
    return pipeline.time_limit if settings.time_limit is None else settings.time_limit


def stem_of(pipeline: Pipeline, settings: CandidateSettings, number: int) -> Path:
    """Return what the names of a candidate's files start with; numbers count from 1."""
    return pipeline.output / f"{number:02d}-{file_name(settings.title)}"
