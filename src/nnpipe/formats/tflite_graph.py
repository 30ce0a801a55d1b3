"""The reader of the operators and constants in a TensorFlow Lite file.

Field numbers are those of ``tflite/schema/schema.fbs`` (schema version 3).
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.tensors import DTYPES, TensorSpec
from nnpipe.formats._errors import Damaged
from nnpipe.formats._flatbuffer import FlatBufferTable
from nnpipe.formats.tflite import _spec, read_tflite
from nnpipe.formats.tflite_options import options_of

_MODEL_OPERATOR_CODES, _MODEL_SUBGRAPHS, _MODEL_BUFFERS = 1, 2, 4
_GRAPH_TENSORS, _GRAPH_OPERATORS = 0, 3
_TENSOR_BUFFER, _TENSOR_NAME, _TENSOR_SIGNATURE = 2, 3, 7
_OPERATOR_CODE, _OPERATOR_INPUTS, _OPERATOR_OUTPUTS = 0, 1, 2
_CODE_DEPRECATED, _CODE_CUSTOM, _CODE_BUILTIN = 0, 1, 3
_BUFFER_DATA, _BUFFER_OFFSET, _BUFFER_SIZE = 0, 1, 2

_CUSTOM = 32
_LIST_LIMIT = 1 << 16


@dataclass(frozen=True)
class TFLiteNode:
    """An operator: the code of its kind, the name of a custom one, the indices of its tensors, and its options."""

    code: int
    custom: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TFLiteGraph:
    """The first graph of a file.

    Attributes
    ----------
    names
        Names of the tensors, in the order of their indices; unique in the graph.
    tensors
        Specification of each tensor by index.  Tensors of unknown types, or
        quantised in an unknown way, are missing.
    fixed
        Indices of the tensors without a shape signature, which would mark free axes.
    constants
        Offset in the file of the content of constant tensors, by index.
    nodes
        Operators in the order in which they are computed.
    inputs, outputs
        Indices of the input and output tensors by name.
    """

    names: tuple[str, ...]
    tensors: dict[int, TensorSpec]
    fixed: frozenset[int]
    constants: dict[int, int]
    nodes: tuple[TFLiteNode, ...]
    inputs: dict[str, int]
    outputs: dict[str, int]


def read_graph(path: Path) -> TFLiteGraph:
    """Return the first graph of a file.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or not TensorFlow Lite; the message names it.
    """
    file = read_tflite(path)  # this checks that everything exists that the graph refers to
    with open(path, "rb") as handle:
        data = memoryview(mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        model = FlatBufferTable.root(data)
        graph = next(model.tables(_MODEL_SUBGRAPHS))
        tables = list(graph.tables(_GRAPH_TENSORS))
        names = _unique([tensor.text(_TENSOR_NAME) for tensor in tables])
        tensors = {}
        for number, (name, table) in enumerate(zip(names, tables, strict=True)):
            try:
                tensors[number] = _spec(name, table)
            except SpecMismatch:  # its type or its quantisation is not known
                continue
        codes = [_code(table) for table in model.tables(_MODEL_OPERATOR_CODES)]
        nodes = tuple(
            TFLiteNode(
                *codes[table.integer(_OPERATOR_CODE, "<I")],
                tuple(int(n) for n in table.numbers(_OPERATOR_INPUTS, "<i4", _LIST_LIMIT) if n >= 0),
                tuple(int(n) for n in table.numbers(_OPERATOR_OUTPUTS, "<i4", _LIST_LIMIT) if n >= 0),
                options_of(table, codes[table.integer(_OPERATOR_CODE, "<I")][0]),
            )
            for table in graph.tables(_GRAPH_OPERATORS)
        )
        buffers = [_content(table) for table in model.tables(_MODEL_BUFFERS)]
        fixed = frozenset(n for n, table in enumerate(tables) if not table.numbers(_TENSOR_SIGNATURE, "<i4", 32).size)
        held = [buffers[table.integer(_TENSOR_BUFFER, "<I")] if buffers else (0, 0) for table in tables]
        constants = _constants(held, tensors, {n for node in nodes for n in node.outputs}, len(data))
    except (Damaged, SpecMismatch, IndexError) as error:
        raise ArtifactError(f"{path}: not a usable TensorFlow Lite model: {error}") from None
    return TFLiteGraph(names, tensors, fixed, constants, nodes, dict(file.inputs), dict(file.outputs))


def _constants(
    held: list[tuple[int, int]], tensors: dict[int, TensorSpec], computed: set[int], size: int
) -> dict[int, int]:
    """Return the offsets of the content of constant tensors by index.

    Only types that numpy has are included, and only the first of several tensors that share their content.
    """
    found: dict[int, int] = {}
    for number, (start, length) in enumerate(held):
        spec = tensors.get(number)
        if spec is None or not length or number in computed or start in found.values():
            continue
        if spec.dtype in DTYPES - {"string", "bfloat16"} and start + length <= size:
            count = math.prod(n or 0 for n in spec.shape)
            if count * np.dtype(spec.dtype).itemsize == length:  # false for sparse tensors and elements of 4 bits
                found[number] = start
    return found


def _code(table: FlatBufferTable) -> tuple[int, str]:
    """Return the code of an operator's kind, and the name of a custom operator or the empty string."""
    number = max(table.integer(_CODE_DEPRECATED, "<b"), table.integer(_CODE_BUILTIN, "<i"))
    return number, table.text(_CODE_CUSTOM) if number == _CUSTOM else ""


def _content(table: FlatBufferTable) -> tuple[int, int]:
    """Return the offset of a buffer's content in the file, and its length in bytes."""
    offset, size = table.integer(_BUFFER_OFFSET, "<Q"), table.integer(_BUFFER_SIZE, "<Q")
    if offset > 1:  # files over 2 GB hold their buffers after everything else
        return offset, size
    return table._vector(_BUFFER_DATA, 1)


def _unique(names: list[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for number, given in enumerate(names):
        name = given or f"tensor_{number}"
        while name in found:
            name = f"{name}_{number}"
        found[name] = None
    return tuple(found)
