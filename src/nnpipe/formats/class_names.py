"""The names of classes that ONNX and TensorFlow Lite files hold.

ONNX has no field for them: exporters write them into ``metadata_props``, and converters of
scikit-learn into the nodes of its classifiers.  The metadata of TensorFlow Lite files
(``metadata_schema.fbs`` of TensorFlow Lite Support) name a list of labels in the archive that
follows the model.
"""

from __future__ import annotations

import ast
import mmap
import re
import zipfile
import zlib
from pathlib import Path

from nnpipe.core.errors import ArtifactError
from nnpipe.formats._flatbuffer import FlatBufferTable
from nnpipe.formats._protobuf import iterate_spans, map_onnx_file, read_text
from nnpipe.formats.file_types import Damaged
from nnpipe.formats.onnx import iterate_messages
from nnpipe.formats.tflite import read_tflite

_PROPERTIES = ("names", "class_names", "classes", "labels", "id2label")
_MODEL_GRAPH, _MODEL_PROPERTIES, _GRAPH_NODE, _NODE_ATTRIBUTE = 7, 14, 1, 5
_KEY, _VALUE, _ATTRIBUTE_NAME, _ATTRIBUTE_STRINGS = 1, 2, 1, 9
_ITEM = re.compile(
    r"""\s*(?:["']?(\d{1,7})["']?\s*:)?\s*('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")\s*(?:,\s*|$)"""
)

_MODEL_BUFFERS, _MODEL_METADATA, _METADATA_NAME, _METADATA_BUFFER, _BUFFER_DATA = 4, 6, 0, 1, 0
_META_GRAPHS, _GRAPH_OUTPUTS, _TENSOR_FILES, _FILE_NAME, _FILE_TYPE = 3, 3, 6, 0, 2
_LABELS = (2, 3)  # TENSOR_AXIS_LABELS and TENSOR_VALUE_LABELS
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    KeyError,
    RuntimeError,
    ValueError,
)

_LIMIT = 1 << 24  # bytes of a list of names


def read_onnx_class_names(path: str | Path) -> tuple[str, ...]:
    """Return the names of classes in an ONNX file, in its order; nothing if it holds none.

    Raises
    ------
    ArtifactError
        If the file is missing or damaged; the message names it.
    """
    with map_onnx_file(path) as data:
        whole = (0, len(data))
        properties = {}
        for entry in iterate_spans(data, whole, _MODEL_PROPERTIES):
            parts = dict(iterate_messages(data, entry))
            if _KEY in parts and _VALUE in parts:
                properties[read_text(data, parts[_KEY])] = read_text(data, parts[_VALUE])
        for name in _PROPERTIES:
            if found := _parse_names(properties.get(name, "")):
                return found
        lists = set()
        for graph in iterate_spans(data, whole, _MODEL_GRAPH):
            for node in iterate_spans(data, graph, _GRAPH_NODE):
                lists |= _read_class_labels(data, node)
    return lists.pop() if len(lists) == 1 else ()


def _read_class_labels(data: memoryview, node: tuple[int, int]) -> set[tuple[str, ...]]:
    found = set()
    for attribute in iterate_spans(data, node, _NODE_ATTRIBUTE):
        parts = list(iterate_messages(data, attribute))
        names = [read_text(data, value) for number, value in parts if number == _ATTRIBUTE_NAME]
        if names == ["classlabels_strings"]:
            found.add(
                tuple(
                    read_text(data, each) for number, each in parts if number == _ATTRIBUTE_STRINGS
                )
            )
    return found - {()}


def _parse_names(said: str) -> tuple[str, ...]:
    """Return the texts of a list, or of a dictionary by numbers from 0, in JSON or Python;
    nothing for other texts.
    """
    said = said.strip()
    if len(said) > _LIMIT or said[:1] + said[-1:] not in ("[]", "{}"):
        return ()
    body, at = said[1:-1].strip(), 0
    found: list[str] = []
    while at < len(body):
        item = _ITEM.match(body, at)
        if item is None:
            return ()
        expected = len(found) if said[0] == "{" else None
        if expected != (None if item[1] is None else int(item[1])):
            return ()
        try:
            found.append(str(ast.literal_eval(item[2])))
        except (ValueError, SyntaxError):
            return ()
        at = item.end()
    return tuple(found)


def read_tflite_class_names(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Return the names of classes in a TensorFlow Lite file, by output; nothing for outputs without
    names.

    Raises
    ------
    ArtifactError
        If the file is missing or damaged; the message names it.
    """
    path = Path(path)
    outputs = list(read_tflite(path).outputs)
    try:
        described = _find_label_files(path)
    except Damaged as error:
        raise ArtifactError(f"{path}: its metadata are damaged: {error}") from None
    if len(described) != len(outputs):
        return {}
    names = {
        output: _read_labels(path, files) for output, files in zip(outputs, described, strict=True)
    }
    return {output: found for output, found in names.items() if found}


def _find_label_files(path: Path) -> list[list[str]]:
    """Return the files with labels of each output that the metadata describe."""
    with open(path, "rb") as handle:
        data = memoryview(mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ))
    model = FlatBufferTable.root(data)
    buffers = list(model.tables(_MODEL_BUFFERS))
    for entry in model.tables(_MODEL_METADATA):
        number = entry.read_integer(_METADATA_BUFFER, "<I")
        if entry.text(_METADATA_NAME) != "TFLITE_METADATA" or number >= len(buffers):
            continue
        content = buffers[number].numbers(_BUFFER_DATA, "u1", _LIMIT)
        graph = next(FlatBufferTable.root(memoryview(content.tobytes())).tables(_META_GRAPHS), None)
        if graph is None:
            return []
        return [
            [
                file.text(_FILE_NAME)
                for file in tensor.tables(_TENSOR_FILES)
                if file.read_integer(_FILE_TYPE, "<b") in _LABELS
            ]
            for tensor in graph.tables(_GRAPH_OUTPUTS)
        ]
    return []


def _read_labels(path: Path, files: list[str]) -> tuple[str, ...]:
    """Return the lines of the first of these files in the archive behind a model; nothing if it
    cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open(files[0]) as handle:
            content = handle.read(_LIMIT + 1)
        lines = content.decode("utf-8").splitlines() if len(content) <= _LIMIT else []
    except (*_UNREADABLE, IndexError):
        return ()
    return tuple(line.strip() for line in lines)
