"""The operations of an ONNX file, read with numpy alone: what each is, and what it takes.

Field numbers are those of ``onnx/onnx.proto3``.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nnpipe.core.errors import ArtifactError
from nnpipe.formats._damaged import Damaged
from nnpipe.formats._protobuf import Span, fields, integers, spans, text

_GRAPH, _FUNCTIONS, _FUNCTION_NODE = 7, 25, 7
_NODE, _INITIALIZER = 1, 5
_DEPTH_LIMIT = 32  # graphs within graphs
_FLOATS = {1: "<f4", 10: "<f2", 11: "<f8"}
_PASSED_ON = ("Identity", "Cast", "CastLike")


@dataclass(frozen=True)
class Node:
    """One operation.

    Parameters
    ----------
    kind, name
        The operator, and what the file calls this use of it.
    inputs, outputs
        Names of tensors; empty where one is left out.
    attributes
        Those that are a number, a text, or a list of integers; of others only the name, with ``None``.
    """

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    @property
    def title(self) -> str:
        """Its name, or else what it gives."""
        return self.name or next(filter(None, self.outputs), "")

    def takes(self, place: int) -> str:
        """Name the input at a place; empty if it is left out."""
        return self.inputs[place] if place < len(self.inputs) else ""


@dataclass
class Nodes:
    """All operations of a file, those of graphs within nodes and of functions too.

    Attributes
    ----------
    all
        In the order of the file.
    producers
        By the tensor that they give.
    numbers
        Constant tensors of one float, by name.
    constants
        Names of all constant tensors.
    """

    all: list[Node] = field(default_factory=list)
    producers: dict[str, Node] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)

    def number(self, name: str) -> float | None:
        """Give the one float that a tensor is known to hold, looking through what merely passes it on."""
        for _ in range(_DEPTH_LIMIT):
            node = self.producers.get(name)
            if name in self.numbers or node is None or node.kind not in _PASSED_ON:
                break
            name = node.takes(0)
        return self.numbers.get(name)

    def origin(self, name: str) -> str:
        """Name the operator that computes a tensor, looking through what merely passes it on; empty for inputs."""
        for _ in range(_DEPTH_LIMIT):
            node = self.producers.get(name)
            if node is None or node.kind not in _PASSED_ON:
                return node.kind if node else ""
            name = node.takes(0)
        return ""


def read_nodes(path: str | Path) -> Nodes:
    """Read the operations of a file that is known to be there.

    Raises
    ------
    ArtifactError
        If it is damaged; the message names it.
    """
    found = Nodes()
    try:
        with open(path, "rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
            data = memoryview(content)
            try:
                reader = _Reader(data, found)
                for graph in spans(data, (0, len(data)), _GRAPH):
                    reader.graph(graph, 0)
                for function in spans(data, (0, len(data)), _FUNCTIONS):
                    for node in spans(data, function, _FUNCTION_NODE):
                        reader.node(node, 1)
            finally:
                data.release()
    except (Damaged, ValueError, OSError) as error:
        raise ArtifactError(f"{path}: not a usable ONNX model: {error}") from None
    return found


@dataclass
class _Reader:
    data: memoryview
    found: Nodes

    def graph(self, span: Span, depth: int) -> None:
        if depth > _DEPTH_LIMIT:
            raise Damaged("graphs are nested too deeply")
        for number, value in self.messages(span):
            if number == _NODE:
                self.node(value, depth)
            elif number == _INITIALIZER:
                self.constant(value)

    def node(self, span: Span, depth: int) -> None:
        texts: dict[int, list[str]] = {1: [], 2: [], 3: [], 4: []}
        attributes: dict[str, Any] = {}
        tensor: Span | None = None
        for number, value in self.messages(span):
            if number in texts:
                texts[number].append(text(self.data, value))
            elif number == 5:
                name, content, held = self.attribute(value, depth)
                attributes[name] = content
                tensor = held or tensor
        node = Node("".join(texts[4]), "".join(texts[3]), tuple(texts[1]), tuple(texts[2]), attributes)
        self.found.all.append(node)
        self.found.producers.update(dict.fromkeys(filter(None, node.outputs), node))
        if node.kind == "Constant" and node.outputs:
            self.found.constants.add(node.outputs[0])
            if isinstance(attributes.get("value_float"), float):
                self.found.numbers[node.outputs[0]] = attributes["value_float"]
            elif tensor is not None:
                self.constant(tensor, node.outputs[0])

    def attribute(self, span: Span, depth: int) -> tuple[str, Any, Span | None]:
        name, value, tensor, listed = "", None, None, []
        for number, content in fields(self.data, span):
            if number == 1:
                name = text(self.data, content)
            elif number == 2 and isinstance(content, tuple) and content[1] - content[0] == 4:
                value = struct.unpack("<f", self.data[content[0] : content[1]])[0]
            elif number == 3:
                value = integers(self.data, content)[-1]
            elif number == 4 and isinstance(content, tuple):
                value = bytes(self.data[content[0] : content[1]]).decode("utf-8", "replace")
            elif number == 5 and isinstance(content, tuple):
                tensor = content
            elif number == 8:
                listed += integers(self.data, content)
            elif number in (6, 11) and isinstance(content, tuple):
                self.graph(content, depth + 1)
        return name, tuple(listed) if listed else value, tensor

    def constant(self, span: Span, name: str = "") -> None:
        """Note a constant tensor, and its number if it is a single float."""
        kind, size, stored = 0, 1, b""
        for number, value in fields(self.data, span):
            if number == 1:
                for length in integers(self.data, value):
                    size *= length
            elif number == 2 and isinstance(value, int):
                kind = value
            elif number == 8 and not name:
                name = text(self.data, value)
            elif number in (4, 9, 10) and isinstance(value, tuple) and value[1] - value[0] <= 8:
                stored = bytes(self.data[value[0] : value[1]])
        self.found.constants.add(name)
        if size == 1 and kind in _FLOATS and len(stored) == np.dtype(_FLOATS[kind]).itemsize:
            self.found.numbers[name] = float(np.frombuffer(stored, _FLOATS[kind])[0])

    def messages(self, span: Span) -> Iterator[tuple[int, Span]]:
        """Fields that hold messages or texts; integers are passed over."""
        for number, value in fields(self.data, span):
            if not isinstance(value, int):
                yield number, value
