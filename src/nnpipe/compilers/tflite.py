"""Conversion of Keras models and exported PyTorch programs to TensorFlow Lite, and slimming of
the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from nnpipe.compilers._tflite_conversion import Call, TFLiteConverterBase
from nnpipe.compilers._torch_tf.program import ALREADY_QUANTISED, UNTRANSLATED, build_function
from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.artifact import Artifact, Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.pt2 import read_program
from nnpipe.formats.tflite import read_tflite
from nnpipe.frameworks.keras import check_io, import_keras, make_named_call
from nnpipe.frameworks.torch_program import QUANTISED, load_program
from nnpipe.layers.keras.named_layers import TakesOwnLayers
from nnpipe.layers.keras.open_file import open_keras


class TFLiteCompiler(TFLiteConverterBase, TakesOwnLayers):
    """Converts Keras models to TensorFlow Lite with TensorFlow's converter."""

    requires: ClassVar[tuple[str, ...]] = ("tensorflow", "keras")
    install: ClassVar[str] = "nnpipe[tensorflow]"
    accepts: ClassVar[tuple[str, ...]] = ("keras",)
    packages: ClassVar[tuple[str, ...]] = ("tensorflow", "tensorflow-cpu", "keras")

    def _call(self, artifact: Artifact) -> tuple[Call, list[Any]]:
        model = open_keras(artifact.path, self.own_layers)
        check_io(model, artifact.io, str(artifact.path))
        return make_named_call(model, artifact.io), [variable.value for variable in model.variables]


class TorchToTFLite(TFLiteConverterBase):
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
        """Return the operators of a program that are known to have no translation, and whether
        it is quantised.
        """
        program = read_program(path)
        if program.mentions(QUANTISED):
            return (ALREADY_QUANTISED,)
        named = (name.removeprefix("torch.ops.") for name in program.find_input_operators())
        unknown = [name for name in named if name.split(".")[1] in UNTRANSLATED]
        return (
            (f"PyTorch's {', '.join(unknown)} cannot be translated to TensorFlow",)
            if unknown
            else ()
        )

    def _call(self, artifact: Artifact) -> tuple[Call, list[Any]]:
        loaded = load_program(artifact.path)
        import_keras()
        return build_function(loaded), []


class TFLiteSlimmer(WritingCompiler):
    """Makes TensorFlow Lite files smaller, which compute the same: for small networks on small
    devices.

    Names of tensors inside, ranges from calibration, descriptions and empty buffers are left out,
    and equal buffers are there once.  Names of inputs and outputs stay.  Reports on single layers
    then have numbers instead of names.
    """

    requires: ClassVar[tuple[str, ...]] = ("tensorflow",)
    install: ClassVar[str] = "nnpipe[tensorflow]"
    accepts: ClassVar[tuple[str, ...]] = ("tflite",)
    produces: ClassVar[str] = "tflite"
    suffix: ClassVar[str] = ".tflite"
    packages: ClassVar[tuple[str, ...]] = ("tensorflow", "tensorflow-cpu")

    def claims(self) -> tuple[Claim, ...]:
        """Return that the model computes the same."""
        return ("float",)

    def variant(self) -> str:
        """Return that the file is slim."""
        return "slim"

    def _write(
        self, artifact: Artifact, destination: Path, calibration: Calibration | None
    ) -> IOSpec:
        from tensorflow.lite.tools import flatbuffer_utils

        model = flatbuffer_utils.convert_bytearray_to_object(bytearray(artifact.path.read_bytes()))
        model.description, model.metadata, model.metadataBuffer = b"", None, None
        for graph in model.subgraphs:
            for tensor in graph.tensors:
                _remove_details(tensor)
        _merge_buffers(model)
        destination.write_bytes(bytes(flatbuffer_utils.convert_object_to_bytearray(model)))
        return read_tflite(destination).io


def _remove_details(tensor: Any) -> None:
    tensor.name = b""
    if tensor.quantization is not None:
        tensor.quantization.min = tensor.quantization.max = None
        if tensor.quantization.scale is None and tensor.quantization.details is None:
            tensor.quantization = None
    signature = tensor.shapeSignature
    if signature is not None and all(length >= 0 for length in signature):
        tensor.shapeSignature = None


def _merge_buffers(model: Any) -> None:
    """Keep one of each set of equal buffers, and the first, which is empty by convention."""
    places: dict[bytes, int] = {}
    kept = [model.buffers[0]]
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            buffer = model.buffers[tensor.buffer]
            content = b"" if buffer.data is None else bytes(bytearray(buffer.data))
            # Contents outside of the FlatBuffer, and states, are left alone.
            if getattr(buffer, "offset", 0) or tensor.isVariable:
                content = f"buffer {tensor.buffer}".encode()
            elif not content:
                tensor.buffer = 0
                continue
            if content not in places:
                places[content] = len(kept)
                kept.append(buffer)
            tensor.buffer = places[content]
    model.buffers = kept
