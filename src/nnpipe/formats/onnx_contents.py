"""What an ONNX file is made of, counted without reading any weight: operations and weights of its main graph.

Field numbers are those of ``onnx/onnx.proto3``.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from nnpipe.formats._mapped import mapped_onnx
from nnpipe.formats._onnx_values import DTYPES, messages
from nnpipe.formats._protobuf import Span, fields, integers, spans, text

_GRAPH, _NODE, _INITIALIZER = 7, 1, 5
_OP_TYPE, _DOMAIN = 4, 7
_DIMS, _DATA_TYPE = 1, 2


@dataclass
class Contents:
    """What a model holds.

    Attributes
    ----------
    operations
        How many there are of each kind; constants are none.
    tensors
        How many weights there are.
    numbers
        How many numbers they have of each type.
    """

    operations: Counter[str] = field(default_factory=Counter)
    tensors: int = 0
    numbers: Counter[str] = field(default_factory=Counter)


def read_contents(path: str | Path) -> Contents:
    """Count what is in the main graph of a file that is known to be there.

    Raises
    ------
    ArtifactError
        If it is damaged; the message names it.
    """
    found = Contents()
    with mapped_onnx(path) as data:
        for graph in spans(data, (0, len(data)), _GRAPH):
            _count(data, graph, found)
    return found


def _count(data: memoryview, graph: Span, found: Contents) -> None:
    for number, span in messages(data, graph):
        if number == _NODE:
            words = {4: "", 7: ""} | {n: text(data, v) for n, v in messages(data, span) if n in (_OP_TYPE, _DOMAIN)}
            kind, domain = words[_OP_TYPE], words[_DOMAIN]
            if kind != "Constant":
                found.operations[kind if domain in ("", "ai.onnx") else f"{domain}.{kind}"] += 1
        elif number == _INITIALIZER:
            extents, dtype = [], ""
            for part, value in fields(data, span):
                if part == _DIMS:
                    extents += integers(data, value)
                elif part == _DATA_TYPE and isinstance(value, int):
                    dtype = DTYPES.get(value, f"type {value}")
            if dtype != "string":
                found.tensors += 1
                found.numbers[dtype] += math.prod(extents)
