"""Keras models from files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError
from nnpipe.core.files import replacing
from nnpipe.core.live_model import LiveModel
from nnpipe.core.messages import one_line
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.keras import import_keras, model_io
from nnpipe.frameworks.keras_session import KerasSession
from nnpipe.layers.keras.open_file import OpenedModel, in_words, opened_keras, tell
from nnpipe.modelwrappers.files.file_model import FileModel
from nnpipe.modelwrappers.frameworks.tensorflow_analysis import TensorFlowAnalysis
from nnpipe.modelwrappers.frameworks.tensorflow_export import write_keras, write_onnx
from nnpipe.modelwrappers.frameworks.tensorflow_names import graph_of


@dataclass(frozen=True)
class _Facts:
    """What a file's model takes and gives, and why it was not Keras that read it, if so."""

    io: IOSpec
    reason: str


class KerasModel(FileModel, TensorFlowAnalysis):
    """A ``.keras`` or ``.h5`` file that somebody else made; nothing but a data set is needed to measure it.

    A file that Keras 3 refuses, or would compute otherwise than the version
    that wrote it, is read by our own reader, and a line says so.  Layers that
    hold code (Lambda) are refused: whoever made the file would run what they
    like.
    """

    framework: ClassVar[str] = "TensorFlow"
    weights_format: ClassVar[str] = "keras"
    exports: ClassVar[tuple[str, ...]] = ("keras", "onnx")
    requires: ClassVar[tuple[str, ...]] = ("tensorflow", "keras", "h5py")
    install: ClassVar[str] = "nnpipe[tensorflow]"

    def read_io(self, path: Path) -> IOSpec:
        """Build the model to see what it takes and gives; only Keras can say."""
        return _io_of(_opened(path).model, path)

    @cached_property
    def io(self) -> IOSpec:
        """What the file says."""
        return self._looked_at.io

    @property
    def remarks(self) -> tuple[str, ...]:
        """Who read the file, if it was not Keras."""
        return (in_words(self._looked_at.reason),) if self._looked_at.reason else ()

    @cached_property
    def _looked_at(self) -> _Facts:
        """What is found out by opening the file, which :meth:`read_model` does, too."""
        return self._opened(self.model_path)[1]

    def read_model(self, path: Path) -> Any:
        """Build the model, with its weights."""
        model, facts = self._opened(path)
        if path == self.model_path:  # so that it is not built again to be asked
            vars(self)["_looked_at"] = facts
        return model

    def _opened(self, path: Path) -> tuple[Any, _Facts]:
        self.check_installed()
        import_keras(self.num_threads)
        opened = _opened(path)
        return opened.model, _Facts(_io_of(opened.model, path), opened.reason)

    def _content_of(self, native: Any) -> bytes | Path:
        raise NotImplementedError("Keras writes its files itself")

    def versions(self) -> tuple[tuple[str, str], ...]:
        """TensorFlow and Keras."""
        import keras
        import tensorflow

        return (("tensorflow", str(tensorflow.__version__)), ("keras", str(keras.__version__)))

    def session(self, live: LiveModel) -> InferenceSession:
        """Run the model as a TensorFlow graph."""
        native = live.native
        tell(self.model_path, self._looked_at.reason)
        return KerasSession(native, self.io)

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the model as ``"keras"`` or ``"onnx"``.

        Raises
        ------
        ConversionError
            If the model holds something that the format cannot.
        """
        if format not in self.exports:
            return super().export(live, path, format)  # which refuses
        path, model = Path(path), live.native
        tell(self.model_path, self._looked_at.reason)
        with replacing(path) as temporary:
            if format == "onnx":
                write_onnx(model, self.io, temporary, type(self).__name__)
            else:
                write_keras(model, temporary, type(self).__name__)
        return self.artifact_of(path, format, self.versions())


def _opened(path: Path) -> OpenedModel:
    opened = opened_keras(path)
    if graph_of(opened.model) is None:
        kind = type(opened.model).__name__
        raise ArtifactError(f"{path}: a {kind}, which only its own class can run; export it as ONNX")
    return opened


def _io_of(model: Any, path: Path) -> IOSpec:
    try:
        return model_io(model)
    except (ValueError, TypeError) as error:
        raise ArtifactError(f"{path}: {one_line(error)}") from None
