"""The reader of the network in an ONNX file, which needs numpy only: nodes, constants, inputs and
outputs.

Field numbers are those of ``onnx/onnx.proto3``.  A file may come from an
untrusted source, so memory is allocated only for bytes that the file holds.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.formats._protobuf import (
    Span,
    iterate_fields,
    iterate_spans,
    map_onnx_file,
    read_integer,
    read_integers,
    read_text,
)
from nnpipe.formats.file_types import Damaged
from nnpipe.formats.onnx import DTYPES, iterate_messages, read_onnx

# The reader of the nodes of an ONNX file: operators with their inputs, outputs and attributes.
#
# Field numbers are those of ``onnx/onnx.proto3``.

_GRAPH, _FUNCTIONS, _FUNCTION_NODE = 7, 25, 7
_NODE, _ATTRIBUTE, _DOMAIN = 1, 5, 7
_DEPTH_LIMIT = 32  # levels of nested graphs

Within = Callable[[Span], Any]
"""A function that returns the content of an attribute, given the span of the content."""


@dataclass(frozen=True)
class ONNXNode:
    """A node of an ONNX graph.

    Parameters
    ----------
    kind
        The operator; its domain and ``::`` come first if it is not one of ONNX's own.
    name
        The node's name in the file; it may be empty.
    inputs, outputs
        Names of tensors; an empty name stands for an input or output that is left out.
    attributes
        Values of the attributes that are a number, a string or a list of numbers; an empty tuple
        for a list of strings, and ``None`` for the others.
    """

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    @property
    def title(self) -> str:
        """The node's name, or the name of its first output if it has none."""
        return self.name or next(filter(None, self.outputs), "")

    def get_input(self, place: int) -> str:
        """Return the name of the input at an index, or the empty string if it is left out."""
        return self.inputs[place] if place < len(self.inputs) else ""


def read_nodes(path: str | Path) -> list[ONNXNode]:
    """Return the nodes of an ONNX file, including those of graphs inside nodes and of functions.

    Raises
    ------
    ArtifactError
        If the file is missing or damaged; the message names it.
    """
    found: list[ONNXNode] = []
    with map_onnx_file(path) as data:
        reader = _NodesReader(data, found)
        for graph in iterate_spans(data, (0, len(data)), _GRAPH):
            reader.graph(graph, 0)
        for function in iterate_spans(data, (0, len(data)), _FUNCTIONS):
            for node in iterate_spans(data, function, _FUNCTION_NODE):
                reader.node(node, 1)
    return found


@dataclass
class _NodesReader:
    data: memoryview
    found: list[ONNXNode]

    def graph(self, span: Span, depth: int) -> None:
        if depth > _DEPTH_LIMIT:
            raise Damaged("graphs are nested too deeply")
        for node in iterate_spans(self.data, span, _NODE):
            self.node(node, depth)

    def node(self, span: Span, depth: int) -> None:
        self.found.append(
            read_node(
                self.data,
                span,
                tensor=lambda part: None,
                graph=lambda part: self.graph(part, depth + 1),
            )
        )


def read_node(data: memoryview, span: Span, tensor: Within, graph: Within) -> ONNXNode:
    """Return a node, read from a NodeProto.

    ``tensor`` returns the value of an attribute that is a tensor; ``graph`` is called for each
    graph in an attribute.
    """
    texts: dict[int, list[str]] = {1: [], 2: [], 3: [], 4: [], _DOMAIN: []}
    attributes: dict[str, Any] = {}
    for number, value in iterate_fields(data, span):
        if number in texts:
            texts[number].append(read_text(data, value))
        elif number == _ATTRIBUTE and isinstance(value, tuple):
            name, content = _read_attribute(data, value, tensor, graph)
            attributes[name] = content
    names = {number: "".join(parts) for number, parts in texts.items()}
    kind = names[4] if names[_DOMAIN] in ("", "ai.onnx") else f"{names[_DOMAIN]}::{names[4]}"
    return ONNXNode(kind, names[3], tuple(texts[1]), tuple(texts[2]), attributes)


def _read_attribute(data: memoryview, span: Span, tensor: Within, graph: Within) -> tuple[str, Any]:
    name, listed = "", False
    value: Any = None
    numbers: list[float] = []
    for number, content in iterate_fields(data, span):
        if number == 1:
            name = read_text(data, content)
        elif number == 20:
            # a list of floats, integers or strings, which may be empty
            listed = content in (6, 7, 8)
        elif number == 3:
            value = read_integer(data, content)
        elif number == 8:
            numbers += read_integers(data, content)
        elif not isinstance(content, tuple):
            continue
        elif number == 2:
            value = _read_floats(data, content)[0]
        elif number == 4:
            value = bytes(data[content[0] : content[1]]).decode("utf-8", "replace")
        elif number == 5:
            value = tensor(content)
        elif number == 7:
            numbers += _read_floats(data, content)
        elif number in (6, 11):
            graph(content)
    return name, tuple(numbers) if numbers or listed else value


def _read_floats(data: memoryview, span: Span) -> list[float]:
    size = span[1] - span[0]
    if size % 4 or not size:
        raise Damaged("a list of floats is cut off")
    return list(struct.unpack(f"<{size // 4}f", data[span[0] : span[1]]))


_TYPES = {
    1: "<f4",
    2: "u1",
    3: "i1",
    4: "<u2",
    5: "<i2",
    6: "<i4",
    7: "<i8",
    9: "?",
    10: "<f2",
    11: "<f8",
    12: "<u4",
    13: "<u8",
}
_BFLOAT16 = 16
_DIMENSIONS_LIMIT = 32
_DIMS, _TYPE, _FLOATS, _INT32S, _INT64S, _NAME, _RAW, _DOUBLES, _UINT64S, _EXTERNAL, _LOCATION = (
    1,
    2,
    4,
    5,
    7,
    8,
    9,
    10,
    11,
    13,
    14,
)


@dataclass(frozen=True)
class ONNXNetwork:
    """The main graph of an ONNX model.

    Attributes
    ----------
    inputs, outputs
        Element type and shape by name, ``None`` for each that is not stated.  Constants are not
        among the inputs.
    constants
        Arrays by name.
    nodes
        The nodes, in the order of the file.  Attributes that are tensors are arrays.
    opset
        Version of ONNX's own operators.
    """

    inputs: Mapping[str, tuple[str | None, tuple[int | None, ...] | None]]
    outputs: Mapping[str, tuple[str | None, tuple[int | None, ...] | None]]
    constants: Mapping[str, np.ndarray]
    nodes: tuple[ONNXNode, ...]
    opset: int


def read_onnx_network(path: str | Path) -> ONNXNetwork:
    """Return the network in an ONNX file, with the weights in its external files.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged or not ONNX, or if weights are missing; the message names
        it.
    """
    path = Path(path)
    file = read_onnx(path)
    file.check_external()
    with map_onnx_file(path) as data:
        reader = _Reader(data, path.resolve().parent)
        reader.model()
    inputs = {name: value for name, value in file.inputs.items() if name not in reader.constants}
    return ONNXNetwork(inputs, file.outputs, reader.constants, tuple(reader.nodes), reader.opset)


class _Reader:
    def __init__(self, data: memoryview, folder: Path) -> None:
        self.data, self.folder = data, folder
        self.nodes: list[ONNXNode] = []
        self.constants: dict[str, np.ndarray] = {}
        self.opset = 1

    def model(self) -> None:
        whole = (0, len(self.data))
        for opset in iterate_spans(self.data, whole, 8):
            found: dict[int, Any] = {1: "", 2: 1}
            for number, value in iterate_fields(self.data, opset):
                found[number] = read_text(self.data, value) if number == 1 else value
            if found[1] in ("", "ai.onnx") and isinstance(found[2], int):
                self.opset = found[2]
        for graph in iterate_spans(self.data, whole, 7):
            for number, value in iterate_fields(self.data, graph):
                if isinstance(value, int):
                    continue
                if number == 1:
                    self.nodes.append(
                        read_node(
                            self.data, value, lambda part: self.tensor(part)[1], lambda part: None
                        )
                    )
                elif number == 5:
                    name, array = self.tensor(value)
                    self.constants[name] = array

    def tensor(self, span: Span) -> tuple[str, np.ndarray]:
        """Return the name and the content of a tensor; raise :class:`Damaged` unless the file
        holds every element.
        """
        name, kind, dims, raw = "", 0, [], None
        pieces: dict[int, list[Any]] = {
            _FLOATS: [],
            _INT32S: [],
            _INT64S: [],
            _DOUBLES: [],
            _UINT64S: [],
        }
        elsewhere: dict[str, str] = {}
        outside = False
        for number, value in iterate_fields(self.data, span):
            if number == _NAME:
                name = read_text(self.data, value)
            elif number == _TYPE and isinstance(value, int):
                kind = value
            elif number == _DIMS:
                dims += read_integers(self.data, value)
            elif number == _RAW and isinstance(value, tuple):
                raw = bytes(self.data[value[0] : value[1]])
            elif number in pieces:
                pieces[number].append(value)
            elif number == _LOCATION:
                outside = value == 1
            elif number == _EXTERNAL and isinstance(value, tuple):
                entry = dict.fromkeys((1, 2), "") | {
                    n: read_text(self.data, v) for n, v in iterate_fields(self.data, value)
                }
                elsewhere[entry[1]] = entry[2]
        if len(dims) > _DIMENSIONS_LIMIT or any(extent < 0 for extent in dims):
            raise Damaged(f"the tensor {name[:60]!r} has an impossible shape")
        if kind not in _TYPES and kind != _BFLOAT16:
            raise Damaged(f"the elements of the tensor {name[:60]!r} are of an unsupported type")
        dtype, count = np.dtype(_TYPES.get(kind, "<u2")), math.prod(dims)
        if outside:
            raw = self.outside(elsewhere, count * dtype.itemsize)
        flat = (
            np.frombuffer(raw, dtype)
            if raw is not None and len(raw) == count * dtype.itemsize
            else None
        )
        if flat is None and raw is None:
            flat = self.decode_elements(pieces, dtype)
        if flat is None or flat.size != count:
            raise Damaged(
                f"the number of values in the tensor {name[:60]!r} does not fit its shape "
                f"{tuple(dims)}"
            )
        if kind == _BFLOAT16:
            flat = (flat.astype("<u4") << 16).view("<f4")
        return name, np.array(flat.reshape(dims))

    def outside(self, place: Mapping[str, str], size: int) -> bytes:
        """Return ``size`` bytes of an external file, whose location ``check_external`` has
        checked.
        """
        offset = int(place.get("offset", "0") or 0)
        length = int(place.get("length", "0") or 0) or size
        path = self.folder / place.get("location", "")
        if length != size or offset < 0 or offset + size > path.stat().st_size:
            raise Damaged(
                f"{place.get('location', '')!r} does not hold the bytes that the model refers to"
            )
        with open(path, "rb") as handle:
            handle.seek(offset)
            return handle.read(size)

    def decode_elements(self, pieces: Mapping[int, list[Any]], dtype: np.dtype[Any]) -> np.ndarray:
        """Return the elements of a tensor that are stored in the field of their type.

        Integers below 64 bits and floats of 16 bits are stored in the field of int32 numbers.
        """
        if dtype.kind == "f" and dtype.itemsize >= 4:
            fixed = "<f4" if dtype.itemsize == 4 else "<f8"
            held = [
                self.data[v[0] : v[1]]
                for v in pieces[_FLOATS if dtype.itemsize == 4 else _DOUBLES]
                if v and type(v) is tuple
            ]
            return np.frombuffer(b"".join(held), fixed)
        field = _INT32S
        if dtype.itemsize == 8:
            field = _INT64S if dtype.kind == "i" else _UINT64S
        elif dtype.str == "<u4":
            field = _UINT64S
        numbers = [number for value in pieces[field] for number in read_integers(self.data, value)]
        if dtype.str in ("<f2", "<u2"):
            return np.array([number & 0xFFFF for number in numbers], "<u2").view(dtype)
        if field == _UINT64S:
            numbers = [number % (1 << 64) for number in numbers]
        try:
            return np.array(numbers, dtype)
        except OverflowError:
            raise Damaged("a number does not fit its element type") from None


# Counts of the operators and weights in the main graph of an ONNX file, which need no weight to be
# read.
#
# Field numbers are those of ``onnx/onnx.proto3``.

_INITIALIZER, _OP_TYPE = 5, 4
_TENSOR = 5
_DATA_TYPE = 2


@dataclass
class Contents:
    """The number of operators and weights in a model.

    Attributes
    ----------
    operations
        Number of operators of each kind, without ``Constant``.
    tensors
        Number of weights.
    numbers
        Number of elements of all weights of each element type.
    matrices
        The same for constants that are long along two axes or more, so without biases and scales.
    """

    operations: Counter[str] = field(default_factory=Counter)
    tensors: int = 0
    numbers: Counter[str] = field(default_factory=Counter)
    matrices: Counter[str] = field(default_factory=Counter)

    def count(self, dtype: str, extents: Sequence[int]) -> None:
        """Add a weight with these lengths of its axes."""
        self.tensors += 1
        self.numbers[dtype] += math.prod(extents)
        self.count_matrix(dtype, extents)

    def count_matrix(self, dtype: str, extents: Sequence[int]) -> None:
        """Add a constant to the matrices if it is long along two axes or more."""
        if sum(length > 1 for length in extents) > 1:
            self.matrices[dtype] += math.prod(extents)


def read_contents(path: str | Path) -> Contents:
    """Return the number of operators and weights in the main graph of an ONNX file.

    Raises
    ------
    ArtifactError
        If the file is missing or damaged; the message names it.
    """
    found = Contents()
    with map_onnx_file(path) as data:
        for graph in iterate_spans(data, (0, len(data)), _GRAPH):
            _count(data, graph, found)
    return found


def _count(data: memoryview, graph: Span, found: Contents) -> None:
    for number, span in iterate_messages(data, graph):
        if number == _NODE:
            words = {4: "", 7: ""} | {
                n: read_text(data, v)
                for n, v in iterate_messages(data, span)
                if n in (_OP_TYPE, _DOMAIN)
            }
            kind, domain = words[_OP_TYPE], words[_DOMAIN]
            if kind != "Constant":
                found.operations[kind if domain in ("", "ai.onnx") else f"{domain}.{kind}"] += 1
                continue
            for attribute in iterate_spans(data, span, _ATTRIBUTE):
                for tensor in iterate_spans(data, attribute, _TENSOR):
                    dtype, extents = _read_tensor_type(data, tensor)
                    found.count_matrix(dtype, extents)
        elif number == _INITIALIZER:
            dtype, extents = _read_tensor_type(data, span)
            if dtype != "string":
                found.count(dtype, extents)


def _read_tensor_type(data: memoryview, span: Span) -> tuple[str, list[int]]:
    """Return the element type and the lengths of the axes of a constant."""
    extents, dtype = [], ""
    for part, value in iterate_fields(data, span):
        if part == _DIMS:
            extents += read_integers(data, value)
        elif part == _DATA_TYPE and isinstance(value, int):
            dtype = DTYPES.get(value, f"type {value}")
    return dtype, extents
