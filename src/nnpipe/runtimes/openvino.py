"""The runtime of OpenVINO, ONNX and TensorFlow Lite models on OpenVINO."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from nnpipe.core.arguments import argument
from nnpipe.core.artifact import Artifact, verify_io
from nnpipe.core.batching import FixesBatch, resolve_batch_axes
from nnpipe.core.errors import ArtifactError
from nnpipe.core.native_output import capture_native_output
from nnpipe.core.runtime import Runtime
from nnpipe.core.session import InferenceSession
from nnpipe.core.tensors import IOSpec
from nnpipe.frameworks.openvino import OpenVINOSession, compile_model
from nnpipe.frameworks.openvino_models import read_model


class OpenVINORuntime(Runtime, FixesBatch):
    """Runs OpenVINO, ONNX and TensorFlow Lite models on OpenVINO, on CPUs and on Intel's GPUs
    and NPUs.
    """

    requires: ClassVar[tuple[str, ...]] = ("openvino",)
    install: ClassVar[str] = "nnpipe[openvino]"
    accepts: ClassVar[tuple[str, ...]] = ("openvino", "onnx", "tflite")
    unsupported_io: ClassVar[tuple[str, ...]] = ("string", "bfloat16")

    num_threads: int = argument(
        1, help="threads that one inference may use; 0 leaves it to the runtime", minimum=0
    )
    openvino_device: Literal["cpu", "gpu", "npu"] = argument("cpu", help="device to compute on")
    inference_precision: Literal["f32", "bf16", "f16", "auto"] = argument(
        "f32",
        help="number format of float operations; auto is the device's fastest, which is bfloat16 "
        "on many CPUs and changes results visibly",
    )

    def io_of(self, path: str | Path) -> IOSpec:
        """Return the inputs and outputs of a file without description; its ending states the
        format.

        Raises
        ------
        MissingDependency
            If OpenVINO is not installed.
        ArtifactError
            If the file is missing, damaged, or of another format; the message names it.
        """
        self.check_installed()
        path = Path(path)
        format = path.suffix.removeprefix(".").lower()
        if format not in self.accepts:
            raise ArtifactError(
                f"{path}: OpenVINO reads files that end in .openvino, .onnx or .tflite"
            )
        with capture_native_output():
            return read_model(path, format).io

    def _load(self, artifact: Artifact) -> InferenceSession:
        with capture_native_output():
            model = read_model(artifact.path, artifact.format)
            if self.batch is not None:
                model = model.for_batch(self.batch, artifact.path)
            io = verify_io(
                replace(artifact, io=resolve_batch_axes(artifact.io, model.io)), model.io
            )

            def compile_for(counting: bool) -> Any:
                return compile_model(
                    model,
                    artifact.path,
                    self.openvino_device,
                    self.num_threads,
                    self.inference_precision,
                    counting,
                )

            return OpenVINOSession(
                compile_for(False), io, model, artifact.path, lambda: compile_for(True)
            )
