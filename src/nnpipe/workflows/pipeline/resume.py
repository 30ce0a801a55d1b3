"""Resuming an interrupted run of a pipeline.

While a run is unfinished, the folder ``.unfinished`` beside its results records
which of them are complete and what each depends on.  A run that finishes removes
the folder, so the next one measures everything again.
"""

from __future__ import annotations

import contextlib
import filecmp
import logging
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nnpipe.core.artifact import Artifact, sidecar_of
from nnpipe.core.component import Component
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, NNPipeError
from nnpipe.core.files import sha256_of
from nnpipe.formats.onnx import read_onnx
from nnpipe.measuring.host import framework_versions, host_facts
from nnpipe.measuring.run import Run
from nnpipe.training.sequences.dataset import DatasetSequence
from nnpipe.workflows.journal import Journal, alone, digest_of
from nnpipe.workflows.pipeline.compile import artifact_path, limit_of
from nnpipe.workflows.pipeline.file import CandidateSettings, ModelSettings, Pipeline

log = logging.getLogger("nnpipe")


@contextmanager
def unfinished(pipeline: Pipeline, *, again: bool) -> Iterator[Unfinished]:
    """Lock a pipeline's folder, and yield the measurements of an interrupted run there; ``again`` discards them first.

    If the block ends without an error, the run is finished.

    Raises
    ------
    ConfigError
        If another run has locked the folder.
    """
    with alone(pipeline.output, "run"):
        journal = Journal(pipeline.output / ".unfinished")
        if again:
            journal.remove()
        journal.folder.mkdir(exist_ok=True)
        yield Unfinished(pipeline, journal)
        journal.remove()


@dataclass(frozen=True)
class Unfinished:
    """The candidates of a pipeline that were measured in this run, or in an interrupted one."""

    pipeline: Pipeline
    journal: Journal

    def keys(self, model: ModelSettings) -> Mapping[str, str]:
        """Return a key for each candidate, by title, that is equal only for the same work on the same machine.

        The file of the weights must exist, and must not change until they are measured.
        """
        pipeline = self.pipeline
        common = {
            **self._surroundings,
            "model": _made_of(model.wrapper),
            "weights": _weights(model.path),
            "calibration_samples": pipeline.calibration_samples,
            "measure": pipeline.measure.to_json(),
            "load": pipeline.load.to_json(),
            "verify": pipeline.verify.to_json(),
        }
        return {
            settings.title: digest_of({**common, **_own(settings), "time_limit": limit_of(pipeline, settings)})
            for settings in model.candidates
        }

    def finished(self, key: str, settings: CandidateSettings, stem: Path) -> Run | None:
        """Return the measurement of a candidate; ``None`` if it or the compiled model is missing or has changed."""
        output = result_path(stem)
        try:
            if not filecmp.cmp(self.journal.result_path(key), output, shallow=False):
                return None
            run = Run.read(output)
            if settings.way is not None:
                artifact = Artifact.read(artifact_path(settings.way, settings, stem))
                if artifact.sha256 != run.artifact.get("sha256"):
                    return None
        except (OSError, ArtifactError):  # missing or damaged: measure again
            return None
        log.info("%s: measured already, %s; --measure-again measures it anew", settings.title, output)
        return run

    def publish(self, key: str, stem: Path) -> None:
        """Put the result of a candidate, which is complete, from where it was worked on into its place."""
        self.journal.working_path(key).replace(result_path(stem))
        self.journal.keep(key, result_path(stem))

    @cached_property
    def _surroundings(self) -> Mapping[str, Any]:
        return {
            "host": host_facts(),
            "machine": platform.node(),
            "versions": framework_versions(),
            "dataset": _made_of(self.pipeline.dataset),
            "data": _content(self.pipeline.dataset),
        }


def result_path(stem: Path) -> Path:
    """Return the path of a candidate's result file."""
    return stem.with_name(stem.name + ".json")


def _own(settings: CandidateSettings) -> dict[str, Any]:
    """Return the description of a candidate without what its model's candidates share."""
    deployment = settings.deployment
    return {
        "title": settings.title,
        "export": settings.way.export if settings.way else None,
        "compilers": [_made_of(compiler) for compiler in settings.compilers],
        "runtime": _made_of(settings.runtime) if settings.runtime else None,
        "protocol": _made_of(deployment.protocol) if deployment else None,
        "remote": [deployment.remote.to_json(), deployment.serve] if deployment else None,
    }


def _made_of(component: Component) -> dict[str, Any]:
    """Return a component's description with a digest of its module, whose code the user may have changed."""
    file = getattr(sys.modules.get(type(component).__module__), "__file__", None)
    return {**component.describe(), "code": sha256_of(file) if file and Path(file).is_file() else None}


def weight_paths(path: Path) -> list[Path]:
    """Return those of the model file, its description, and the files with weights beside it that exist."""
    found = [path, sidecar_of(path)]
    if path.suffix.lower() == ".onnx":
        with contextlib.suppress(ArtifactError):
            found += [path.parent / name for name in read_onnx(path).external]
    return [file for file in found if file.is_file()]


def _weights(path: Path) -> dict[str, str]:
    return {file.name: sha256_of(file) for file in weight_paths(path)}


def _content(dataset: Dataset) -> list[Any]:
    """Return the indices of the splits that are used, and a digest of some samples."""
    found = []
    for split in ("train", "test"):
        with contextlib.suppress(NNPipeError):
            found.append(DatasetSequence(dataset, split).settings()["content"])
    return found
