"""All operators that are translated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nnpipe.compilers._onnx_torch import elementwise, indexing, reductions, shapes, weighted, windows
from nnpipe.compilers._onnx_torch.call import OperatorCall

_MODULES = (elementwise, reductions, shapes, indexing, weighted, windows)
OWN = frozenset({"Constant", "Shape", "Size"})
"""Operators that :class:`~nnpipe.compilers._onnx_torch.graph.GraphRun` computes itself."""


def table() -> Mapping[str, Callable[[OperatorCall], Any]]:
    """Return the operators by their names in ONNX."""
    return {name: operator for module in _MODULES for name, operator in module.operators().items()}


def untranslated(kinds: Iterable[str]) -> list[str]:
    """Return the operators among these that are not translated, each once."""
    known = table().keys() | OWN
    return [kind for kind in dict.fromkeys(kinds) if kind not in known]
