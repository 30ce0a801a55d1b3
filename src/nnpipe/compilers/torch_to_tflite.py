"""Conversion of exported PyTorch programs to TensorFlow Lite, without an intermediate format."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from nnpipe.compilers._tflite_conversion import Call, TFLiteConverting
from nnpipe.compilers._torch_tf.program import ALREADY_QUANTISED, function_of
from nnpipe.compilers._torch_tf.untranslated import UNTRANSLATED
from nnpipe.core.artifact import Artifact
from nnpipe.formats.pt2 import read_program
from nnpipe.frameworks.keras import import_keras
from nnpipe.frameworks.torch_program import QUANTISED, load_program


class TorchToTFLite(TFLiteConverting):
    """Converts exported PyTorch programs to TensorFlow Lite, by way of TensorFlow.

    Each operator is translated to TensorFlow, whose converter does the rest.
    Input images keep PyTorch's channels first and are transposed once; inside,
    channels are last.  PyTorch's core operators are translated, with
    convolutions, pooling, normalisations, resizing, attention, and recurrent
    layers.  An error names any others, such as Fourier transforms, and
    operators whose results have as many elements as their values say.
    """

    requires: ClassVar[tuple[str, ...]] = ("torch", "tensorflow", "keras")
    install: ClassVar[str] = "nnpipe[torch,tensorflow]"
    accepts: ClassVar[tuple[str, ...]] = ("torch-export",)
    packages: ClassVar[tuple[str, ...]] = ("torch", "tensorflow", "tensorflow-cpu")

    def refusals(self, path: Path) -> tuple[str, ...]:
        """Return the operators of a program that are known to have no translation, and whether it is quantised."""
        program = read_program(path)
        if program.mentions(QUANTISED):
            return (ALREADY_QUANTISED,)
        named = (name.removeprefix("torch.ops.") for name in program.operators_on_inputs())
        unknown = [name for name in named if name.split(".")[1] in UNTRANSLATED]
        return (f"PyTorch's {', '.join(unknown)} cannot be translated to TensorFlow",) if unknown else ()

    def _call(self, artifact: Artifact) -> tuple[Call, list[Any]]:
        loaded = load_program(artifact.path)
        import_keras()
        return function_of(loaded), []
