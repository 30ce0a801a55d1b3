"""Conversion of exported PyTorch programs to TensorFlow Lite, without an intermediate format."""

from __future__ import annotations

from typing import Any, ClassVar

from nnpipe.compilers._tflite_conversion import Call, TFLiteConverting
from nnpipe.compilers._torch_to_tf import function_of
from nnpipe.core.artifact import Artifact
from nnpipe.frameworks.keras import import_keras
from nnpipe.frameworks.torch_program import load_program


class TorchToTFLite(TFLiteConverting):
    """Converts exported PyTorch programs to TensorFlow Lite, by way of TensorFlow.

    Each operator is translated to TensorFlow, whose converter does the rest.
    Input images keep PyTorch's channels first and are transposed once; inside,
    channels are last.  Operators of convolutional and dense networks are
    supported; an error names any others.
    """

    requires: ClassVar[tuple[str, ...]] = ("torch", "tensorflow", "keras")
    install: ClassVar[str] = "nnpipe[torch,tensorflow]"
    accepts: ClassVar[tuple[str, ...]] = ("torch-export",)
    packages: ClassVar[tuple[str, ...]] = ("torch", "tensorflow", "tensorflow-cpu")

    def _call(self, artifact: Artifact) -> tuple[Call, list[Any]]:
        loaded = load_program(artifact.path)
        import_keras()
        return function_of(loaded), []
