"""Finding out which candidates of a pipeline would work, without training, compiling or writing anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.errors import NNPipeError
from nnpipe.core.messages import one_line
from nnpipe.modelwrappers.files.file_model import FileModel
from nnpipe.workflows.pipeline.entries import made_from
from nnpipe.workflows.pipeline.file import CandidateSettings, ImpossibleCandidate, ModelSettings, Pipeline

_LONGEST = 500  # characters of a cause


@dataclass(frozen=True)
class Accepted:
    """A candidate against which nothing is known, and the formats of its model from the export to the runtime."""

    title: str
    formats: tuple[str, ...]

    def __str__(self) -> str:
        """Return the title and the formats."""
        return f"{self.title}: {' -> '.join(self.formats) or 'in its own framework'}"


@dataclass(frozen=True)
class DryRun:
    """The candidates of a pipeline that would work, and the others with the causes."""

    accepted: tuple[Accepted, ...]
    refused: tuple[ImpossibleCandidate, ...]

    def __str__(self) -> str:
        """Return one line for each candidate, and their numbers."""
        lines = [str(each) for each in self.accepted]
        lines += [f"cannot be: {each.title}: {one_line(each.cause, _LONGEST)}" for each in self.refused]
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
        If a setting outside the candidates is wrong, or the dataset's packages are not installed; the message names
        the place.
    """
    refused: list[ImpossibleCandidate] = []
    pipeline = made_from(settings, changes, lambda found: Pipeline.from_settings(found, refused))
    pipeline.dataset.check_installed()
    accepted = []
    for model in pipeline.models:
        for candidate in model.candidates:
            causes = tuple(_causes(model, candidate))
            if causes:
                refused.append(ImpossibleCandidate(candidate.title, "; ".join(causes)))
            else:
                accepted.append(Accepted(candidate.title, _formats(candidate)))
    return DryRun(tuple(accepted), tuple(refused))


def _formats(candidate: CandidateSettings) -> tuple[str, ...]:
    return () if candidate.way is None else (candidate.way.export, *candidate.way.formats)


def _causes(model: ModelSettings, candidate: CandidateSettings) -> Iterator[str]:
    """Yield the causes why a candidate whose formats fit would not work."""
    try:
        model.wrapper.check_installed()
    except NNPipeError as error:
        yield str(error)
    if model.training is not None:
        if not model.wrapper.offers("train"):
            yield f"{type(model.wrapper).__name__} cannot be trained; leave out its training"
    elif not model.makes_weights and not model.path.is_file():
        or_train = ", or say under training how it is trained" if model.wrapper.offers("train") else ""
        yield f"{model.path}: no such file; name the file of its weights as path{or_train}"
    elif candidate.compilers and isinstance(model.wrapper, FileModel) and _is_taken_as_it_is(model, candidate):
        try:
            yield from candidate.compilers[0].refusals(model.path)
        except NNPipeError as error:
            yield str(error)


def _is_taken_as_it_is(model: ModelSettings, candidate: CandidateSettings) -> bool:
    return candidate.way is not None and candidate.way.export == model.wrapper.weights_format
