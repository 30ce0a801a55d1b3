"""Counts of the operators and weights in the main graph of an ONNX file, which need no weight to be read.

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
    """The number of operators and weights in a model.

    Attributes
    ----------
    operations
        Number of operators of each kind, without ``Constant``.
    tensors
        Number of weights.
    numbers
        Number of elements of all weights of each element type.
    """

    operations: Counter[str] = field(default_factory=Counter)
    tensors: int = 0
    numbers: Counter[str] = field(default_factory=Counter)


def read_contents(path: str | Path) -> Contents:
    """Return the number of operators and weights in the main graph of an ONNX file.

    Raises
    ------
    ArtifactError
        If the file is missing or damaged; the message names it.
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
