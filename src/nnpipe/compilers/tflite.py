"""Conversion of Keras models to TensorFlow Lite, in floats or integers, for CPUs, microcontrollers and the Edge TPU."""

from __future__ import annotations

from typing import Any, ClassVar

from nnpipe.compilers._tflite_conversion import Call, TFLiteConverting
from nnpipe.core.artifact import Artifact
from nnpipe.frameworks.keras import check_io, named_call
from nnpipe.layers.keras.named_layers import TakesOwnLayers
from nnpipe.layers.keras.open_file import open_keras


class TFLiteCompiler(TFLiteConverting, TakesOwnLayers):
    """Converts Keras models to TensorFlow Lite with TensorFlow's converter."""

    requires: ClassVar[tuple[str, ...]] = ("tensorflow", "keras")
    install: ClassVar[str] = "nnpipe[tensorflow]"
    accepts: ClassVar[tuple[str, ...]] = ("keras",)
    packages: ClassVar[tuple[str, ...]] = ("tensorflow", "tensorflow-cpu", "keras")

    def _call(self, artifact: Artifact) -> tuple[Call, list[Any]]:
        model = open_keras(artifact.path, self.own_layers)
        check_io(model, artifact.io, str(artifact.path))
        return named_call(model, artifact.io), [variable.value for variable in model.variables]
