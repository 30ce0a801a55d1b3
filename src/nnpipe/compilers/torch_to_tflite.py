"""Exported PyTorch programs as TensorFlow Lite, without a converter between them."""

from __future__ import annotations

from typing import Any, ClassVar

from nnpipe.compilers._tflite_conversion import Call, TFLiteConverting
from nnpipe.compilers._torch_to_tf import function_of
from nnpipe.core.artifact import Artifact
from nnpipe.frameworks.keras import import_keras
from nnpipe.frameworks.torch_program import load_program


class TorchToTFLite(TFLiteConverting):
    """TensorFlow Lite models from exported PyTorch programs, by way of TensorFlow.

    Each operator is translated to TensorFlow, whose converter does the rest.
    Images go in with channels first, as PyTorch has them, and are turned once;
    inside, they lie with channels last.  Operators of convolutional networks
    and dense ones are known; others are refused by name.
    """

    requires: ClassVar[tuple[str, ...]] = ("torch", "tensorflow", "keras")
    install: ClassVar[str] = "nnpipe[torch,tensorflow]"
    accepts: ClassVar[tuple[str, ...]] = ("torch-export",)
    packages: ClassVar[tuple[str, ...]] = ("torch", "tensorflow", "tensorflow-cpu")

    def _call(self, artifact: Artifact) -> tuple[Call, list[Any]]:
        loaded = load_program(artifact.path)
        import_keras()
        return function_of(loaded), []
