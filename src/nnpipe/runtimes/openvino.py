"""Models on OpenVINO."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

from nnpipe.core.agreement import agreed_io
from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact
from nnpipe.core.batching import FixesBatch, narrowed
from nnpipe.core.errors import ArtifactError
from nnpipe.core.native_output import native_output_held
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.openvino import OpenVINOSession, compile_model
from nnpipe.frameworks.openvino_models import read_model


class OpenVINORuntime(Runtime, FixesBatch):
    """OpenVINO, ONNX and TensorFlow Lite models on OpenVINO, for CPUs, GPUs and NPUs by Intel."""

    requires: ClassVar[tuple[str, ...]] = ("openvino",)
    install: ClassVar[str] = "nnpipe[openvino]"
    accepts: ClassVar[tuple[str, ...]] = ("openvino", "onnx", "tflite")

    num_threads: int = argument(1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0)
    openvino_device: Literal["cpu", "gpu", "npu"] = argument("cpu", help="which device by Intel computes")
    inference_precision: Literal["f32", "bf16", "f16", "auto"] = argument(
        "f32",
        help="numbers that float operations are computed in; auto is the device's fastest, which on many CPUs is "
        "bfloat16 and differs visibly from the source",
    )

    def io_of(self, path: str | Path) -> IOSpec:
        """Read the inputs and outputs of a bare file, whose format is told by its ending.

        Raises
        ------
        MissingDependency
            If OpenVINO is not installed.
        ArtifactError
            If the file is missing, damaged, or of another kind; the message names it.
        """
        self.check_installed()
        path = Path(path)
        format = path.suffix.removeprefix(".").lower()
        if format not in self.accepts:
            raise ArtifactError(f"{path}: OpenVINO reads files that end in .openvino, .onnx or .tflite")
        with native_output_held():
            return read_model(path, format).io

    def _load(self, artifact: Artifact) -> InferenceSession:
        with native_output_held():
            model = read_model(artifact.path, artifact.format)
            if self.batch is not None:
                model = model.for_batch(self.batch, artifact.path)
            io = agreed_io(replace(artifact, io=narrowed(artifact.io, model.io)), model.io)
            compiled = compile_model(
                model, artifact.path, self.openvino_device, self.num_threads, self.inference_precision
            )
            return OpenVINOSession(compiled, io, model, artifact.path)
