"""The base of wrappers whose models are ONNX files: running and analysing them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nnpipe.core.arguments import argument
from nnpipe.core.errors import ConversionError
from nnpipe.core.graph import Graph, Profile, Selector
from nnpipe.core.graph_sizes import Shapes, with_shapes
from nnpipe.core.live_model import LiveModel
from nnpipe.core.model import Samples
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import Batch, IOSpec, random_batch
from nnpipe.formats.onnx import read_onnx
from nnpipe.frameworks.onnxruntime import io_of_model, open_model, session_of
from nnpipe.frameworks.onnxruntime_profile import record
from nnpipe.modelwrappers.files._onnx_graph import ONNXSource
from nnpipe.modelwrappers.files.self_contained_model import SelfContainedModel

LARGEST = (1 << 31) - 1
"""The bytes that a protocol buffer holds at most."""


class ONNXWrapper(SelfContainedModel):
    """A network that is saved, run by ONNX Runtime, and analysed as an ONNX file."""

    framework: ClassVar[str] = "ONNX"
    weights_format: ClassVar[str] = "onnx"
    exports: ClassVar[tuple[str, ...]] = ("onnx",)
    requires: ClassVar[tuple[str, ...]] = ("onnxruntime",)
    install: ClassVar[str] = "nnpipe[onnx]"

    num_threads: int = argument(1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0)

    def read_io(self, path: Path) -> IOSpec:
        """Return the inputs and outputs of the model in a file."""
        return read_onnx(path).unzipped().io()

    def read_model(self, path: Path) -> ONNXSource:
        """Return the model of a file; its content is read when it is first needed."""
        return ONNXSource(read_onnx(path))

    def _content_of(self, native: ONNXSource) -> bytes | Path:
        if not native.changed and not native.file.external:
            return native.file.path
        data = native.serialised()
        if len(data) > LARGEST:
            raise ConversionError(f"{native.file.path}: with its weights larger than 2 GB, more than one file can hold")
        return data

    def versions(self) -> tuple[tuple[str, str], ...]:
        """Return the version of ONNX Runtime."""
        from importlib.metadata import version

        return (("onnxruntime", version("onnxruntime")),)

    def session(self, live: LiveModel) -> InferenceSession:
        """Return a session that runs the present model on ONNX Runtime."""
        source: ONNXSource = live.native
        content = source.serialised() if source.changed else None

        def opened(recording: Path | None = None) -> Any:
            return open_model(source.file, self.num_threads, content=content, recording=recording)

        native = opened()
        io_of_model(native, source.file)  # raises for tensors that cannot be put or got
        return session_of(native, self.io, source.file.path, opened)

    # -- analysis ---------------------------------------------------------------------------------

    def get_inference_graph(self, live: LiveModel) -> Graph:
        """Return the nodes of the main graph with unique names; constants are tensors, not operations."""
        source: ONNXSource = live.native
        return source.graph(self.io)

    def get_sized_graph(self, live: LiveModel, shapes: Shapes) -> Graph:
        """Return the nodes with the shapes that follow from those of the inputs."""
        source: ONNXSource = live.native
        return source.graph(with_shapes(self.io, shapes), sized=True)

    def get_weights(self, live: LiveModel, keys: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Return copies of initialisers by name."""
        source: ONNXSource = live.native
        return source.get_weights(keys)

    def set_weights(self, live: LiveModel, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the named initialisers; the others stay."""
        source: ONNXSource = live.native
        source.set_weights(weights)

    def profile_inference(self, live: LiveModel, n_steps: int = 1, samples: Samples | None = None) -> Profile:
        """Return the time of each node of the fused graph that sessions run, from ONNX Runtime's profiler."""
        source: ONNXSource = live.native
        content = source.serialised() if source.changed else None

        def opened(folder: Path) -> Any:
            return open_model(source.file, self.num_threads, content=content, recording=folder)

        batches = self._some_batches(n_steps, samples)
        times = record(opened, lambda native: session_of(native, self.io, source.file.path, opened), batches)
        return times.as_profile()

    def get_intermediates(
        self, live: LiveModel, selector: Selector, inputs: Batch | None = None, given: Batch | None = None
    ) -> dict[str, np.ndarray]:
        """Run one batch through the unoptimised graph and return the selected values by tensor name."""
        batch = random_batch(self.io, 1) if inputs is None else inputs
        self.io.check_inputs(batch)
        source: ONNXSource = live.native
        return source.intermediates(selector, live.get_inference_graph(), batch, given or {})
