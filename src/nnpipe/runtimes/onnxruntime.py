"""The runtime of ONNX models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, verify_io
from nnpipe.core.batching import FixesBatch, resolve_batch_axes
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.onnx import ONNXFile, read_onnx
from nnpipe.frameworks.onnxruntime import create_session, open_model, read_onnxruntime_io


class ONNXRuntime(Runtime, FixesBatch):
    """Runs ONNX models on ONNX Runtime, on the CPU or an NVIDIA GPU."""

    requires: ClassVar[tuple[str, ...]] = ("onnxruntime",)
    install: ClassVar[str] = "nnpipe[onnx]"
    target_packages: ClassVar[tuple[str, ...]] = ("onnxruntime",)
    accepts: ClassVar[tuple[str, ...]] = ("onnx",)
    unsupported_types: ClassVar[tuple[str, ...]] = ("bfloat16",)

    num_threads: int = argument(
        1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0
    )
    device: Literal["cpu", "cuda"] = argument("cpu", help="where to compute")
    graph_optimisation: Literal["none", "basic", "extended", "all"] = argument(
        "all", help="how far ONNX Runtime may rewrite the graph while it loads the model"
    )
    exact_integers: bool = argument(
        True,
        help="avoid overflow in products of 8-bit numbers on x86 processors without VNNI, and "
        "8-bit activations in products with 4-bit weights, at some cost in speed",
    )
    io_binding: bool = argument(
        False,
        help=(
            "pass tensors by I/O binding, which saves some microseconds per call; always done on a "
            "GPU"
        ),
    )

    def performance_caveats(self) -> tuple[str, ...]:
        """Return a handicap if the graph is not fully optimised."""
        less = (
            ()
            if self.graph_optimisation == "all"
            else (f"graph optimisation {self.graph_optimisation}",)
        )
        return (*super().performance_caveats(), *less)

    def io_of(self, path: str | Path) -> IOSpec:
        """Return the inputs and outputs of an ONNX file without description.

        Raises
        ------
        MissingDependency
            If ONNX Runtime is not installed.
        ArtifactError
            If the file is missing, damaged, or not ONNX; the message names it.
        """
        self.check_installed()
        file = read_onnx(path)
        # No shape becomes known in the further levels, which take most of the time of loading a
        # large graph.
        reader = (
            self if self.graph_optimisation == "none" else replace(self, graph_optimisation="basic")
        )
        return read_onnxruntime_io(reader._open(file), file)

    def _load(self, artifact: Artifact) -> InferenceSession:
        file = read_onnx(artifact.path)
        native = self._open(file, self.batch)
        found = read_onnxruntime_io(native, file)
        io = verify_io(replace(artifact, io=resolve_batch_axes(artifact.io, found)), found)

        def open_recording(folder: Path) -> Any:
            return self._open(file, self.batch, folder)

        return create_session(
            native, io, artifact.path, open_recording, self.device, self.io_binding
        )

    def _open(self, file: ONNXFile, batch: int | None = None, recording: Path | None = None) -> Any:
        return open_model(
            file,
            self.num_threads,
            self.device,
            self.graph_optimisation,
            self.exact_integers,
            recording=recording,
            batch=batch,
        )
