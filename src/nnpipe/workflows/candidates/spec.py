"""One way to run a model, in the form in which it is sent to a subprocess."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnpipe.core.artifact import Artifact, get_sidecar_path
from nnpipe.core.compiler import ModelCompiler
from nnpipe.core.dataset import Dataset
from nnpipe.core.errors import ArtifactError, CompileError, ConfigError
from nnpipe.core.live_model import LiveModel
from nnpipe.core.messages import list_names
from nnpipe.core.model import ModelWrapper
from nnpipe.core.model_metadata import Preparation, find_differences
from nnpipe.core.registry import create_component
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.modelwrappers.files.file_formats import format_of
from nnpipe.modelwrappers.files.file_model import FileModel
from nnpipe.workflows.candidates.deployment import Deployment, start_deployment
from nnpipe.workflows.candidates.model_files import read_artifact, read_class_names

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger("nnpipe")


@dataclass(frozen=True)
class CandidateSpec:
    """One way to run a model, which is sent as JSON to the process that opens it.

    Parameters
    ----------
    title
        The candidate's title.
    wrapper, model_path
        The model, and the file of its weights or the file to run.
    compilers
        The compilers that made ``artifact``, in order.
    runtime
        The runtime; None for the model's own framework.
    artifact
        The compiled model.
    format
        The format of ``model_path``, if a runtime loads that file; by default it follows from the
        file's name.
    export
        The format to export the model as first, if any; see :meth:`export_model`.
    deployment
        The target, if it does not run on this machine.
    dataset
        The data to run it on.
    judged
        Whether its outputs are compared with the truth, so that truth and classes have to fit.
    """

    title: str
    wrapper: ModelWrapper
    model_path: Path
    compilers: tuple[ModelCompiler, ...] = ()
    runtime: Runtime | None = None
    artifact: Artifact | None = None
    deployment: Deployment | None = None
    format: str | None = None
    export: str | None = None
    dataset: Dataset | None = None
    judged: bool = True

    @property
    def runs_itself(self) -> bool:
        """Whether the model runs in its own framework, on this machine."""
        return self.runtime is None and self.deployment is None

    @property
    def run_by(self) -> str:
        """The runtime or framework, and the target, as text."""
        what = (
            type(self.runtime or self.wrapper).__name__
            if self.deployment is None or self.runtime
            else "the target"
        )
        if self.deployment is None:
            return what
        return f"{what}, by way of {type(self.deployment.protocol).__name__}"

    def to_json(self) -> dict[str, Any]:
        """Return the candidate as JSON can hold it, for :meth:`from_json`."""
        return {
            "title": self.title,
            "wrapper": self.wrapper.describe(),
            "model_path": str(self.model_path),
            "compilers": [compiler.describe() for compiler in self.compilers],
            "runtime": self.runtime.describe() if self.runtime else None,
            "artifact": str(self.artifact.path) if self.artifact else None,
            "deployment": self.deployment.to_json() if self.deployment else None,
            "format": self.format,
            "export": self.export,
            "dataset": self.dataset.describe() if self.dataset else None,
            "judged": self.judged,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the candidate that :meth:`to_json` described, in another process.

        Raises
        ------
        NNPipeError
            If a class cannot be found there, or the compiled model cannot be read.
        """
        runtime, artifact, deployment, dataset = (
            data[k] for k in ("runtime", "artifact", "deployment", "dataset")
        )
        return cls(
            title=data["title"],
            wrapper=create_component(data["wrapper"], ModelWrapper),
            model_path=Path(data["model_path"]),
            compilers=tuple(create_component(each, ModelCompiler) for each in data["compilers"]),
            runtime=None if runtime is None else create_component(runtime, Runtime),
            artifact=None if artifact is None else Artifact.read(artifact),
            deployment=None if deployment is None else Deployment.from_json(deployment),
            format=data["format"],
            export=data["export"],
            dataset=None if dataset is None else create_component(dataset, Dataset),
            judged=data["judged"],
        )

    @contextlib.contextmanager
    def start_server(self) -> Iterator[Self]:
        """Start its server if requested, and yield the candidate with the address of that server.

        Raises
        ------
        NNPipeError
            If the server cannot be started.
        """
        if self.deployment is None or self.runtime is None:
            yield self
            return
        with start_deployment(self.deployment, self.runtime) as protocol:
            yield replace(self, deployment=Deployment(protocol, self.deployment.remote))

    def fit_wrapper(self) -> Self:
        """Prepare the data, and return the candidate with its wrapper fitted to them.

        Raises
        ------
        NNPipeError
            If the data cannot be used, or the model does not fit them.
        """
        if self.dataset is None:
            return self
        self.dataset.prepare()
        wrapper = (
            self.wrapper
            if self.artifact is None
            else self.wrapper.with_io(self.artifact.exported.io)
        )
        spec = self.dataset.spec
        if self.judged:
            self._check_class_order(spec.class_names)
        fitted = wrapper.for_dataset(spec) if self.judged else wrapper.for_samples(spec)
        # which is told of the source
        for note in fitted.fitting_notes(spec) if self.artifact is None else ():
            log.warning("%s: %s", self.title, note)
        return replace(self, wrapper=fitted)

    def _check_class_order(self, names: tuple[str, ...]) -> None:
        """Raise :class:`ConfigError` if the weights were trained on the same classes in another
        order.

        Wrappers of files bring them to the data set's order.
        """
        own = () if isinstance(self.wrapper, FileModel) else read_class_names(self.model_path)
        if own != names and sorted(own) == sorted(names):
            raise ConfigError(
                f"{self.model_path} was trained on the classes {list_names(own)}, and the data set "
                f"has them as {list_names(names)}; give them in the model's order (--class-list)"
            )

    def load_model(self) -> LiveModel:
        """Return the fitted wrapper's model with its weights loaded; used in a ``with`` block.

        Raises
        ------
        NNPipeError
            If the data cannot be used, or the weights cannot be read.
        """
        self.wrapper.check_installed()
        if self.dataset is not None:
            self.dataset.check_installed()
        return self.fit_wrapper().wrapper.open(self.model_path)

    def export_model(self, folder: Path) -> Self:
        """Return the candidate with its model exported into a folder, if the runtime needs that."""
        if self.export is None:
            return self
        with self.wrapper.open(self.model_path) as model:
            return replace(
                self, artifact=model.export(folder / f"model.{self.export}", self.export)
            )

    def open(self, model: LiveModel | None = None) -> InferenceSession:
        """Load the model, here or on the target, and return its session; used in a ``with`` block.

        Parameters
        ----------
        model
            The live model to load the weights into if its own framework runs it, so that the caller
            can inspect it afterwards; by default a new one that is closed with the session.

        Raises
        ------
        CompileError
            If the runtime refuses the model that was made for it; the message names both.
        NNPipeError
            If it cannot be loaded for another reason.
        """
        if self.runs_itself:
            model = self.wrapper.open() if model is None else model
            model.load(self.model_path)
            return model.session()
        artifact = self.artifact
        if artifact is None:
            artifact = read_artifact(
                self.model_path, self.format or format_of(self.model_path), self.runtime
            )
        if self.deployment is not None:
            from nnpipe.protocols.client.session import open_session

            return open_session(self.deployment.protocol, artifact, self.deployment.remote)
        assert self.runtime is not None
        try:
            return self.runtime.load(artifact)
        except ArtifactError as error:
            if self.artifact is None:  # the file that the user gave
                raise
            makers = " and ".join(type(each).__name__ for each in self.compilers or (self.wrapper,))
            raise CompileError(
                f"{makers} made a model from {self.model_path} that {self.run_by} refuses: "
                f"{error}; try another "
                "compiler or runtime, or find with 'nnpipe reduce' which nodes cause it"
            ) from None

    def find_artifact(self) -> Artifact | None:
        """Return the compiled model, or else the description beside the weights; ``None`` if
        there is neither.
        """
        if self.artifact is None and get_sidecar_path(self.model_path).is_file():
            return Artifact.read(self.model_path)
        return self.artifact

    def preparation(self) -> Preparation:
        """Return how samples are prepared, and how that differs from the model that saved the
        weights.
        """
        found = self.wrapper.preparation()
        if (
            found.source != "wrapper"
            or found.meaning is None
            or not get_sidecar_path(self.model_path).is_file()
        ):
            return found
        said = Artifact.read(self.model_path, check=False).meaning
        return (
            found
            if said is None
            else replace(found, overridden=find_differences(said, found.meaning))
        )
