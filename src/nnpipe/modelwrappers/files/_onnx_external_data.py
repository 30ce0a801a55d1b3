"""Copying of an ONNX model with external weight files, without loading the weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError
from nnpipe.core.files import replacing
from nnpipe.core.messages import one_line
from nnpipe.formats.onnx import ONNXFile


def write_beside(file: ONNXFile, path: Path) -> None:
    """Copy a model and its weight files, which get the model's name and a number.

    The weights are copied first, so that the model never exists without them.

    Raises
    ------
    ArtifactError
        If the model cannot be read.
    """
    import onnx

    names = {location: f"{path.name}.{number}.weights" for number, location in enumerate(file.external)}
    try:
        model = onnx.load_model(str(file.path), load_external_data=False)
    except Exception as error:  # protobuf's errors share no base
        raise ArtifactError(f"{file.path}: not a usable ONNX model: {one_line(error, 200)}") from None
    for tensor in _tensors(model.graph):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = names[entry.value]
    for location, name in names.items():
        with replacing(path.with_name(name)) as temporary:
            shutil.copyfile(file.path.parent / location, temporary)  # by the kernel, if it can
    with replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString())


def _tensors(graph: Any) -> list[Any]:
    """Return all tensors of a graph and its subgraphs that may be stored in another file."""
    found = list(graph.initializer)
    found += [part for sparse in graph.sparse_initializer for part in (sparse.values, sparse.indices)]
    for node in graph.node:
        for attribute in node.attribute:
            found += [attribute.t, *attribute.tensors]
            for inner in (attribute.g, *attribute.graphs):
                found += _tensors(inner) if inner.node or inner.initializer else []
    return found
