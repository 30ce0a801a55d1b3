"""The reader of the nodes of an ONNX file: operators with their inputs, outputs and attributes.

Field numbers are those of ``onnx/onnx.proto3``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.formats._errors import Damaged
from nnpipe.formats._mapped import mapped_onnx
from nnpipe.formats._protobuf import Span, fields, integer, integers, spans, text

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
        Values of the attributes that are a number, a string or a list of numbers; an empty tuple for a list of
        strings, and ``None`` for the others.
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

    def takes(self, place: int) -> str:
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
    with mapped_onnx(path) as data:
        reader = _Reader(data, found)
        for graph in spans(data, (0, len(data)), _GRAPH):
            reader.graph(graph, 0)
        for function in spans(data, (0, len(data)), _FUNCTIONS):
            for node in spans(data, function, _FUNCTION_NODE):
                reader.node(node, 1)
    return found


@dataclass
class _Reader:
    data: memoryview
    found: list[ONNXNode]

    def graph(self, span: Span, depth: int) -> None:
        if depth > _DEPTH_LIMIT:
            raise Damaged("graphs are nested too deeply")
        for node in spans(self.data, span, _NODE):
            self.node(node, depth)

    def node(self, span: Span, depth: int) -> None:
        self.found.append(
            read_node(self.data, span, tensor=lambda part: None, graph=lambda part: self.graph(part, depth + 1))
        )


def read_node(data: memoryview, span: Span, tensor: Within, graph: Within) -> ONNXNode:
    """Return a node, read from a NodeProto.

    ``tensor`` returns the value of an attribute that is a tensor; ``graph`` is called for each graph in an attribute.
    """
    texts: dict[int, list[str]] = {1: [], 2: [], 3: [], 4: [], _DOMAIN: []}
    attributes: dict[str, Any] = {}
    for number, value in fields(data, span):
        if number in texts:
            texts[number].append(text(data, value))
        elif number == _ATTRIBUTE and isinstance(value, tuple):
            name, content = _attribute(data, value, tensor, graph)
            attributes[name] = content
    names = {number: "".join(parts) for number, parts in texts.items()}
    kind = names[4] if names[_DOMAIN] in ("", "ai.onnx") else f"{names[_DOMAIN]}::{names[4]}"
    return ONNXNode(kind, names[3], tuple(texts[1]), tuple(texts[2]), attributes)


def _attribute(data: memoryview, span: Span, tensor: Within, graph: Within) -> tuple[str, Any]:
    name, listed = "", False
    value: Any = None
    numbers: list[float] = []
    for number, content in fields(data, span):
        if number == 1:
            name = text(data, content)
        elif number == 20:
            listed = content in (6, 7, 8)  # a list of floats, integers or strings, which may be empty
        elif number == 3:
            value = integer(data, content)
        elif number == 8:
            numbers += integers(data, content)
        elif not isinstance(content, tuple):
            continue
        elif number == 2:
            value = _floats(data, content)[0]
        elif number == 4:
            value = bytes(data[content[0] : content[1]]).decode("utf-8", "replace")
        elif number == 5:
            value = tensor(content)
        elif number == 7:
            numbers += _floats(data, content)
        elif number in (6, 11):
            graph(content)
    return name, tuple(numbers) if numbers or listed else value


def _floats(data: memoryview, span: Span) -> list[float]:
    size = span[1] - span[0]
    if size % 4 or not size:
        raise Damaged("a list of floats is cut off")
    return list(struct.unpack(f"<{size // 4}f", data[span[0] : span[1]]))
