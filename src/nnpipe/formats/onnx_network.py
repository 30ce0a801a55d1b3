"""The reader of the network in an ONNX file, which needs numpy only: nodes, constants, inputs and outputs.

Field numbers are those of ``onnx/onnx.proto3``.  A file may come from an
untrusted source, so memory is allocated only for bytes that the file holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.formats._errors import Damaged
from nnpipe.formats._mapped import mapped_onnx
from nnpipe.formats._protobuf import Span, fields, integers, spans, text
from nnpipe.formats.onnx import read_onnx
from nnpipe.formats.onnx_nodes import ONNXNode, read_node

_TYPES = {
    1: "<f4", 2: "u1", 3: "i1", 4: "<u2", 5: "<i2", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8",
    12: "<u4", 13: "<u8",
}  # fmt: skip
_BFLOAT16 = 16
_DIMENSIONS_LIMIT = 32
_DIMS, _TYPE, _FLOATS, _INT32S, _INT64S, _NAME, _RAW, _DOUBLES, _UINT64S, _EXTERNAL, _LOCATION = (
    1, 2, 4, 5, 7, 8, 9, 10, 11, 13, 14,
)  # fmt: skip


@dataclass(frozen=True)
class ONNXNetwork:
    """The main graph of an ONNX model.

    Attributes
    ----------
    inputs, outputs
        Element type and shape by name, ``None`` for each that is not stated.  Constants are not among the inputs.
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
        If the file is missing, damaged or not ONNX, or if weights are missing; the message names it.
    """
    path = Path(path)
    file = read_onnx(path)
    file.check_external()
    with mapped_onnx(path) as data:
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
        for opset in spans(self.data, whole, 8):
            found: dict[int, Any] = {1: "", 2: 1}
            for number, value in fields(self.data, opset):
                found[number] = text(self.data, value) if number == 1 else value
            if found[1] in ("", "ai.onnx") and isinstance(found[2], int):
                self.opset = found[2]
        for graph in spans(self.data, whole, 7):
            for number, value in fields(self.data, graph):
                if isinstance(value, int):
                    continue
                if number == 1:
                    self.nodes.append(read_node(self.data, value, lambda part: self.tensor(part)[1], lambda part: None))
                elif number == 5:
                    name, array = self.tensor(value)
                    self.constants[name] = array

    def tensor(self, span: Span) -> tuple[str, np.ndarray]:
        """Return the name and the content of a tensor; raise :class:`Damaged` unless the file holds every element."""
        name, kind, dims, raw = "", 0, [], None
        pieces: dict[int, list[Any]] = {_FLOATS: [], _INT32S: [], _INT64S: [], _DOUBLES: [], _UINT64S: []}
        elsewhere: dict[str, str] = {}
        outside = False
        for number, value in fields(self.data, span):
            if number == _NAME:
                name = text(self.data, value)
            elif number == _TYPE and isinstance(value, int):
                kind = value
            elif number == _DIMS:
                dims += integers(self.data, value)
            elif number == _RAW and isinstance(value, tuple):
                raw = bytes(self.data[value[0] : value[1]])
            elif number in pieces:
                pieces[number].append(value)
            elif number == _LOCATION:
                outside = value == 1
            elif number == _EXTERNAL and isinstance(value, tuple):
                entry = dict.fromkeys((1, 2), "") | {n: text(self.data, v) for n, v in fields(self.data, value)}
                elsewhere[entry[1]] = entry[2]
        if len(dims) > _DIMENSIONS_LIMIT or any(extent < 0 for extent in dims):
            raise Damaged(f"the tensor {name[:60]!r} has an impossible shape")
        if kind not in _TYPES and kind != _BFLOAT16:
            raise Damaged(f"the elements of the tensor {name[:60]!r} are of an unsupported type")
        dtype, count = np.dtype(_TYPES.get(kind, "<u2")), math.prod(dims)
        if outside:
            raw = self.outside(elsewhere, count * dtype.itemsize)
        flat = np.frombuffer(raw, dtype) if raw is not None and len(raw) == count * dtype.itemsize else None
        if flat is None and raw is None:
            flat = self.plain(pieces, dtype)
        if flat is None or flat.size != count:
            raise Damaged(f"the number of values in the tensor {name[:60]!r} does not fit its shape {tuple(dims)}")
        if kind == _BFLOAT16:
            flat = (flat.astype("<u4") << 16).view("<f4")
        return name, np.array(flat.reshape(dims))

    def outside(self, place: Mapping[str, str], size: int) -> bytes:
        """Return ``size`` bytes of an external file, whose location ``check_external`` has checked."""
        offset = int(place.get("offset", "0") or 0)
        length = int(place.get("length", "0") or 0) or size
        path = self.folder / place.get("location", "")
        if length != size or offset < 0 or offset + size > path.stat().st_size:
            raise Damaged(f"{place.get('location', '')!r} does not hold the bytes that the model refers to")
        with open(path, "rb") as handle:
            handle.seek(offset)
            return handle.read(size)

    def plain(self, pieces: Mapping[int, list[Any]], dtype: np.dtype[Any]) -> np.ndarray:
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
        numbers = [number for value in pieces[field] for number in integers(self.data, value)]
        if dtype.str in ("<f2", "<u2"):
            return np.array([number & 0xFFFF for number in numbers], "<u2").view(dtype)
        if field == _UINT64S:
            numbers = [number % (1 << 64) for number in numbers]
        try:
            return np.array(numbers, dtype)
        except OverflowError:
            raise Damaged("a number does not fit its element type") from None
