"""Model files that hold the names of their classes, as exporters write them."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nnpipe.core.artifact import get_sidecar_path
from nnpipe.testing.model_files import write_onnx_classifier, write_tflite_difference

AXIS_LABELS = 2


def write_labelled_onnx(path: Path, names: Sequence[str]) -> Path:
    """Write a model whose class is the place of the greatest of its input's numbers, with names
    in its properties.
    """
    import onnx

    write_onnx_classifier(path, np.eye(len(names), dtype=np.float32), np.arange(len(names)))
    model = onnx.load_model(str(path))
    onnx.helper.set_model_props(model, {"names": str(dict(enumerate(names)))})
    onnx.save_model(model, str(path))
    return path


def write_labelled_tflite(path: Path, names: Sequence[str], kind: int = AXIS_LABELS) -> Path:
    """Write the difference of two inputs of four numbers, as scores of classes with labels in
    the metadata.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    write_tflite_difference(path)
    get_sidecar_path(path).unlink()
    model = schema.ModelT.InitFromPackedBuf(bytearray(path.read_bytes()), 0)
    entry, buffer = schema.MetadataT(), schema.BufferT()
    entry.name, entry.buffer = "TFLITE_METADATA", len(model.buffers)
    buffer.data = list(_metadata("labels.txt", kind))
    model.buffers, model.metadata = [*model.buffers, buffer], [entry]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(builder.Output())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("labels.txt", "\n".join(names) + "\n")
    return path


def _metadata(labels: str, kind: int) -> bytes:
    """Return a ``ModelMetadata`` of one output with a file of labels, by the numbers of its
    fields.
    """
    import flatbuffers

    builder = flatbuffers.Builder(256)
    name = builder.CreateString(labels)
    builder.StartObject(5)
    builder.PrependUOffsetTRelativeSlot(0, name, 0)
    builder.PrependInt8Slot(2, kind, 0)
    table = builder.EndObject()
    # TensorMetadata, SubGraphMetadata, ModelMetadata
    for fields, place in ((7, 6), (5, 3), (8, 3)):
        builder.StartVector(4, 1, 4)
        builder.PrependUOffsetTRelative(table)
        vector = builder.EndVector()
        builder.StartObject(fields)
        builder.PrependUOffsetTRelativeSlot(place, vector, 0)
        table = builder.EndObject()
    builder.Finish(table, b"M001")
    return bytes(builder.Output())
