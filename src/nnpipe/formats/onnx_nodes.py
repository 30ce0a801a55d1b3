"""The operations of an ONNX file, read with numpy alone: what each is, and what it takes.

Field numbers are those of ``onnx/onnx.proto3``.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnpipe.core.errors import ArtifactError
from nnpipe.formats._damaged import Damaged
from nnpipe.formats._protobuf import Span, fields, integer, integers, spans, text

_GRAPH, _FUNCTIONS, _FUNCTION_NODE = 7, 25, 7
_NODE, _ATTRIBUTE = 1, 5
_DEPTH_LIMIT = 32  # graphs within graphs


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


def read_nodes(path: str | Path) -> list[Node]:
    """Read the operations of a file that is known to be there, those of graphs within nodes and of functions too.

    Raises
    ------
    ArtifactError
        If it is damaged; the message names it.
    """
    found: list[Node] = []
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
    found: list[Node]

    def graph(self, span: Span, depth: int) -> None:
        if depth > _DEPTH_LIMIT:
            raise Damaged("graphs are nested too deeply")
        for node in spans(self.data, span, _NODE):
            self.node(node, depth)

    def node(self, span: Span, depth: int) -> None:
        texts: dict[int, list[str]] = {1: [], 2: [], 3: [], 4: []}
        attributes: dict[str, Any] = {}
        for number, value in fields(self.data, span):
            if number in texts:
                texts[number].append(text(self.data, value))
            elif number == _ATTRIBUTE and isinstance(value, tuple):
                name, content = self.attribute(value, depth)
                attributes[name] = content
        self.found.append(Node("".join(texts[4]), "".join(texts[3]), tuple(texts[1]), tuple(texts[2]), attributes))

    def attribute(self, span: Span, depth: int) -> tuple[str, Any]:
        name, value, listed = "", None, []
        for number, content in fields(self.data, span):
            if number == 1:
                name = text(self.data, content)
            elif number == 2 and isinstance(content, tuple) and content[1] - content[0] == 4:
                value = struct.unpack("<f", self.data[content[0] : content[1]])[0]
            elif number == 3:
                value = integer(self.data, content)
            elif number == 4 and isinstance(content, tuple):
                value = bytes(self.data[content[0] : content[1]]).decode("utf-8", "replace")
            elif number == 8:
                listed += integers(self.data, content)
            elif number in (6, 11) and isinstance(content, tuple):
                self.graph(content, depth + 1)
        return name, tuple(listed) if listed else value
