"""The reader of the inputs and outputs of a TensorFlow Lite file.

Field numbers are those of ``tflite/schema/schema.fbs`` (schema version 3).
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nnpipe.core.errors import ArtifactError, SpecMismatch
from nnpipe.core.tensors import IOSpec, TensorSpec
from nnpipe.formats._flatbuffer import FlatBufferTable
from nnpipe.formats.file_types import Damaged, check_there, describe_file_type

IDENTIFIER = b"TFL3"
"""Bytes 4 to 7 of every TensorFlow Lite file."""

_DTYPES = (
    "float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 complex128 uint64 "
    "resource variant uint32 uint16 int4 bfloat16 int2 uint4"
).split()
_MODEL_VERSION, _MODEL_OPERATOR_CODES, _MODEL_SUBGRAPHS, _MODEL_BUFFERS, _MODEL_SIGNATURES = (
    0,
    1,
    2,
    4,
    7,
)
_GRAPH_TENSORS, _GRAPH_INPUTS, _GRAPH_OUTPUTS, _GRAPH_OPERATORS = 0, 1, 2, 3
_TENSOR_SHAPE, _TENSOR_TYPE, _TENSOR_BUFFER, _TENSOR_NAME, _TENSOR_QUANTIZATION = 0, 1, 2, 3, 4
_TENSOR_VARIABLE, _TENSOR_SIGNATURE = 5, 7
_OPERATOR_CODE, _OPERATOR_INPUTS, _OPERATOR_OUTPUTS, _OPERATOR_OPTIONS = 0, 1, 2, 4
_CODE_DEPRECATED, _CODE_BUILTIN, _CALL_ONCE_GRAPH = 0, 3, 0
_CALL_ONCE, _ASSIGN_VARIABLE = 129, 144
_QUANT_SCALE, _QUANT_ZERO, _QUANT_AXIS = 2, 3, 6
_SIGNATURE_INPUTS, _SIGNATURE_OUTPUTS, _SIGNATURE_KEY, _SIGNATURE_GRAPH = 0, 1, 2, 4
_MAP_NAME, _MAP_TENSOR = 0, 1

_RANK_LIMIT = 32
_SIGNATURE_LIMIT = 1 << 10
_LIST_LIMIT = 1 << 16  # inputs, outputs, or channels of a quantised tensor


@dataclass(frozen=True)
class TFLiteFile:
    """Inputs and outputs of a TensorFlow Lite file.

    Parameters
    ----------
    io
        Tensors in the order of the graph, with the names of the file's signature,
        or with their own names if there is no signature.
    inputs, outputs
        Index of each tensor in the file's first graph, by name.
    state_tensors, state_resources
        Whether the model keeps values from one run to the next: in tensors of its graphs, as
        recurrent layers do, and in resources that operators assign to.
    """

    io: IOSpec
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    state_tensors: bool = False
    state_resources: bool = False

    @property
    def keeps_state(self) -> bool:
        """Whether the model keeps anything from one run to the next."""
        return self.state_tensors or self.state_resources


def read_tflite(path: str | Path) -> TFLiteFile:
    """Return the inputs and outputs of a TensorFlow Lite file.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged, or not TensorFlow Lite; the message names it.
    """
    path = Path(path)
    check_there(path)
    with open(path, "rb") as handle:
        if handle.read(8)[4:] != IDENTIFIER:
            found = describe_file_type(path, "TFLiteModel") or " (the mark TFL3 is missing)"
            raise ArtifactError(f"{path}: not a TensorFlow Lite model{found}")
        # Not closed here: after an error, the traceback still holds views of it, and closing it
        # would raise.
        data = memoryview(mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        return _parse_file(data)
    except (Damaged, SpecMismatch) as error:
        raise ArtifactError(f"{path}: not a usable TensorFlow Lite model: {error}") from None


def _parse_file(data: memoryview) -> TFLiteFile:
    model = FlatBufferTable.root(data)
    version = model.read_integer(_MODEL_VERSION, "<I")
    if version != 3:
        raise Damaged(f"schema version {version}, only 3 is known")
    graph = next(model.tables(_MODEL_SUBGRAPHS), None)
    if graph is None:
        raise Damaged("it holds no graph")
    _check_references(model)
    tensors = list(graph.tables(_GRAPH_TENSORS))
    signature = _find_signature(model)
    inputs = _map_indices(graph, _GRAPH_INPUTS, tensors, signature, _SIGNATURE_INPUTS)
    outputs = _map_indices(graph, _GRAPH_OUTPUTS, tensors, signature, _SIGNATURE_OUTPUTS)
    io = IOSpec(
        tuple(_build_spec(name, tensors[number]) for name, number in inputs.items()),
        tuple(_build_spec(name, tensors[number]) for name, number in outputs.items()),
    )
    state_tensors = any(
        tensor.read_integer(_TENSOR_VARIABLE, "<b")
        for graph in model.tables(_MODEL_SUBGRAPHS)
        for tensor in graph.tables(_GRAPH_TENSORS)
    )
    return TFLiteFile(io, inputs, outputs, state_tensors, _has_resource_assignment(model))


def _has_resource_assignment(model: FlatBufferTable) -> bool:
    """Return whether a graph assigns to resources; those that only give the first values run
    once.
    """
    codes = [
        max(table.read_integer(_CODE_DEPRECATED, "<b"), table.read_integer(_CODE_BUILTIN, "<i"))
        for table in model.tables(_MODEL_OPERATOR_CODES)
    ]
    if _ASSIGN_VARIABLE not in codes:
        return False
    assigning, once = set(), set()
    for number, graph in enumerate(model.tables(_MODEL_SUBGRAPHS)):
        for operator in graph.tables(_GRAPH_OPERATORS):
            code = codes[operator.read_integer(_OPERATOR_CODE, "<I")]
            options = operator.table(_OPERATOR_OPTIONS)
            if code == _ASSIGN_VARIABLE:
                assigning.add(number)
            elif code == _CALL_ONCE and options is not None:
                once.add(options.read_integer(_CALL_ONCE_GRAPH, "<i"))
    return bool(assigning - once)


def _check_references(model: FlatBufferTable) -> None:
    """Check that all tensors, buffers and operators exist that the graphs refer to.

    The interpreter of TensorFlow Lite does not check all of these references.

    Raises
    ------
    Damaged
        If one does not exist, or if lists share so many bytes that reading them would take too
        long.
    """
    codes, buffers = model.count(_MODEL_OPERATOR_CODES), model.count(_MODEL_BUFFERS)
    # The format allows lists that share bytes; the budget keeps the time to read them in proportion
    # to the file's size.
    budget = 2 * len(model.data)
    for graph in model.tables(_MODEL_SUBGRAPHS):
        tensors = graph.count(_GRAPH_TENSORS)
        budget -= 8 * (tensors + graph.count(_GRAPH_OPERATORS) + 1)
        if budget < 0:
            raise Damaged("its lists overlap")
        if any(
            tensor.read_integer(_TENSOR_BUFFER, "<I") >= max(buffers, 1)
            for tensor in graph.tables(_GRAPH_TENSORS)
        ):
            raise Damaged("the buffer of a tensor does not exist")
        for operator in graph.tables(_GRAPH_OPERATORS):
            if operator.read_integer(_OPERATOR_CODE, "<I") >= codes:
                raise Damaged("an operator refers to an operator code that does not exist")
            for field in (_OPERATOR_INPUTS, _OPERATOR_OUTPUTS):
                numbers = operator.numbers(field, "<i4", _LIST_LIMIT)
                budget -= numbers.nbytes
                # -1 marks an optional input that is left out.
                if budget < 0 or (
                    numbers.size and not -1 <= numbers.min() <= numbers.max() < tensors
                ):
                    raise Damaged("an operator uses a tensor that does not exist")


def _find_signature(model: FlatBufferTable) -> FlatBufferTable | None:
    """Return a signature of the first graph, ``serving_default`` if it has that one; ``None`` if
    it has none.
    """
    count = model.count(_MODEL_SIGNATURES)
    if count > _SIGNATURE_LIMIT:
        raise Damaged(f"{count} signatures, more than the limit of {_SIGNATURE_LIMIT}")
    of_first = [
        s for s in model.tables(_MODEL_SIGNATURES) if s.read_integer(_SIGNATURE_GRAPH, "<I") == 0
    ]
    usual = [s for s in of_first if s.text(_SIGNATURE_KEY) == "serving_default"]
    return next(iter(usual or of_first), None)


def _map_indices(
    graph: FlatBufferTable,
    field: int,
    tensors: list[FlatBufferTable],
    signature: FlatBufferTable | None,
    signature_field: int,
) -> dict[str, int]:
    """Return the indices of the graph's inputs or outputs by name."""
    numbers = [int(number) for number in graph.numbers(field, "<i4", _LIST_LIMIT)]
    if not all(0 <= number < len(tensors) for number in numbers):
        raise Damaged("an input or output is a tensor that does not exist")
    if signature is not None:
        entries = list(signature.tables(signature_field))
        found = {entry.text(_MAP_NAME): entry.read_integer(_MAP_TENSOR, "<I") for entry in entries}
        if set(found.values()) == set(numbers) and len(found) == len(entries):
            return dict(sorted(found.items(), key=lambda pair: numbers.index(pair[1])))
    # Converters need not name tensors; an unnamed one is named after its index.
    found = {tensors[number].text(_TENSOR_NAME) or f"tensor_{number}": number for number in numbers}
    if len(found) < len(set(numbers)):
        raise Damaged("two inputs or outputs have the same name")
    return found


def _build_spec(name: str, tensor: FlatBufferTable) -> TensorSpec:
    code = tensor.read_integer(_TENSOR_TYPE, "<b")
    dtype = _DTYPES[code] if 0 <= code < len(_DTYPES) else f"type {code}"
    fixed = [int(n) for n in tensor.numbers(_TENSOR_SHAPE, "<i4", _RANK_LIMIT)]
    # If there is a shape signature, it has -1 for a free axis, for which the shape has 1.
    free = [int(n) for n in tensor.numbers(_TENSOR_SIGNATURE, "<i4", _RANK_LIMIT)]
    if free and len(free) != len(fixed):
        raise Damaged(f"tensor {name!r} has two shapes of different length")
    shape = tuple(None if n == -1 else n for n in free or fixed)
    scale, zero, axis = _read_quantization(name, tensor)
    return TensorSpec(name, shape, dtype, scale, zero, axis)


def _read_quantization(
    name: str, tensor: FlatBufferTable
) -> tuple[float | tuple[float, ...] | None, int | tuple[int, ...] | None, int | None]:
    quantisation = tensor.table(_TENSOR_QUANTIZATION)
    if quantisation is None:
        return None, None, None
    scales = [float(s) for s in quantisation.numbers(_QUANT_SCALE, "<f4", _LIST_LIMIT)]
    zeros = [int(z) for z in quantisation.numbers(_QUANT_ZERO, "<i8", _LIST_LIMIT)] or [0] * len(
        scales
    )
    # Converters write a scale of 0 for a tensor that is not quantised or is always zero.
    if not scales or scales == [0.0]:
        return None, None, None
    if len(scales) != len(zeros):
        raise Damaged(f"tensor {name!r} has {len(scales)} scales and {len(zeros)} zero points")
    if not all(math.isfinite(scale) for scale in scales):
        raise Damaged(f"tensor {name!r} has a scale that is not finite")
    if len(scales) == 1:
        return scales[0], zeros[0], None
    return tuple(scales), tuple(zeros), quantisation.read_integer(_QUANT_AXIS, "<i")
