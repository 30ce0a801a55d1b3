"""The reader of everything in a TensorFlow Lite file that is needed to compute it: tensors, constants and operators.

Field numbers are those of ``tflite/schema/schema.fbs`` (schema version 3).
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.tensors import DTYPES, TensorSpec
from nnpipe.formats._errors import Damaged
from nnpipe.formats._flatbuffer import FlatBufferTable
from nnpipe.formats.tflite import TFLiteFile, _spec, read_tflite
from nnpipe.formats.tflite_graph import _code, _content

_MODEL_OPERATOR_CODES, _MODEL_SUBGRAPHS, _MODEL_BUFFERS = 1, 2, 4
_GRAPH_TENSORS, _GRAPH_OPERATORS = 0, 3
_TENSOR_SHAPE, _TENSOR_BUFFER, _TENSOR_NAME, _TENSOR_VARIABLE, _TENSOR_SPARSITY = 0, 2, 3, 5, 6
_OPERATOR_CODE, _OPERATOR_INPUTS, _OPERATOR_OUTPUTS, _OPERATOR_OPTIONS = 0, 1, 2, 4
_OPERATOR_CUSTOM_OPTIONS, _OPERATOR_INTERMEDIATES = 5, 8

_LIST_LIMIT = 1 << 12
_ELEMENT_LIMIT = 1 << 28

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class ProgramTensor:
    """A tensor: its specification with the shape that the file states, and its content if it is constant."""

    spec: TensorSpec
    shape: tuple[int, ...]
    content: npt.NDArray[np.generic] | None
    variable: bool

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ProgramOperator:
    """An operator: the code of its kind, a custom one's name, its tensors (-1 where one is left out), its options.

    Intermediate tensors have no values; their scales are those of what it computes inside.  The options of a custom
    operator are bytes whose form its author knows.
    """

    code: int
    custom: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: FlatBufferTable | None
    intermediates: tuple[int, ...] = ()
    custom_options: bytes = b""

    def option(self, field: int, form: str, default: int = 0) -> int:
        """Return an integer option by its number in the schema's table.

        Raises
        ------
        ArtifactError
            If the table lies outside of the file.
        """
        return self._read(field, default, lambda table: table.integer(field, form))

    def real_option(self, field: int, default: float = 0.0) -> float:
        """Return a float option by its number in the schema's table.

        Raises
        ------
        ArtifactError
            If the table lies outside of the file.
        """
        return self._read(field, default, lambda table: table.real(field))

    def _read(self, field: int, default: Number, read: Callable[[FlatBufferTable], Number]) -> Number:
        try:
            return read(self.options) if self.options is not None and self.options.has(field) else default
        except Damaged as error:
            raise ArtifactError(f"the options of an operator are damaged: {error}") from None


@dataclass(frozen=True)
class TFLiteProgram:
    """The first graph of a file.

    Attributes
    ----------
    file
        Its inputs and outputs.
    tensors
        By index; ``None`` for those of unknown types, or quantised in an unknown way.
    operators
        In the order in which they are computed.
    """

    file: TFLiteFile
    tensors: tuple[ProgramTensor | None, ...]
    operators: tuple[ProgramOperator, ...]


def read_program(path: Path) -> TFLiteProgram:
    """Return the first graph of a file with all that it says.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or not TensorFlow Lite, or states sizes that no file has; the message names it.
    """
    file = read_tflite(path)  # this checks that everything exists that the graph refers to
    with open(path, "rb") as handle:
        data = memoryview(mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        model = FlatBufferTable.root(data)
        graph = next(model.tables(_MODEL_SUBGRAPHS))
        codes = [_code(table) for table in model.tables(_MODEL_OPERATOR_CODES)]
        buffers = [_content(table) for table in model.tables(_MODEL_BUFFERS)] or [(0, 0)]
        tensors = tuple(
            _tensor(table, buffers[table.integer(_TENSOR_BUFFER, "<I")], data) for table in graph.tables(_GRAPH_TENSORS)
        )
        operators = tuple(
            ProgramOperator(
                *codes[table.integer(_OPERATOR_CODE, "<I")],
                tuple(int(n) for n in table.numbers(_OPERATOR_INPUTS, "<i4", _LIST_LIMIT)),
                tuple(int(n) for n in table.numbers(_OPERATOR_OUTPUTS, "<i4", _LIST_LIMIT)),
                table.table(_OPERATOR_OPTIONS),
                tuple(int(n) for n in table.numbers(_OPERATOR_INTERMEDIATES, "<i4", _LIST_LIMIT)),
                table.numbers(_OPERATOR_CUSTOM_OPTIONS, "<u1", _LIST_LIMIT).tobytes(),
            )
            for table in graph.tables(_GRAPH_OPERATORS)
        )
    except (Damaged, SpecMismatch, IndexError) as error:
        raise ArtifactError(f"{path}: not a usable TensorFlow Lite model: {error}") from None
    return TFLiteProgram(file, tensors, operators)


def _tensor(table: FlatBufferTable, held: tuple[int, int], data: memoryview) -> ProgramTensor | None:
    name = table.text(_TENSOR_NAME) or "unnamed"
    try:
        spec = _spec(name, table)
    except SpecMismatch:  # its type or its quantisation is not known
        return None
    shape = tuple(int(n) for n in table.numbers(_TENSOR_SHAPE, "<i4", 32))
    if any(n < 0 for n in shape) or math.prod(shape) > _ELEMENT_LIMIT:
        raise Damaged(f"tensor {name!r} has the shape {shape}")
    start, length = held
    content = None
    if length and table.table(_TENSOR_SPARSITY) is None and spec.dtype in DTYPES - {"string", "bfloat16"}:
        kind = np.dtype(spec.dtype)
        if math.prod(shape) * kind.itemsize == length and start + length <= len(data):
            content = np.frombuffer(data, kind, math.prod(shape), start).reshape(shape)
    return ProgramTensor(spec, shape, content, bool(table.integer(_TENSOR_VARIABLE, "<b")))
