"""TensorFlow Lite files without what no runtime needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from nnpipe.compilers.writing_compiler import WritingCompiler
from nnpipe.core.artifact import Artifact
from nnpipe.core.claims import Claim
from nnpipe.core.compiler import Calibration
from nnpipe.core.tensors import IOSpec
from nnpipe.formats.tflite import read_tflite


class TFLiteSlimmer(WritingCompiler):
    """Makes TensorFlow Lite files smaller, which compute the same: for small networks on small devices.

    Names of tensors inside, ranges from calibration, descriptions and empty buffers are left out, and equal buffers are
    there once.  Names of inputs and outputs stay.  Reports on single layers then have numbers instead of names.
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

    def _write(self, artifact: Artifact, destination: Path, calibration: Calibration | None) -> IOSpec:
        from tensorflow.lite.tools import flatbuffer_utils

        model = flatbuffer_utils.convert_bytearray_to_object(bytearray(artifact.path.read_bytes()))
        model.description, model.metadata, model.metadataBuffer = b"", None, None
        for graph in model.subgraphs:
            for tensor in graph.tensors:
                _slim(tensor)
        _merge_buffers(model)
        destination.write_bytes(bytes(flatbuffer_utils.convert_object_to_bytearray(model)))
        return read_tflite(destination).io


def _slim(tensor: Any) -> None:
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
