"""Reading a pipeline file, and compiling the candidates that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.errors import NNPipeError
from nnpipe.core.messages import format_one_line
from nnpipe.core.plan import Plan
from nnpipe.core.progress import Progress
from nnpipe.modelwrappers.files.file_model import FileModel
from nnpipe.workflows.candidates.deployment import check_reached
from nnpipe.workflows.candidates.measure import Verification, record_source_outputs
from nnpipe.workflows.candidates.model_process import ModelProcess
from nnpipe.workflows.candidates.spec import CandidateSpec
from nnpipe.workflows.candidates.stages import get_file_suffix, train_once
from nnpipe.workflows.pipeline.entries import build_from_settings
from nnpipe.workflows.pipeline.file import (
    CandidateSettings,
    ImpossibleCandidate,
    ModelSettings,
    Pipeline,
    make_file_name,
)
from nnpipe.workflows.progress import show_progress


def read_pipeline(
    settings: str | Path | Mapping[str, Any], changes: Sequence[str] = ()
) -> Pipeline:
    """Return the pipeline of a file, or of its content, with some settings changed.

    Raises
    ------
    NNPipeError
        If a setting is wrong; the message names the file and the place in it.
    """
    return build_from_settings(settings, changes, Pipeline.from_settings)


def check_targets(pipeline: Pipeline) -> None:
    """Raise :class:`NNPipeError` naming the candidate if a target does not answer or refuses the
    token.
    """
    for candidate in (candidate for model in pipeline.models for candidate in model.candidates):
        if candidate.deployment is not None:
            try:
                check_reached(candidate.deployment)
            except NNPipeError as error:
                raise type(error)(f"candidate {candidate.title!r}: {error}") from None


def train_model(
    pipeline: Pipeline,
    model: ModelSettings,
    retrain: bool = False,
    progress: Progress = show_progress,
) -> None:
    """Train a model of a pipeline, unless exactly this training has been done."""
    record = f"{make_file_name(model.title)}.training.json" if model.title else "training.json"
    train_once(
        model.wrapper,
        pipeline.dataset,
        model.training,
        model.path,
        record=pipeline.output / record,
        makes=model.makes_weights,
        retrain=retrain,
        progress=progress,
    )


def start_verification(
    pipeline: Pipeline, model: ModelSettings, source: ModelProcess
) -> AbstractContextManager[Verification | None]:
    """Load the source and run it, if any candidate is compiled from it."""
    model.wrapper.check_installed()
    if all(candidate.way is None for candidate in model.candidates):
        return nullcontext()
    source.load(pipeline.time_limit)
    return record_source_outputs(source, pipeline.verify, pipeline.time_limit)


def compile_candidate(
    pipeline: Pipeline,
    model: ModelSettings,
    settings: CandidateSettings,
    source: ModelProcess,
    stem: Path,
) -> CandidateSpec:
    """Return a candidate, compiled if it has to be; names of its files start with ``stem``."""
    artifact = None
    if settings.way is not None:
        destination = get_artifact_path(settings.way, settings, stem)
        artifact = source.compile(
            settings.way,
            settings.compilers,
            destination,
            pipeline.calibration_samples,
            get_time_limit(pipeline, settings),
        )
    return CandidateSpec(
        settings.title,
        model.wrapper,
        model.path,
        settings.compilers,
        settings.runtime,
        artifact,
        settings.deployment,
    )


def get_artifact_path(way: Plan, settings: CandidateSettings, stem: Path) -> Path:
    """Return the path of a candidate's compiled model."""
    return stem.with_name(stem.name + get_file_suffix(way, settings.compilers))


def get_time_limit(pipeline: Pipeline, settings: CandidateSettings) -> float:
    """Return the time limit of a candidate's steps in seconds."""
    return pipeline.time_limit if settings.time_limit is None else settings.time_limit


def get_file_stem(pipeline: Pipeline, settings: CandidateSettings, number: int) -> Path:
    """Return the path with which the names of a candidate's files start; numbers count from 1."""
    return pipeline.output / f"{number:02d}-{make_file_name(settings.title)}"


_LONGEST = 500  # characters of a cause


@dataclass(frozen=True)
class WorkingCandidate:
    """A candidate against which nothing is known, and the formats of its model from the export
    to the runtime.
    """

    title: str
    formats: tuple[str, ...]

    def __str__(self) -> str:
        """Return the title and the formats."""
        return f"{self.title}: {' -> '.join(self.formats) or 'in its own framework'}"


@dataclass(frozen=True)
class DryRun:
    """The candidates of a pipeline that would work, and the others with the causes."""

    accepted: tuple[WorkingCandidate, ...]
    refused: tuple[ImpossibleCandidate, ...]

    def __str__(self) -> str:
        """Return one line for each candidate, and their numbers."""
        lines = [str(each) for each in self.accepted]
        lines += [
            f"cannot be: {each.title}: {format_one_line(each.cause, _LONGEST)}"
            for each in self.refused
        ]
        number = len(self.accepted) + len(self.refused)
        return "\n".join([*lines, f"{number} candidates, {len(self.refused)} of them impossible"])


def dry_run(settings: str | Path | Mapping[str, Any], changes: Sequence[str] = ()) -> DryRun:
    """Return which candidates of a pipeline would work.

    Nothing is trained, compiled or written, and no target is connected.  So a
    candidate that is accepted may still fail for a cause that only shows then.

    Parameters
    ----------
    settings
        The path of a YAML or JSON file, or its content.
    changes
        Settings to change, such as ``"model.training.num_epochs=3"``.

    Raises
    ------
    NNPipeError
        If a setting outside the candidates is wrong, or the dataset's packages are not installed;
        the message names the place.
    """
    refused: list[ImpossibleCandidate] = []
    pipeline = build_from_settings(
        settings, changes, lambda found: Pipeline.from_settings(found, refused)
    )
    pipeline.dataset.check_installed()
    accepted = []
    for model in pipeline.models:
        for candidate in model.candidates:
            causes = tuple(_find_causes(model, candidate))
            if causes:
                refused.append(ImpossibleCandidate(candidate.title, "; ".join(causes)))
            else:
                accepted.append(WorkingCandidate(candidate.title, _list_formats(candidate)))
    return DryRun(tuple(accepted), tuple(refused))


def _list_formats(candidate: CandidateSettings) -> tuple[str, ...]:
    return () if candidate.way is None else (candidate.way.export, *candidate.way.formats)


def _find_causes(model: ModelSettings, candidate: CandidateSettings) -> Iterator[str]:
    """Yield the causes why a candidate whose formats fit would not work."""
    try:
        model.wrapper.check_installed()
    except NNPipeError as error:
        yield str(error)
    if model.training is not None:
        if not model.wrapper.offers("train"):
            yield f"{type(model.wrapper).__name__} cannot be trained; leave out its training"
    elif not model.makes_weights and not model.path.is_file():
        or_train = (
            ", or say under training how it is trained" if model.wrapper.offers("train") else ""
        )
        yield f"{model.path}: no such file; name the file of its weights as path{or_train}"
    elif (
        candidate.compilers
        and isinstance(model.wrapper, FileModel)
        and _is_taken_as_it_is(model, candidate)
    ):
        try:
            yield from candidate.compilers[0].refusals(model.path)
        except NNPipeError as error:
            yield str(error)


def _is_taken_as_it_is(model: ModelSettings, candidate: CandidateSettings) -> bool:
    return candidate.way is not None and candidate.way.export == model.wrapper.weights_format
