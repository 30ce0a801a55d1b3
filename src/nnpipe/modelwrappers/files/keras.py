"""Keras models from files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ArtifactError
from nnpipe.core.files import replace_atomically
from nnpipe.core.live_model import LiveModel
from nnpipe.core.messages import format_one_line
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.keras import get_inner_graph, import_keras, read_keras_io
from nnpipe.frameworks.keras_session import KerasSession
from nnpipe.layers.keras.named_layers import TakesOwnLayers
from nnpipe.layers.keras.open_file import (
    OpenedModel,
    format_reason,
    log_reader,
    open_keras_with_reason,
)
from nnpipe.modelwrappers.files.file_model import FileModel
from nnpipe.modelwrappers.frameworks.tensorflow import write_keras, write_onnx
from nnpipe.modelwrappers.frameworks.tensorflow_analysis import TensorFlowAnalysis


@dataclass(frozen=True)
class _Facts:
    """Inputs and outputs of a file's model, and the reason why nnpipe and not Keras read it;
    empty if Keras did.
    """

    io: IOSpec
    reason: str


class KerasModel(TakesOwnLayers, FileModel, TensorFlowAnalysis):
    """A model from a ``.keras`` or ``.h5`` file; only a data set is needed to measure it.

    A file that Keras 3 rejects, or would compute differently than the version
    that wrote it, is read by nnpipe's own reader, and a message says so.  Layers
    that hold code (Lambda) are rejected, as loading them would run the code of
    the file's author.  Layers of your own are found if ``own_layers`` names them.
    """

    framework: ClassVar[str] = "TensorFlow"
    weights_format: ClassVar[str] = "keras"
    exports: ClassVar[tuple[str, ...]] = ("keras", "onnx")
    requires: ClassVar[tuple[str, ...]] = ("tensorflow", "keras", "h5py")
    install: ClassVar[str] = "nnpipe[tensorflow]"

    def read_io(self, path: Path) -> IOSpec:
        """Return inputs and outputs; the model is built for this, as only Keras knows them."""
        return _read_io(_open_file(path, self.own_layers).model, path)

    @cached_property
    def io(self) -> IOSpec:
        """Inputs and outputs, as stated in the file."""
        return self._looked_at.io

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return which reader read the file, if it was not Keras."""
        return (format_reason(self._looked_at.reason),) if self._looked_at.reason else ()

    @cached_property
    def _looked_at(self) -> _Facts:
        """The facts found by opening the file; :meth:`read_model` finds them as well."""
        return self._open_model(self.model_path)[1]

    def read_model(self, path: Path) -> Any:
        """Return the model with its weights."""
        model, facts = self._open_model(path)
        if path == self.model_path:  # avoids building it again for its facts
            vars(self)["_looked_at"] = facts
        return model

    def _open_model(self, path: Path) -> tuple[Any, _Facts]:
        self.check_installed()
        import_keras(self.num_threads)
        opened = _open_file(path, self.own_layers)
        return opened.model, _Facts(_read_io(opened.model, path), opened.reason)

    def _get_content(self, native: Any) -> bytes | Path:
        raise NotImplementedError("Keras writes its files itself")

    def versions(self) -> tuple[tuple[str, str], ...]:
        """Return the versions of TensorFlow and Keras."""
        import keras
        import tensorflow

        return (("tensorflow", str(tensorflow.__version__)), ("keras", str(keras.__version__)))

    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that runs the model as a TensorFlow graph."""
        native = live.native
        log_reader(self.model_path, self._looked_at.reason)
        return KerasSession(native, self.io)

    def export(self, live: LiveModel, path: str | Path, format: str) -> Artifact:
        """Write the model as ``"keras"`` or ``"onnx"``.

        Raises
        ------
        ConversionError
            If the model holds something that the format cannot.
        """
        if format not in self.exports:
            return super().export(live, path, format)  # raises NotSupported
        path, model = Path(path), live.native
        log_reader(self.model_path, self._looked_at.reason)
        with replace_atomically(path) as temporary:
            if format == "onnx":
                write_onnx(model, self.io, temporary, type(self).__name__)
            else:
                write_keras(model, temporary, type(self).__name__)
        return self.artifact_of(path, format, self.versions())


def _open_file(path: Path, own_layers: tuple[str, ...]) -> OpenedModel:
    opened = open_keras_with_reason(path, own_layers)
    if get_inner_graph(opened.model) is None:
        kind = type(opened.model).__name__
        raise ArtifactError(
            f"{path}: a {kind}, which only its own class can run; export it as ONNX"
        )
    return opened


def _read_io(model: Any, path: Path) -> IOSpec:
    try:
        return read_keras_io(model)
    except (ValueError, TypeError) as error:
        raise ArtifactError(f"{path}: {format_one_line(error)}") from None
