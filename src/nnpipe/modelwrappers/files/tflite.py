"""TensorFlow Lite models from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.graph import Graph, Selector, Shapes, with_shapes
from nnpipe.core.live_model import LiveModel
from nnpipe.core.operation_times import OperationTimes
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, TensorSpec, generate_random_batch
from nnpipe.formats.class_names import read_tflite_class_names
from nnpipe.formats.tflite import read_tflite
from nnpipe.frameworks.litert import (
    LiteRTSession,
    check_tensors,
    import_interpreter,
    open_interpreter,
)
from nnpipe.frameworks.litert_profile import record
from nnpipe.modelwrappers.files._tflite_graph import TFLiteSource
from nnpipe.modelwrappers.files.file_model import FileModel


class TFLiteModel(FileModel):
    """A model from a TensorFlow Lite file; only a data set is needed to measure it."""

    framework: ClassVar[str] = "LiteRT"
    weights_format: ClassVar[str] = "tflite"
    exports: ClassVar[tuple[str, ...]] = ("tflite",)
    channel_axis: ClassVar[int] = -1
    requires: ClassVar[tuple[str, ...]] = ("ai_edge_litert|tflite_runtime|tensorflow",)
    install: ClassVar[str] = "nnpipe[litert]"

    num_threads: int = argument(
        1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0
    )

    def import_framework(self) -> None:
        """Import the interpreter."""
        import_interpreter()

    def read_io(self, path: Path) -> IOSpec:
        """Return the inputs and outputs of the model in a file."""
        return read_tflite(path).io

    def read_model(self, path: Path) -> TFLiteSource:
        """Return the model of a file; its content is read when it is first needed."""
        read_tflite(path)
        return TFLiteSource(path)

    def _get_content(self, native: TFLiteSource) -> bytes | Path:
        return native.path if native.content is None else bytes(native.content)

    def read_class_names(self, output: TensorSpec) -> tuple[str, ...]:
        """Return the names of an output's classes in the labels that the file's metadata name."""
        return self._class_names.get(output.name, ())

    @cached_property
    def _class_names(self) -> dict[str, tuple[str, ...]]:
        return read_tflite_class_names(self.model_path)

    def versions(self) -> tuple[tuple[str, str], ...]:
        """Return the version of the installed package with the interpreter."""
        from importlib.metadata import PackageNotFoundError, version

        for package in ("ai-edge-litert", "tflite-runtime", "tensorflow", "tensorflow-cpu"):
            try:
                return ((package, version(package)),)
            except PackageNotFoundError:
                continue
        return (("litert", "unknown"),)

    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that runs the present model on LiteRT."""
        source: TFLiteSource = live.native
        check_tensors(self.io, source.path)
        content = None if source.content is None else bytes(source.content)
        opened = partial(open_interpreter, source.path, self.num_threads, content=content)

        def record_times(arrays: Mapping[int, np.ndarray], runs: int) -> OperationTimes:
            return record(source.path, content, arrays, self.num_threads, runs)

        return LiteRTSession(
            opened(), self.io, read_tflite(source.path), source.path, record_times, opened
        )

    # -- analysis ---------------------------------------------------------------------------------

    def get_inference_graph(self, live: LiveModel) -> Graph:
        """Return the operators of the file's first graph; ``native`` is the operator's number."""
        source: TFLiteSource = live.native
        return source.graph(self.io)

    def get_sized_graph(self, live: LiveModel, shapes: Shapes) -> Graph:
        """Return the operators with the shapes that follow from those of the inputs."""
        source: TFLiteSource = live.native
        return source.graph(with_shapes(self.io, shapes), sized=True)

    def get_weights(
        self, live: LiveModel, keys: Iterable[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return copies of the constant tensors of the first graph by name, as they are stored."""
        source: TFLiteSource = live.native
        return source.get_weights(keys)

    def set_weights(self, live: LiveModel, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the named constant tensors; the others stay."""
        source: TFLiteSource = live.native
        source.set_weights(weights)

    def get_intermediates(
        self,
        live: LiveModel,
        selector: Selector,
        inputs: Batch | None = None,
        given: Batch | None = None,
    ) -> dict[str, np.ndarray]:
        """Run one batch without XNNPACK and return the selected values by tensor name, as they
        are stored.
        """
        batch = generate_random_batch(self.io, 1) if inputs is None else inputs
        self.io.check_inputs(batch)
        source: TFLiteSource = live.native
        check_tensors(self.io, source.path)
        return source.compute_intermediates(selector, self.io, batch, given or {})
