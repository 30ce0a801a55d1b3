"""ONNX models from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.errors import ConversionError
from nnpipe.core.graph import Graph, Profile, Selector
from nnpipe.core.model import Samples, random_batch
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec
from nnpipe.formats.onnx import read_onnx
from nnpipe.frameworks.onnxruntime import io_of_model, open_model, session_of
from nnpipe.modelwrappers.files._file_model import FileModel
from nnpipe.modelwrappers.files._onnx_graph import ONNXSource

_LARGEST = (1 << 31) - 1  # of a protocol buffer


class ONNXModel(FileModel):
    """An ONNX file that somebody else made; nothing but a data set is needed to measure it.

    Running it takes ONNX Runtime alone; its graph, weights and intermediate
    values are looked at with ``onnx_ir``.  Scores that a classifier of
    scikit-learn gives as dictionaries (``ZipMap``) are taken as the tensor
    that they are made of.
    """

    framework: ClassVar[str] = "ONNX"
    weights_format: ClassVar[str] = "onnx"
    exports: ClassVar[tuple[str, ...]] = ("onnx",)
    requires: ClassVar[tuple[str, ...]] = ("onnxruntime",)
    install: ClassVar[str] = "nnpipe[onnx]"

    num_threads: int = argument(1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0)

    def read_io(self, path: Path) -> IOSpec:
        """Read what the model in a file takes and gives."""
        return read_onnx(path).unzipped().io()

    def open(self, path: Path) -> ONNXSource:
        """Take the file as the model."""
        return ONNXSource(read_onnx(path))

    def _content_of(self, native: ONNXSource) -> bytes | Path:
        if not native.changed and not native.file.external:
            return native.file.path
        data = native.serialised()
        if len(data) > _LARGEST:
            raise ConversionError(f"{native.file.path}: with its weights larger than 2 GB, more than one file can hold")
        return data

    def export(self, path: str | Path, format: str) -> Artifact:
        """Write the model as one file, unchanged unless weights have been set or lay in other files."""
        if format == self.weights_format:
            file = read_onnx(self.model_path)
            file.check_external()
            if file.external or file.zipped:
                _ = self.native
        return super().export(path, format)

    def versions(self) -> tuple[tuple[str, str], ...]:
        """ONNX Runtime."""
        from importlib.metadata import version

        return (("onnxruntime", version("onnxruntime")),)

    def session(self) -> InferenceSession:
        """Run the model on ONNX Runtime, as it is now."""
        source: ONNXSource = self.native
        content = source.serialised() if source.changed else None
        native = open_model(source.file, self.num_threads, content=content)
        io_of_model(native, source.file)  # refuses what cannot be put and got
        return session_of(native, self.io, source.file.path)

    # -- analysis ---------------------------------------------------------------------------------

    def get_inference_graph(self) -> Graph:
        """Give the nodes of the main graph, named uniquely; constants are tensors, not operations."""
        source: ONNXSource = self.native
        return source.graph(self.io)

    def get_weights(self, keys: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Copy initialisers by name."""
        source: ONNXSource = self.native
        return source.get_weights(keys)

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the initialisers named and leave the rest alone."""
        source: ONNXSource = self.native
        source.set_weights(weights)

    def profile_inference(self, n_steps: int = 1, samples: Samples | None = None) -> Profile:
        """Time each node with ONNX Runtime's profiler, on the graph as it is written, with no fusions."""
        source: ONNXSource = self.native
        return source.profile(self._some_batches(n_steps, samples), self.num_threads)

    def get_intermediates(self, selector: Selector, inputs: Batch | None = None) -> dict[str, np.ndarray]:
        """Run one batch through the graph as it is written, and give the values chosen, by tensor name."""
        batch = random_batch(self.io, 1) if inputs is None else inputs
        self.io.check_inputs(batch)
        source: ONNXSource = self.native
        return source.intermediates(selector, self.get_inference_graph(), batch)
