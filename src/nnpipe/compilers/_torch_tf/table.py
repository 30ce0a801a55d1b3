"""All operators that are translated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nnpipe.compilers._torch_tf import (
    activations,
    attention,
    convolutions,
    creation,
    elementwise,
    matrices,
    normalisation,
    pieces,
    pooling,
    recurrent,
    reductions,
    resizing,
    shapes,
)

_MODULES = (
    elementwise, activations, reductions, shapes, pieces, creation, matrices, convolutions, pooling, normalisation,
    resizing, attention, recurrent,
)  # fmt: skip


def table() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch, with an overload only where it differs from the others."""
    return {name: operator for module in _MODULES for name, operator in module.operators().items()}
