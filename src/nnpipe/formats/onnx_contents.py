"""Counts of the operators and weights in the main graph of an ONNX file, which need no weight to be read.

Field numbers are those of ``onnx/onnx.proto3``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnpipe.formats._mapped import mapped_onnx
from nnpipe.formats._onnx_values import DTYPES, messages
from nnpipe.formats._protobuf import Span, fields, integers, spans, text

_GRAPH, _NODE, _INITIALIZER = 7, 1, 5
_OP_TYPE, _ATTRIBUTE, _DOMAIN = 4, 5, 7
_TENSOR = 5
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
                continue
            for attribute in spans(data, span, _ATTRIBUTE):
                for tensor in spans(data, attribute, _TENSOR):
                    dtype, extents = _tensor(data, tensor)
                    found.count_matrix(dtype, extents)
        elif number == _INITIALIZER:
            dtype, extents = _tensor(data, span)
            if dtype != "string":
                found.count(dtype, extents)


def _tensor(data: memoryview, span: Span) -> tuple[str, list[int]]:
    """Return the element type and the lengths of the axes of a constant."""
    extents, dtype = [], ""
    for part, value in fields(data, span):
        if part == _DIMS:
            extents += integers(data, value)
        elif part == _DATA_TYPE and isinstance(value, int):
            dtype = DTYPES.get(value, f"type {value}")
    return dtype, extents
