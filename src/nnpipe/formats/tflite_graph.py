"""The reader of the operators and constants in a TensorFlow Lite file.

Field numbers are those of ``tflite/schema/schema.fbs`` (schema version 3).
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.tensors import DTYPES, TensorSpec
from nnpipe.formats._flatbuffer import FlatBufferTable
from nnpipe.formats.file_types import Damaged
from nnpipe.formats.tflite import TFLiteFile, _build_spec, read_tflite

# The options of TensorFlow Lite's operators that tell what they cost: strides, windows and fused
# activations.
#
# Field numbers are those of ``tflite/schema/schema.fbs`` (schema version 3).

_OPERATOR_OPTIONS = 4
_LARGEST = 1 << 20
# Field, format and default, by option and by operator code.
_Field = tuple[int, str, int]
_CONVOLUTION: dict[str, _Field] = {
    "stride_w": (1, "<i", 1),
    "stride_h": (2, "<i", 1),
    "activation": (3, "<b", 0),
    "dilation_w": (4, "<i", 1),
    "dilation_h": (5, "<i", 1),
}
_POOL: dict[str, _Field] = {
    "stride_w": (1, "<i", 1),
    "stride_h": (2, "<i", 1),
    "filter_w": (3, "<i", 1),
    "filter_h": (4, "<i", 1),
    "activation": (5, "<b", 0),
}
_CONVOLUTION_3D: dict[str, _Field] = {
    "stride_d": (1, "<i", 1),
    "stride_w": (2, "<i", 1),
    "stride_h": (3, "<i", 1),
    "activation": (4, "<b", 0),
    "dilation_d": (5, "<i", 1),
    "dilation_w": (6, "<i", 1),
    "dilation_h": (7, "<i", 1),
}
_ACTIVATION: dict[str, _Field] = {"activation": (0, "<b", 0)}
_FIELDS: Mapping[int, Mapping[str, _Field]] = {
    0: _ACTIVATION,  # ADD
    1: _POOL,  # AVERAGE_POOL_2D
    3: _CONVOLUTION,  # CONV_2D
    4: {  # DEPTHWISE_CONV_2D
        "stride_w": (1, "<i", 1),
        "stride_h": (2, "<i", 1),
        "activation": (4, "<b", 0),
        "dilation_w": (5, "<i", 1),
        "dilation_h": (6, "<i", 1),
    },
    9: _ACTIVATION,  # FULLY_CONNECTED
    12: _POOL,  # L2_POOL_2D
    17: _POOL,  # MAX_POOL_2D
    18: _ACTIVATION,  # MUL
    41: _ACTIVATION,  # SUB
    42: _ACTIVATION,  # DIV
    # TRANSPOSE_CONV
    67: {"stride_w": (1, "<i", 1), "stride_h": (2, "<i", 1), "activation": (3, "<b", 0)},
    126: {"adjoint_first": (0, "<b", 0), "adjoint_second": (1, "<b", 0)},  # BATCH_MATMUL
    132: _CONVOLUTION_3D,  # CONV_3D
    135: _CONVOLUTION_3D,  # CONV_3D_TRANSPOSE
}


def read_options(operator: FlatBufferTable, code: int) -> Mapping[str, int]:
    """Return the options of an operator that are known here, with the schema's defaults for those
    left out.

    Numbers that no network has, as in damaged files, are left out.
    """
    known = _FIELDS.get(code)
    table = operator.table(_OPERATOR_OPTIONS) if known else None
    if known is None or table is None:
        return {}
    found = {
        name: table.read_integer(field, form) or default
        for name, (field, form, default) in known.items()
    }
    return {name: value for name, value in found.items() if 0 <= value <= _LARGEST}


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
    """An operator: the code of its kind, the name of a custom one, the indices of its tensors,
    and its options.
    """

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
        names = _make_unique([tensor.text(_TENSOR_NAME) for tensor in tables])
        tensors = {}
        for number, (name, table) in enumerate(zip(names, tables, strict=True)):
            try:
                tensors[number] = _build_spec(name, table)
            except SpecMismatch:  # its type or its quantisation is not known
                continue
        codes = [_read_code(table) for table in model.tables(_MODEL_OPERATOR_CODES)]
        nodes = tuple(
            TFLiteNode(
                *codes[table.read_integer(_OPERATOR_CODE, "<I")],
                tuple(
                    int(n) for n in table.numbers(_OPERATOR_INPUTS, "<i4", _LIST_LIMIT) if n >= 0
                ),
                tuple(
                    int(n) for n in table.numbers(_OPERATOR_OUTPUTS, "<i4", _LIST_LIMIT) if n >= 0
                ),
                read_options(table, codes[table.read_integer(_OPERATOR_CODE, "<I")][0]),
            )
            for table in graph.tables(_GRAPH_OPERATORS)
        )
        buffers = [_find_content(table) for table in model.tables(_MODEL_BUFFERS)]
        fixed = frozenset(
            n
            for n, table in enumerate(tables)
            if not table.numbers(_TENSOR_SIGNATURE, "<i4", 32).size
        )
        held = [
            buffers[table.read_integer(_TENSOR_BUFFER, "<I")] if buffers else (0, 0)
            for table in tables
        ]
        constants = _find_constants(
            held, tensors, {n for node in nodes for n in node.outputs}, len(data)
        )
    except (Damaged, SpecMismatch, IndexError) as error:
        raise ArtifactError(f"{path}: not a usable TensorFlow Lite model: {error}") from None
    return TFLiteGraph(
        names, tensors, fixed, constants, nodes, dict(file.inputs), dict(file.outputs)
    )


def _find_constants(
    held: list[tuple[int, int]], tensors: dict[int, TensorSpec], computed: set[int], size: int
) -> dict[int, int]:
    """Return the offsets of the content of constant tensors by index.

    Only types that numpy has are included, and only the first of several tensors that share their
    content.
    """
    found: dict[int, int] = {}
    for number, (start, length) in enumerate(held):
        spec = tensors.get(number)
        if spec is None or not length or number in computed or start in found.values():
            continue
        if spec.dtype in DTYPES - {"string", "bfloat16"} and start + length <= size:
            count = math.prod(n or 0 for n in spec.shape)
            # false for sparse tensors and elements of 4 bits
            if count * np.dtype(spec.dtype).itemsize == length:
                found[number] = start
    return found


def _read_code(table: FlatBufferTable) -> tuple[int, str]:
    """Return the code of an operator's kind, and the name of a custom operator or the empty
    string.
    """
    number = max(
        table.read_integer(_CODE_DEPRECATED, "<b"), table.read_integer(_CODE_BUILTIN, "<i")
    )
    return number, table.text(_CODE_CUSTOM) if number == _CUSTOM else ""


def _find_content(table: FlatBufferTable) -> tuple[int, int]:
    """Return the offset of a buffer's content in the file, and its length in bytes."""
    offset, size = table.read_integer(_BUFFER_OFFSET, "<Q"), table.read_integer(_BUFFER_SIZE, "<Q")
    if offset > 1:  # files over 2 GB hold their buffers after everything else
        return offset, size
    return table._find_vector(_BUFFER_DATA, 1)


def _make_unique(names: list[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for number, given in enumerate(names):
        name = given or f"tensor_{number}"
        while name in found:
            name = f"{name}_{number}"
        found[name] = None
    return tuple(found)


_NAMES = (
    "ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE "
    "EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D "
    "LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 "
    "RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS "
    "SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER "
    "BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE "
    "UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT "
    "LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG "
    "PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE "
    "EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD "
    "REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV "
    "REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU "
    "SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE "
    "RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE "
    "NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM "
    "BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D "
    "IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL "
    "CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS "
    "RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE "
    "RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 "
    "UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD "
    "STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP "
    "STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE "
    "STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE "
    "STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE "
    "STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT "
    "STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT "
    "STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA "
    "STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER "
    "STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE "
    "STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE "
).split()


def get_operator_name(code: int) -> str:
    """Return the name of an operator's code, such as ``"CONV_2D"``.

    Examples
    --------
    >>> get_operator_name(3)
    'CONV_2D'
    """
    return _NAMES[code] if 0 <= code < len(_NAMES) else f"operator code {code}"


# The reader of everything in a TensorFlow Lite file that is needed to compute it: tensors,
# constants and operators.
#
# Field numbers are those of ``tflite/schema/schema.fbs`` (schema version 3).

_TENSOR_SHAPE, _TENSOR_VARIABLE, _TENSOR_SPARSITY = 0, 5, 6
_OPERATOR_CUSTOM_OPTIONS, _OPERATOR_INTERMEDIATES = 5, 8

_PROGRAM_LIST_LIMIT = 1 << 12
_ELEMENT_LIMIT = 1 << 28

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class ProgramTensor:
    """A tensor: its specification with the shape that the file states, and its content if it is
    constant.
    """

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
    """An operator: the code of its kind, a custom one's name, its tensors (-1 where one is left
    out), its options.

    Intermediate tensors have no values; their scales are those of what it computes inside.  The
    options of a custom operator are bytes whose form its author knows.
    """

    code: int
    custom: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: FlatBufferTable | None
    intermediates: tuple[int, ...] = ()
    custom_options: bytes = b""

    def read_option(self, field: int, form: str, default: int = 0) -> int:
        """Return an integer option by its number in the schema's table.

        Raises
        ------
        ArtifactError
            If the table lies outside of the file.
        """
        return self._read(field, default, lambda table: table.read_integer(field, form))

    def read_float_option(self, field: int, default: float = 0.0) -> float:
        """Return a float option by its number in the schema's table.

        Raises
        ------
        ArtifactError
            If the table lies outside of the file.
        """
        return self._read(field, default, lambda table: table.read_float(field))

    def _read(
        self, field: int, default: Number, read: Callable[[FlatBufferTable], Number]
    ) -> Number:
        try:
            return (
                read(self.options)
                if self.options is not None and self.options.has(field)
                else default
            )
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
        If the file is missing, damaged, or not TensorFlow Lite, or states sizes that no file has;
        the message names it.
    """
    file = read_tflite(path)  # this checks that everything exists that the graph refers to
    with open(path, "rb") as handle:
        data = memoryview(mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        model = FlatBufferTable.root(data)
        graph = next(model.tables(_MODEL_SUBGRAPHS))
        codes = [_read_code(table) for table in model.tables(_MODEL_OPERATOR_CODES)]
        buffers = [_find_content(table) for table in model.tables(_MODEL_BUFFERS)] or [(0, 0)]
        tensors = tuple(
            _read_tensor(table, buffers[table.read_integer(_TENSOR_BUFFER, "<I")], data)
            for table in graph.tables(_GRAPH_TENSORS)
        )
        operators = tuple(
            ProgramOperator(
                *codes[table.read_integer(_OPERATOR_CODE, "<I")],
                tuple(int(n) for n in table.numbers(_OPERATOR_INPUTS, "<i4", _PROGRAM_LIST_LIMIT)),
                tuple(int(n) for n in table.numbers(_OPERATOR_OUTPUTS, "<i4", _PROGRAM_LIST_LIMIT)),
                table.table(_OPERATOR_OPTIONS),
                tuple(
                    int(n)
                    for n in table.numbers(_OPERATOR_INTERMEDIATES, "<i4", _PROGRAM_LIST_LIMIT)
                ),
                table.numbers(_OPERATOR_CUSTOM_OPTIONS, "<u1", _PROGRAM_LIST_LIMIT).tobytes(),
            )
            for table in graph.tables(_GRAPH_OPERATORS)
        )
    except (Damaged, SpecMismatch, IndexError) as error:
        raise ArtifactError(f"{path}: not a usable TensorFlow Lite model: {error}") from None
    return TFLiteProgram(file, tensors, operators)


def _read_tensor(
    table: FlatBufferTable, held: tuple[int, int], data: memoryview
) -> ProgramTensor | None:
    name = table.text(_TENSOR_NAME) or "unnamed"
    try:
        spec = _build_spec(name, table)
    except SpecMismatch:  # its type or its quantisation is not known
        return None
    shape = tuple(int(n) for n in table.numbers(_TENSOR_SHAPE, "<i4", 32))
    if any(n < 0 for n in shape) or math.prod(shape) > _ELEMENT_LIMIT:
        raise Damaged(f"tensor {name!r} has the shape {shape}")
    start, length = held
    content = None
    if (
        length
        and table.table(_TENSOR_SPARSITY) is None
        and spec.dtype in DTYPES - {"string", "bfloat16"}
    ):
        kind = np.dtype(spec.dtype)
        if math.prod(shape) * kind.itemsize == length and start + length <= len(data):
            content = np.frombuffer(data, kind, math.prod(shape), start).reshape(shape)
    return ProgramTensor(spec, shape, content, bool(table.read_integer(_TENSOR_VARIABLE, "<b")))
